package rls_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
)

// TestOverridesHeld asks with limits of 38 counts and 7 units on the store of Redis, which
// computes in fewer digits than others: each is held, and one that cannot be held is over
// its limit. None is an error, which would open Envoy. No server is there, so this node
// alone counts.
func TestOverridesHeld(t *testing.T) {
	file, err := rules.Decode("rules.yaml", []byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := redisstore.New(redisstore.Options{URL: "redis://127.0.0.1:1/0"})
	if err != nil {
		t.Fatal(err)
	}
	s := serviceOn(t, store, file, rls.Options{})
	ask := func(key string, l *ratelimit.RateLimitDescriptor_RateLimitOverride) *pb.RateLimitResponse {
		t.Helper()
		entries := func(value string) []*ratelimit.RateLimitDescriptor_Entry {
			return []*ratelimit.RateLimitDescriptor_Entry{{Key: "key", Value: value}}
		}
		got, err := s.Decide(soon(t), &pb.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
			{Entries: entries(key), Limit: l}, {Entries: entries("beside")},
		}}, false)
		if err != nil {
			t.Errorf("limit %v: %v", l, err)
			return &pb.RateLimitResponse{Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, 2)}
		}
		return got
	}
	for unit := typev3.RateLimitUnit_SECOND; unit <= typev3.RateLimitUnit_YEAR+1; unit++ {
		for _, count := range []uint32{
			0, 1, 2, 3, 7, 10, 60, 97, 100, 101, 997, 1000, 1009, 1500, 5000, 9973, 10000, 10007, 30000, 65537, 99991, 100000, 100003, 250000, 500009, 999983,
			1000000, 1000003, 1048576, 5000011, 10000000, 10000019, 100000000, 100000007, 1000000007, 2147483647, 4294967291, 4294967295,
		} {
			got := ask(fmt.Sprint(unit, count), &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: count, Unit: unit}).GetStatuses()[0]
			want := pb.RateLimitResponse_OK
			if count == 0 {
				want = pb.RateLimitResponse_OVER_LIMIT
			}
			if got.GetCode() != want || got.GetCurrentLimit().GetRequestsPerUnit() != count || got.GetLimitRemaining() != max(count, 1)-1 {
				t.Errorf("%d per %v: %v", count, unit, got)
			}
		}
	}
	for _, years := range []uint32{36, 292, 4294967295} { // Redis holds 35
		l := &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(years)}
		got := ask("long", l)
		if got.GetStatuses()[0].GetCode() != pb.RateLimitResponse_OVER_LIMIT || got.GetStatuses()[1].GetCode() != pb.RateLimitResponse_OK {
			t.Errorf("5 per %d years: %v", years, got)
		}
	}
}

// TestLimitsBeside sends requests of several descriptors, whose entries come again with
// other limits of the same unit and of others. Each descriptor is held to its own limit, as
// its field limit says, of what all of the same entries and unit count. All pass, or none.
func TestLimitsBeside(t *testing.T) {
	s := service(t, rls.Options{})
	random := rand.New(rand.NewPCG(7, 8))
	type counter struct {
		entry string
		unit  typev3.RateLimitUnit
	}
	used := map[counter]uint32{}
	for n := range 2000 {
		request, sums := &pb.RateLimitRequest{Domain: "brought"}, map[counter]uint32{}
		for range 1 + random.IntN(4) {
			at := counter{fmt.Sprint(n/20*2, random.IntN(2)), typev3.RateLimitUnit_MONTH + typev3.RateLimitUnit(random.IntN(2))}
			hits := uint32(1 + random.IntN(4))
			sums[at] += hits
			request.Descriptors = append(request.Descriptors, &ratelimit.RateLimitDescriptor{
				Entries:    []*ratelimit.RateLimitDescriptor_Entry{{Key: "key", Value: at.entry}},
				Limit:      &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(1 + random.IntN(30)), Unit: at.unit},
				HitsAddend: wrapperspb.UInt64(uint64(hits)),
			})
		}
		of := func(d *ratelimit.RateLimitDescriptor) counter {
			return counter{d.GetEntries()[0].GetValue(), d.GetLimit().GetUnit()}
		}
		over := func(d *ratelimit.RateLimitDescriptor) bool {
			return used[of(d)]+sums[of(d)] > d.GetLimit().GetRequestsPerUnit()
		}
		got, err := s.Decide(soon(t), request, false)
		if err != nil {
			t.Fatal(err)
		}
		passes := !slices.ContainsFunc(request.GetDescriptors(), over)
		if allowed := got.GetOverallCode() == pb.RateLimitResponse_OK; allowed != passes {
			t.Fatalf("%v\npasses: %t, want %t; used before: %v", request, allowed, passes, used)
		}
		for i, d := range request.GetDescriptors() {
			st, limit := got.GetStatuses()[i], d.GetLimit().GetRequestsPerUnit()
			denied, never := st.GetCode() == pb.RateLimitResponse_OVER_LIMIT, st.GetDurationUntilReset() == nil
			left := limit - min(limit, used[of(d)])
			if passes {
				left -= sums[of(d)]
			}
			if denied != over(d) || never != (sums[of(d)] > limit) || st.GetCurrentLimit().GetRequestsPerUnit() != limit || st.GetLimitRemaining() != left {
				t.Fatalf("%v\ndescriptor %d: %v, want %d left, denied: %t; used before: %v", request, i, st, left, over(d), used)
			}
		}
		if passes {
			for at, sum := range sums {
				used[at] += sum
			}
		}
	}
}
