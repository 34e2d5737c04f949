package rulesxds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/service/rules"
)

// A plane is a stream without a network.
type plane struct {
	grpc.ClientStream
	answers   chan *discovery.DiscoveryRequest
	responses chan *discovery.DiscoveryResponse
}

func newPlane() *plane {
	return &plane{answers: make(chan *discovery.DiscoveryRequest, 100), responses: make(chan *discovery.DiscoveryResponse)}
}

func (p *plane) Send(ask *discovery.DiscoveryRequest) error { p.answers <- ask; return nil }

func (p *plane) Recv() (*discovery.DiscoveryResponse, error) {
	if r, open := <-p.responses; open {
		return r, nil
	}
	return nil, errors.New("ended")
}

// beside is a configuration of a tenant whose limit changes and one whose limit has no unit.
func beside(t *testing.T, version int) *discovery.DiscoveryResponse {
	t.Helper()
	odd := entry("k", "", 1)
	odd.RateLimit.Unit = ratelimit.RateLimitUnit_UNKNOWN
	return message(fmt.Sprint(version), resource(t, "odd", odd), resource(t, "good", entry("k", "", uint32(100+version))))
}

// TestBesideOdd changes the limit of one tenant beside another's that is refused each time:
// the change is in force without a pause, and that a part is refused is said all the while.
func TestBesideOdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := quiet(), newPlane()
		ctx, stop := context.WithCancel(t.Context())
		s.done = ctx
		go func() { _ = s.converse(p) }()
		<-p.answers
		p.responses <- beside(t, 0)
		follower, first, err := rules.Follow(ctx, rules.Following{Source: s, Name: "xds"})
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Options{})
		defer store.Close()
		var problem error
		source, err := follower.Open(ctx, store, first, rules.Options{Log: slog.New(slog.DiscardHandler), OnReload: func(_ time.Time, err error) { problem = err }})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- source.Watch(ctx) }()
		for version := 1; version <= 20; version++ {
			began := time.Now()
			if <-p.answers; version == 11 {
				time.Sleep(time.Hour)
				began = time.Now()
			}
			p.responses <- beside(t, version)
			time.Sleep(2 * rest)
			synctest.Wait()
			if document := string(source.File().Document); !strings.Contains(document, fmt.Sprint(100+version, "/1d")) {
				t.Fatalf("change %d is not in force after %v:\n%s", version, time.Since(began), document)
			}
			if _, why := source.Held(); !strings.Contains(why, "no unit") || problem == nil {
				t.Fatalf("change %d: the problem is %q, %v", version, why, problem)
			}
		}
		p.responses <- message("21", resource(t, "good", entry("k", "", 120)))
		time.Sleep(2 * rest)
		synctest.Wait()
		if _, why := source.Held(); why != "" || problem != nil {
			t.Errorf("nothing is refused, and the problem is %q, %v", why, problem)
		}
		stop()
		close(p.responses)
		<-ended
	})
}

// TestNewest sends again what was refused, and then much at once: after a pause the newest is
// handled, and nothing between.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := quiet(), newPlane()
		ended := make(chan error)
		go func() { ended <- s.converse(p) }()
		<-p.answers
		p.responses <- beside(t, 1)
		for version := 1; version < 10; version++ {
			p.responses <- beside(t, version)
		}
		time.Sleep(time.Minute)
		close(p.responses)
		<-ended
		var handled []string
		for len(p.answers) > 0 {
			handled = append(handled, (<-p.answers).GetVersionInfo())
		}
		if !slices.Equal(handled, []string{"1", "9"}) {
			t.Errorf("handled: %v", handled)
		}
	})
}
