package rls_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint/service/rls"
)

// TestMoreThanThereMayBe has the service answer requests whose parts take far more than
// their bytes: each is a denial, of few statuses, and takes no more memory than it has bytes.
func TestMoreThanThereMayBe(t *testing.T) {
	s := service(t, rls.Options{})
	overGRPC := func(b []byte) (code pb.RateLimitResponse_Code, statuses int, err error) {
		var req pb.RateLimitRequest
		if err := rls.Decode(b, &req); err != nil {
			return 0, 0, err
		}
		resp, err := s.Decide(t.Context(), &req, false)
		return resp.GetOverallCode(), len(resp.GetStatuses()), err
	}
	overJSON := func(b []byte) (code pb.RateLimitResponse_Code, statuses int, err error) {
		status, answer, err := s.JSON(t.Context(), b, false)
		if err != nil || status != 429 {
			return 0, 0, fmt.Errorf("%d %w", status, err)
		}
		return pb.RateLimitResponse_OVER_LIMIT, bytes.Count(answer, []byte(`"code"`)), nil
	}
	long := bytes.Repeat([]byte{0x0a, 0}, 1<<21)
	for _, one := range []struct {
		name string
		ask  func(b []byte) (code pb.RateLimitResponse_Code, statuses int, err error)
		body []byte
	}{
		{"descriptors", overGRPC, append([]byte("\x0a\x04shop"), bytes.Repeat([]byte{0x12, 0}, 2_000_000)...)},
		{"entries", overGRPC, append(append([]byte("\x0a\x04shop\x12"), 0x80, 0x80, 0x80, 2), long...)},
		{"descriptors of JSON", overJSON, []byte(`{"domain":"shop","descriptors":[{}` + strings.Repeat(",{}", 20_000) + "]}")},
		{"entries of JSON", overJSON, []byte(`{"domain":"shop","descriptors":[{"entries":[{}` + strings.Repeat(",{}", 20_000) + "]}]}")},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, statuses, err := one.ask(one.body)
		runtime.ReadMemStats(&after)
		if err != nil || code != pb.RateLimitResponse_OVER_LIMIT || statuses > rls.MaxDescriptors+1 {
			t.Errorf("%s: %v, %d statuses, %v", one.name, code, statuses, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(one.body)) {
			t.Errorf("%s: %d bytes took %d", one.name, len(one.body), took)
		}
	}
	braces := `{"domain":"shop","descriptors":[{"entries":[{"key":"agent","value":"\"` + strings.Repeat("{", 10_000) + `"}]}]}`
	if status, _, err := s.JSON(t.Context(), []byte(braces), false); status != 200 || err != nil {
		t.Errorf("braces in a value: %d %v", status, err)
	}
}

// TestMetadataOfOpenCalls begins calls that do not end, whose metadata takes a hundred times
// its bytes on the wire. One connection holds a part of the room for all, others are
// answered, and it is, too, once its calls are over.
func TestMetadataOfOpenCalls(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Read: time.Minute})
	flood, other, patient := dial(t, address), client(t, address), soon(t)
	var pairs []string
	for range 20_000 {
		pairs = append(pairs, "a", "v")
	}
	ctx, end := context.WithCancel(metadata.AppendToOutgoingContext(soon(t), pairs...))
	defer end()
	const all, most = 60, 40 // of 2 MB each, in a quarter of 256 MiB
	refused := open(ctx, t, pb.RateLimitService_ShouldRateLimit_FullMethodName, all, flood)
	for range all - most {
		if code := <-refused; code != codes.Unavailable {
			t.Errorf("a call beyond the room: %v", code)
		}
	}
	for _, c := range []pb.RateLimitServiceClient{other, pb.NewRateLimitServiceClient(flood)} {
		if _, err := c.ShouldRateLimit(soon(t), request("shop", "user", "root")); err != nil {
			t.Errorf("during the flood: %v", err)
		}
		if ctx.Err() == nil && len(refused) == most {
			t.Error("the calls that there was room for have ended, too")
		}
		end()
		for ; ; time.Sleep(10 * time.Millisecond) {
			_, err := c.ShouldRateLimit(metadata.AppendToOutgoingContext(patient, pairs...), request("shop", "user", "root"))
			if err == nil {
				break
			}
			if patient.Err() != nil {
				t.Fatalf("after the flood: %v", err)
			}
		}
	}
}
