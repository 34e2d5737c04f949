package rls_test

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/service/rls"
)

// within reports whether all of a request is read.
func within(req *pb.RateLimitRequest) bool {
	for _, d := range req.GetDescriptors() {
		if len(d.GetEntries()) > rls.MaxEntries {
			return false
		}
	}
	return len(req.GetDescriptors()) <= rls.MaxDescriptors
}

// FuzzRequest holds whatever a client sends, as bytes of the protocol and as
// JSON, to be answered: by a decision whose statuses are those of the request's
// descriptors, or by an error.
func FuzzRequest(f *testing.F) {
	s := service(f, rls.Options{Headers: true, ClientsRefund: true})
	seed := func(req *pb.RateLimitRequest) {
		for _, marshal := range []func(proto.Message) ([]byte, error){proto.Marshal, protojson.Marshal} {
			b, err := marshal(req)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	seed(request("shop", "user", "ann"))
	seed(request("paths", "path", "/%2e"))
	all := request("shop", "user", "ann", "plan", "gold", "plan", "yearly")
	d := all.Descriptors[0]
	d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(1<<63), true
	d.Limit = &core.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit(9), UnitMultiplier: wrapperspb.UInt32(3)}
	all.Descriptors = append(all.Descriptors, all.Descriptors...)
	seed(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = s.JSON(t.Context(), b, false)
		var req pb.RateLimitRequest
		if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &req) != nil {
			return
		}
		if again := new(pb.RateLimitRequest); within(&req) && (rls.Unmarshal(b, again) != nil || !proto.Equal(again, &req)) {
			t.Fatalf("read as bytes: %v, want %v", again, &req)
		}
		resp, err := s.Decide(t.Context(), &req, false)
		if err != nil {
			return
		}
		if len(resp.GetStatuses()) != min(len(req.GetDescriptors()), rls.MaxDescriptors+1) {
			t.Fatalf("%d statuses of %d descriptors", len(resp.GetStatuses()), len(req.GetDescriptors()))
		}
		denied := false
		for _, st := range resp.GetStatuses() {
			denied = denied || st.GetCode() == pb.RateLimitResponse_OVER_LIMIT
		}
		if denied != (resp.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT) {
			t.Fatalf("overall %v of %v", resp.GetOverallCode(), resp.GetStatuses())
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Fatal(err)
		}
	})
}
