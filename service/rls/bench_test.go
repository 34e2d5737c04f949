package rls_test

import (
	"context"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-dev/stint/service/rls"
)

// One descriptor under one rule, as most of Envoy's requests are: what a
// decision takes without the protocol, and what it takes with it.
func BenchmarkShouldRateLimit(b *testing.B) {
	req := &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "ip", Value: "192.0.2.7"}},
	}}}
	s := service(b, rls.Options{})
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.ShouldRateLimit(context.Background(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("over gRPC, client and server", func(b *testing.B) {
		address, _ := start(b, s, rls.ServeOptions{})
		c := client(b, address)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.ShouldRateLimit(context.Background(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
}
