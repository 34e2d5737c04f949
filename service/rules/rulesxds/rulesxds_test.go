package rulesxds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	control "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rules/rulesxds"
)

// limited is a configuration of one limit a second.
func limited(domain string, unit ratelimit.RateLimitUnit) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{
		Key: "route", Value: "route", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Key: "rule-0-match-0", RateLimit: &ratelimit.RateLimitPolicy{Unit: unit, RequestsPerUnit: 5},
		}},
	}}}
}

// A plane is a control plane of go-control-plane, with what it was told.
type plane struct {
	cache   cache.SnapshotCache
	refused chan string // reasons
	acked   chan string // versions
}

func newPlane() *plane {
	return &plane{cache.NewSnapshotCache(true, cache.IDHash{}, nil), make(chan string, 1000), make(chan string, 1000)}
}

// put gives all nodes a configuration.
func (p *plane) put(t testing.TB, version string, configs ...*ratelimit.RateLimitConfig) {
	t.Helper()
	var all []types.Resource
	for _, c := range configs {
		all = append(all, c)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: all})
	if err == nil {
		err = p.cache.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serve answers on an address until stop is called.
func serve(t testing.TB, address string, ads discovery.AggregatedDiscoveryServiceServer) (at string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, ads)
	go func() { _ = server.Serve(ln) }() // until it is stopped
	t.Cleanup(server.Stop)
	return ln.Addr().String(), server.Stop
}

func (p *plane) serve(t testing.TB, address string) (at string, stop func()) {
	return serve(t, address, control.NewServer(t.Context(), p.cache, control.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			if r.GetErrorDetail() != nil {
				p.refused <- r.GetErrorDetail().GetMessage()
			} else if r.GetResponseNonce() != "" {
				p.acked <- r.GetVersionInfo()
			}
			return nil
		},
	}))
}

// nothing receives what is not there.
type nothing struct{}

func (nothing) Begin(*rulesource.Snapshot, bool) error { return nil }
func (nothing) Override(*rulesource.Override) error    { return errors.New("an override") }
func (nothing) Plan(*rulesource.Plan) error            { return errors.New("a plan") }

func open(t testing.TB, at, more string) *rulesxds.Source {
	t.Helper()
	s, err := rulesxds.Open("xds://"+at+"?node=envoy-ratelimit"+more, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// until waits until a document has a text.
func until(t testing.TB, s *rulesxds.Source, text string) *rulesource.Snapshot {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	held := rulesource.Version{}
	for {
		now, err := s.Load(ctx, rulesource.Version{}, nothing{})
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.Contains(string(now.Document), text):
			return now
		case s.Wait(ctx, held) != nil:
			time.Sleep(time.Millisecond)
		}
		held = now.Version
	}
}

// trouble waits until Wait has an error.
func trouble(t *testing.T, s *rulesxds.Source) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		now, err := s.Load(ctx, rulesource.Version{}, nothing{})
		if err == nil {
			err = s.Wait(ctx, now.Version)
		}
		if err != nil {
			return err
		}
	}
}

// TestFollow takes what the control plane sends, and refuses what would lose a limit.
func TestFollow(t *testing.T) {
	p := newPlane()
	p.put(t, "1", limited("one", ratelimit.RateLimitUnit_SECOND), limited("two", ratelimit.RateLimitUnit_MONTH))
	at, _ := p.serve(t, "127.0.0.1:0")
	s := open(t, at, "")
	first := until(t, s, "one")
	if !strings.Contains(string(first.Document), "30d") || strings.Contains(s.String(), "node") {
		t.Errorf("%s: %s", s, first.Document)
	}
	p.put(t, "2", limited("three", ratelimit.RateLimitUnit_HOUR))
	until(t, s, "three")
	<-p.acked
	if version := <-p.acked; version != "2" {
		t.Errorf("acknowledged %s", version)
	}
	p.put(t, "3", limited("three", ratelimit.RateLimitUnit_UNKNOWN), limited("four", ratelimit.RateLimitUnit_UNKNOWN), limited("five", ratelimit.RateLimitUnit_DAY))
	if reason := <-p.refused; !strings.Contains(reason, `domain "four", route=route, rule-0-match-0: no unit`) || !strings.Contains(reason, `"3"`) {
		t.Errorf("refused: %s", reason)
	}
	five := until(t, s, "five")
	if five.Refused == nil || !strings.Contains(five.Refused.Error(), "no unit") {
		t.Error(five.Refused)
	}
	if rest := string(five.Document); !strings.Contains(rest, "three") || !strings.Contains(rest, "5/1h") || strings.Contains(rest, "four") {
		t.Errorf("beside what is refused: %s", rest)
	}
	p.put(t, "4")
	empty := until(t, s, "rules: []")
	if err := s.Wait(t.Context(), first.Version); err != nil || empty.Version == first.Version {
		t.Error(err)
	}
}

// TestKinds takes each kind of descriptor that Envoy Gateway and AI Gateway write.
func TestKinds(t *testing.T) {
	rate := func(count uint32, unit ratelimit.RateLimitUnit) *ratelimit.RateLimitPolicy {
		return &ratelimit.RateLimitPolicy{Unit: unit, RequestsPerUnit: count}
	}
	all := []*ratelimit.RateLimitDescriptor{
		{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: rate(5, ratelimit.RateLimitUnit_SECOND)},
		{Key: "rule-1-match-0", RateLimit: rate(5, ratelimit.RateLimitUnit_WEEK)}, // a distinct value
		{Key: "masked_remote_address", Value: "192.168.0.0/16", Descriptors: []*ratelimit.RateLimitDescriptor{
			{Key: "remote_address", RateLimit: rate(7, ratelimit.RateLimitUnit_MINUTE)},
		}},
		{Key: "rule-2-match--1", Value: "rule-2-match--1", RateLimit: rate(0, ratelimit.RateLimitUnit_YEAR)},
		{Key: "httproute/default/name/rule/0", Value: "x", RateLimit: rate(9, ratelimit.RateLimitUnit_MONTH), ShadowMode: true, DetailedMetric: true},
		{Key: "quota-bucket", Value: "model", RateLimit: rate(9, ratelimit.RateLimitUnit_DAY), QuotaMode: true},
		{Key: "free", RateLimit: &ratelimit.RateLimitPolicy{Unlimited: true}},
	}
	p := newPlane()
	p.put(t, "1", &ratelimit.RateLimitConfig{Name: "first", Domain: "first", Descriptors: all})
	at, _ := p.serve(t, "127.0.0.1:0")
	document := string(until(t, open(t, at, ""), "rule-0").Document)
	for _, text := range []string{"5/1s", "5/1w", "7/1m", "9/30d", "9/1d", "shadow: true", "192.168.0.0/16"} {
		if !strings.Contains(document, text) {
			t.Errorf("without %s", text)
		}
	}
	if t.Failed() {
		t.Log(document)
	}
}

// TestQuotas takes what AI Gateway writes for quotas of models: of a backend and a model,
// by headers that must have a value or of which each value has its own, and for all
// other models.
func TestQuotas(t *testing.T) {
	quota := func(key, value string, count uint32, unit ratelimit.RateLimitUnit, below ...*ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
		d := &ratelimit.RateLimitDescriptor{Key: key, Value: value, Descriptors: below}
		if count > 0 {
			d.RateLimit, d.QuotaMode = &ratelimit.RateLimitPolicy{Unit: unit, RequestsPerUnit: count}, true
		}
		return d
	}
	const tier, rest = "rule-0-x-tier|pre.*-match-0", "rule-1-match--1" // of an expression: stars in keys
	const beside = "rule-0-x-tier|pre.*um-match-1"
	p := newPlane()
	p.put(t, "1", &ratelimit.RateLimitConfig{Name: "ai-gateway-quota", Domain: "ai-gateway-quota", Descriptors: []*ratelimit.RateLimitDescriptor{
		quota("backend_name", "shop/fast", 0, 0,
			quota("model_name_override", "small-1", 11, ratelimit.RateLimitUnit_SECOND),
			quota("model_name_override", "large-1", 0, 0,
				quota(tier, tier, 0, 0, quota("rule-0-x-user-match-1", "", 12, ratelimit.RateLimitUnit_MINUTE)),
				quota(beside, beside, 15, ratelimit.RateLimitUnit_DAY),
				quota(rest, rest, 13, ratelimit.RateLimitUnit_HOUR)),
			quota("model_name_override", "", 14, ratelimit.RateLimitUnit_DAY)),
	}})
	at, _ := p.serve(t, "127.0.0.1:0")
	document := string(until(t, open(t, at, ""), "shop/fast").Document)
	for _, text := range []string{"11/1s", "12/1m", "13/1h", "14/1d", "15/1d", strings.ReplaceAll(tier, "*", `\\*`), rest, "rule-0-x-user-match-1", "shadow: quota"} {
		if !strings.Contains(document, text) {
			t.Errorf("without %s", text)
		}
	}
	select {
	case reason := <-p.refused:
		t.Error(reason)
	case <-p.acked:
	}
	if t.Failed() {
		t.Log(document)
	}
}

// TestAway keeps the last configuration while the control plane is gone, and takes the
// next one when it is back.
func TestAway(t *testing.T) {
	p := newPlane()
	p.put(t, "1", limited("one", ratelimit.RateLimitUnit_SECOND))
	at, stop := p.serve(t, "127.0.0.1:0")
	s := open(t, at, "")
	held := until(t, s, "one")
	stop()
	if err := trouble(t, s); !strings.Contains(err.Error(), "away") {
		t.Error(err)
	}
	if again := until(t, s, "one"); again.Version != held.Version {
		t.Error("another version of what is held")
	}
	p.put(t, "2", limited("two", ratelimit.RateLimitUnit_SECOND))
	p.serve(t, at)
	until(t, s, "two")
}

// A rogue is a control plane that does what it is told.
type rogue struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	streams atomic.Int64
	do      func(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error
}

func (r *rogue) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	r.streams.Add(1)
	return r.do(stream)
}

// TestRogues has control planes that end streams, send what nobody asked for, and flood.
func TestRogues(t *testing.T) {
	t.Run("ends each stream", func(t *testing.T) {
		r := &rogue{do: func(discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error { return nil }}
		at, _ := serve(t, "127.0.0.1:0", r)
		s := open(t, at, "&start_empty=true")
		for r.streams.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		_ = s.Close()
		if n := r.streams.Load(); n > 3 { // of half a second and more between two
			t.Errorf("%d streams", n)
		}
		if _, err := s.Load(t.Context(), rulesource.Version{}, nothing{}); !errors.Is(err, rulesource.ErrEmpty) {
			t.Error(err)
		}
	})
	t.Run("sends something else", func(t *testing.T) {
		reasons := make(chan string, 10)
		r := &rogue{do: func(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
			node, _ := anypb.New(&core.Node{Id: "x"})
			for _, response := range []*discovery.DiscoveryResponse{
				{TypeUrl: "something", VersionInfo: "1"},
				{TypeUrl: resource.RateLimitConfigType, VersionInfo: "2", Resources: []*anypb.Any{node}},
				{TypeUrl: resource.RateLimitConfigType, VersionInfo: "3", Resources: []*anypb.Any{{TypeUrl: resource.RateLimitConfigType, Value: []byte{0xff}}}},
				{},
			} {
				if _, err := stream.Recv(); err != nil {
					return err
				}
				_ = stream.Send(response)
			}
			for {
				answer, err := stream.Recv()
				if err != nil {
					return err
				}
				reasons <- answer.GetErrorDetail().GetMessage()
			}
		}}
		at, _ := serve(t, "127.0.0.1:0", r)
		open(t, at, "")
		if reason := <-reasons; reason == "" {
			t.Error("no reason")
		}
	})
	t.Run("floods", func(t *testing.T) {
		r := &rogue{do: func(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
			for i := 0; ; i++ {
				config, _ := anypb.New(limited(fmt.Sprint("domain", i), ratelimit.RateLimitUnit_SECOND))
				if err := stream.Send(&discovery.DiscoveryResponse{TypeUrl: resource.RateLimitConfigType, VersionInfo: fmt.Sprint(i), Resources: []*anypb.Any{config}}); err != nil {
					return err
				}
			}
		}}
		at, _ := serve(t, "127.0.0.1:0", r)
		s := open(t, at, "")
		until(t, s, "domain9")
		_ = s.Close()
	})
}

// TestWrongURLs are refused with what would be right.
func TestWrongURLs(t *testing.T) {
	for text, want := range map[string]string{
		"xds://localhost":                      "such as",
		"xds://192.0.2.1:18000":                "insecure=true",
		"xdss://192.0.2.1:18000?insecure=true": "for xds://",
		"xds://localhost:1?cert=a&key=b":       "for xdss://",
		"xdss://localhost:1?cert=a":            "cert goes with key",
		"xdss://localhost:1?cacert=nowhere":    "nowhere",
		"xds://localhost:1?nodes=x":            "no parameter",
		"xds://localhost:1?node=x&node=y":      "twice",
		"xds://localhost:1?start_empty=yes":    "true or false",
		"xds://user:secret@localhost:1":        "such as",
		"xds://localhost:99999":                "65535",
	} {
		s, err := rulesxds.Open(text, nil, nil)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHalfOpen goes on over a connection that passes nothing any more and was not closed, as
// behind a relay that was switched off: the source asks, hears nothing, and connects anew.
func TestHalfOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel() // it waits
	p := newPlane()
	p.put(t, "1", limited("one", ratelimit.RateLimitUnit_SECOND))
	at, _ := p.serve(t, "127.0.0.1:0")
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	var off atomic.Int64 // connections up to this one pass nothing
	go func() {
		for n := int64(1); ; n++ {
			theirs, err := relay.Accept()
			if err != nil {
				return
			}
			ours, err := net.Dial("tcp", at)
			if err != nil {
				return
			}
			t.Cleanup(func() { theirs.Close(); ours.Close() })
			pass := func(to, from net.Conn) {
				for b := make([]byte, 4096); ; {
					size, err := from.Read(b)
					if err != nil {
						return
					}
					if off.Load() < n {
						_, _ = to.Write(b[:size])
					}
				}
			}
			go pass(ours, theirs)
			go pass(theirs, ours)
		}
	}()
	s := open(t, relay.Addr().String(), "")
	until(t, s, "one")
	off.Store(1)
	p.put(t, "2", limited("two", ratelimit.RateLimitUnit_SECOND))
	until(t, s, "two")
}

// BenchmarkManyDescriptors is of 40,000 descriptors, from the control plane to rules that
// decide.
func BenchmarkManyDescriptors(b *testing.B) {
	all := limited("many", ratelimit.RateLimitUnit_DAY)
	one := all.Descriptors[0].Descriptors
	all.Descriptors = nil
	for i := range 40_000 {
		all.Descriptors = append(all.Descriptors, &ratelimit.RateLimitDescriptor{Key: "route", Value: fmt.Sprintf("httproute/shop/%d", i), Descriptors: one})
	}
	for b.Loop() {
		p := newPlane()
		p.put(b, "1", all)
		at, stop := p.serve(b, "127.0.0.1:0")
		s := open(b, at, "")
		document := until(b, s, "many").Document
		file, err := rules.Decode("xds.yaml", document)
		if err != nil {
			b.Fatal(err)
		}
		store := memstore.New(memstore.Options{})
		decides, err := policy.New(store, file.Rules, policy.Options{})
		if err != nil || len(decides.Rules().Names()) != 40_000 {
			b.Fatal(err)
		}
		_ = s.Close()
		_ = store.Close()
		stop()
	}
}
