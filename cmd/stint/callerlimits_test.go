package main_test

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestCallersLimitsBounded gives a limit of its own in each command, and in each descriptor
// of Envoy's service. Beyond a quarter of a part of the store a new one is an error, or over
// the limit; those that are known decide, and clients of a rule that were never seen pass.
func TestCallersLimitsBounded(t *testing.T) {
	rules := `rules: [{name: day, match: {user: true}, key: [user], limits: ["1 per day"]}]`
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--max-keys", "64000")
	envoy, over := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials()), 0
	client := redis.NewClient(&redis.Options{Addr: s.at("interface=resp"), ReadTimeout: patience}) // 5,000 commands at once
	defer client.Close()
	const given, most = 1500, 64000 / 64 / 4
	pipe, failed := client.Pipeline(), 0
	for i := range given {
		pipe.Do(t.Context(), "CL.THROTTLE", "k", 0, 1, 86400+i)
	}
	all, _ := pipe.Exec(t.Context())
	for _, c := range all {
		if err := c.Err(); err != nil {
			if failed++; !strings.Contains(err.Error(), "limits of cl.throttle still count") {
				t.Fatal(err)
			}
		}
	}
	if failed != given-most {
		t.Errorf("%d of %d limits are refused", failed, given)
	}
	if got, err := client.Do(t.Context(), "CL.THROTTLE", "new", 0, 1, 86400).Slice(); err != nil || got[0] != int64(0) {
		t.Errorf("a limit that is known: %v %v", got, err)
	}
	for i := range 2000 {
		pipe.Do(t.Context(), "STINT.CHECK", "user", i)
	}
	news, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range news {
		if got, _ := c.(*redis.Cmd).Val().(map[any]any); got["allowed"] != true {
			t.Fatalf("newcomer %d: %v", i, got)
		}
	}

	for i := 0; i < given; i += 50 {
		req := &pb.RateLimitRequest{Domain: "own"}
		for k := range 50 {
			req.Descriptors = append(req.Descriptors, &core.RateLimitDescriptor{
				Entries: []*core.RateLimitDescriptor_Entry{{Key: "k", Value: strings.Repeat("v", k+1)}},
				Limit:   &core.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(uint32(i + k + 1))},
			})
		}
		resp, err := envoy.ShouldRateLimit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
			over++
		}
	}
	if want := (given - most) / 50; over < want || over > want+1 {
		t.Errorf("%d requests with limits beyond the bound are over the limit, want %d", over, want)
	}
	_ = client.Close()
}
