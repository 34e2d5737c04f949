package rls_test

import (
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/service/rls"
)

const oddRules = `
rules:
  - {name: address, match: {domain: edge, ip: true}, key: [ip], limits: ["1 per day"]}
  - {name: path, match: {domain: edge, path: '/**'}, key: [path], limits: ["1000 per day", "1000 per 2 days"]}
  - {name: user, match: {domain: edge, user: true}, key: [user], limits: ["1000 per day", "1000 per 2 days"], cors: true, denied: {body: no}}
  - {name: header, match: {domain: edge, header.x-api-key: true}, key: [header.x-api-key], limits: ["1000 per day"]}
  - {name: host, match: {domain: edge, host: true}, key: [host], limits: ["1000 per day"]}
  - {name: trial, match: {domain: edge}, key: [trial], limits: ["1000 per day"], shadow: true}
  - {name: held, match: {domain: edge, held: true}, key: [held], limits: ["2 in flight"]}
`

// An anyText is a codec of clients that sends strings as Envoy does, which does not look
// whether they are UTF-8.
type anyText struct{}

func (anyText) Name() string { return "proto" }

func (anyText) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

func (anyText) Marshal(v any) ([]byte, error) {
	req := v.(*pb.RateLimitRequest)
	field := func(b []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
	}
	var out []byte
	for _, d := range req.Descriptors {
		var entries []byte
		for _, e := range d.Entries {
			entries = field(entries, 1, field(field(nil, 1, []byte(e.Key)), 2, []byte(e.Value)))
		}
		d = proto.CloneOf(&core.RateLimitDescriptor{Limit: d.Limit, HitsAddend: d.HitsAddend})
		rest, err := proto.Marshal(d)
		if err != nil {
			return nil, err
		}
		out = field(out, 2, append(entries, rest...))
	}
	rest, err := proto.Marshal(&pb.RateLimitRequest{Domain: req.Domain, HitsAddend: req.HitsAddend})
	return append(rest, out...), err
}

// TestOdd sends what a client can have Envoy send. Envoy lets pass what it gets an error
// for, so each is decided: an address whose limit is used up stays denied.
func TestOdd(t *testing.T) {
	address, _ := start(t, serviceOf(t, oddRules, rls.Options{Headers: true}), rls.ServeOptions{})
	c := pb.NewRateLimitServiceClient(dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(anyText{}))))
	long := func(n int) string { return strings.Repeat("x", n) }
	times := func(n int, pairs ...string) (all []*core.RateLimitDescriptor) {
		for i := range n {
			one := append([]string(nil), pairs...)
			one[1] += fmt.Sprint(i)
			all = append(all, request("", one...).Descriptors[0])
		}
		return all
	}
	brought := request("", "user", "a\xff").Descriptors
	brought[0].Limit = &core.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_DAY}
	broughtLong := request("", "nothing", long(60<<10)).Descriptors
	broughtLong[0].Limit = brought[0].Limit
	costly := request("", "user", "ann").Descriptors
	costly[0].HitsAddend = wrapperspb.UInt64(1 << 63)
	const passes, denied = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
	next := 0
	for _, odd := range []struct {
		name string
		with []*core.RateLimitDescriptor
		meta []string
		want pb.RateLimitResponse_Code
	}{
		{"nothing odd", request("", "user", "ann").Descriptors, nil, passes},
		{"a path with a byte that is no UTF-8", request("", "path", "/login\xff").Descriptors, nil, denied},
		{"a header that is no UTF-8", request("", "header.x-api-key", "\xff\xfe").Descriptors, nil, denied},
		{"half a pair of surrogates", request("", "user", "\xed\xa0\x80").Descriptors, nil, denied},
		{"an overlong slash", request("", "path", "/\xc0\xaf").Descriptors, nil, denied},
		{"a byte that no rule reads", request("", "agent", "\xff", "user", "ann").Descriptors, nil, passes},
		{"a key that is no UTF-8", request("", "\xff", "x", "user", "ann").Descriptors, nil, passes},
		{"a limit that comes along, for no UTF-8", brought, nil, denied},
		{"a limit that comes along, for 60 KiB", broughtLong, nil, denied},
		{"what only a rule in shadow reads, no UTF-8", request("", "trial", "\xff", "user", "ann").Descriptors, nil, passes},
		{"an address that is none", request("", "ip", "\xff").Descriptors, nil, denied},
		{"a host that is none", request("", "host", "a..b\xff").Descriptors, nil, denied},
		{"NUL", request("", "user", "\x00").Descriptors, nil, passes},
		{"lines", request("", "header.x-api-key", "a\r\nb: c").Descriptors, nil, denied},
		{"blanks around", request("", "user", " ann\t").Descriptors, nil, denied},
		{"blanks around what no rule reads", request("", "agent", " x ").Descriptors, nil, passes},
		{"nothing", request("", "user", "").Descriptors, nil, passes},
		{"noncharacters", request("", "user", "\ufffe\U0010ffff\ufeff").Descriptors, nil, passes},
		{"8 KiB", request("", "user", long(rls.MaxValue)).Descriptors, nil, passes},
		{"more", request("", "user", long(rls.MaxValue+1)).Descriptors, nil, denied},
		{"60 KiB that no rule reads", request("", "agent", long(60<<10)).Descriptors, nil, passes},
		{"a path of 33 KiB, twice", append(request("", "path", "/"+long(33<<10)).Descriptors, request("", "path", "/"+long(33<<10)).Descriptors...), nil, denied},
		{"60 KiB in 64 descriptors", times(63, "agent", long(60<<10)), nil, passes},
		{"65 descriptors", times(65, "agent", ""), nil, denied},
		{"10,000 descriptors", times(10_000, "agent", ""), nil, denied},
		{"65 entries", request("", make([]string, 2*rls.MaxEntries+2)...).Descriptors, nil, denied},
		{"one entry 64 times", request("", strings.Split(strings.Repeat("user,ann,", 64), ",")[:128]...).Descriptors, nil, passes},
		{"more than 64 limits", times(40, "user", "u"), nil, denied},
		{"a cost beyond 63 bits", costly, nil, denied},
		{"a limit in flight", request("", "held", "ann").Descriptors, nil, denied},
		{"an origin that is no UTF-8", request("", "user", "\xff", "header.origin", "https://\xff\r\n").Descriptors, nil, denied},
		{"a tracestate of 60 KiB", nil, []string{"tracestate", long(60 << 10), "traceparent", "00-x"}, passes},
		{"60 KiB in ten of them", nil, strings.Split(strings.Repeat("baggage,"+long(60<<10)+",", 10), ",")[:20], passes},
	} {
		next++
		for address, want := range map[string]pb.RateLimitResponse_Code{fmt.Sprint("192.0.2.", next): odd.want, "198.51.100.1": denied} {
			req := &pb.RateLimitRequest{Domain: "edge", Descriptors: append(request("", "remote_address", address).Descriptors, odd.with...)}
			resp, err := c.ShouldRateLimit(metadata.AppendToOutgoingContext(soon(t), odd.meta...), req)
			if address == "198.51.100.1" && next == 1 {
				resp, err = c.ShouldRateLimit(soon(t), req) // its one request of the day was that
			}
			if err != nil || resp.GetOverallCode() != want {
				t.Errorf("%s, from %s: %v %v, want %v", odd.name, address, resp.GetOverallCode(), err, want)
			}
		}
	}
}
