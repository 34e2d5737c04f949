package rls_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

const someRules = `
rules:
  - {name: ban, match: {domain: shop, user: mallory}, block: true}
  - {name: staff, match: {domain: shop, user: root}, unlimited: true}
  - {name: trial, match: {domain: shop, user: true}, key: [user], limits: ["1/h"], shadow: true}
  - {name: user, match: {domain: shop, user: true}, key: [user], limits: ["3/h"]}
  - {name: pair, match: {domain: shop, plan: gold, plan.2: yearly}, key: [], limits: ["2 per day"]}
  - {name: address, match: {domain: edge, ip: true}, key: [ip], limits: ["2 per 90s sliding_log"]}
  - {name: path, match: {domain: paths, path: /login}, key: [], limits: ["1 per 250ms"]}
  - {name: odd, match: {domain: odd}, key: [], limits: ["every 1500ms"]}
  - {name: month, match: {domain: months}, key: [], limits: ["5 per month in UTC"]}
  - {name: tokens, match: {domain: llm}, key: [user], limits: ["100 per hour fixed_window", "1000 per week fixed_window"]}
  - {name: running, match: {domain: running}, key: [user], limits: ["2 per day fixed_window count_denied"]}
  - {name: held, match: {domain: held}, key: [user], limits: ["2 in flight"]}
  - {name: own, match: {domain: own}, key: [user], limits: ["1/h"], cors: true, fields: hide, denied: {status: 420, headers: {X-Rule: "{rule}"}, body: "wait {retry_after} s"}}
`

// service returns a service on a store of its own, until the test ends.
func service(t testing.TB, o rls.Options) *rls.Service {
	t.Helper()
	return serviceOf(t, someRules, o)
}

func serviceOf(t testing.TB, text string, o rls.Options) *rls.Service {
	t.Helper()
	file, err := rules.Decode("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return serviceOn(t, memstore.New(memstore.Options{}), file, o)
}

func serviceOn(t testing.TB, store stint.Store, file *rules.File, o rls.Options) *rls.Service {
	t.Helper()
	var err error
	t.Cleanup(func() { _ = store.Close() })
	if o.Source, err = rules.Open(store, "", file, rules.Options{}); err != nil {
		t.Fatal(err)
	}
	if o.Observer == nil {
		o.Observer = observe.New(observe.Options{})
		t.Cleanup(o.Observer.Close)
	}
	return rls.New(o)
}

// start serves on a free port until stop is called, at the end of the test at
// the latest, and returns what Serve did.
func start(t testing.TB, s *rls.Service, o rls.ServeOptions) (address string, stop func() error) {
	t.Helper()
	ln := freeport.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rls.Serve(ctx, ln, s, o) }()
	stopped := false
	stop = func() error {
		cancel()
		stopped = true
		return <-done
	}
	t.Cleanup(func() {
		if !stopped {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return ln.Addr().String(), stop
}

// dial returns a connection, which ends before the server does.
func dial(t testing.TB, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(o) == 0 {
		o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(address, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func client(t testing.TB, address string, o ...grpc.DialOption) pb.RateLimitServiceClient {
	return pb.NewRateLimitServiceClient(dial(t, address, o...))
}

// soon bounds a test's calls.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
