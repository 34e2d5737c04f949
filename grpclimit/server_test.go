package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

var twoAnHour = []stint.Limit{stint.PerHour(2).WithName("calls")}

func TestUnary(t *testing.T) {
	conn := guarded(t, twoAnHour, grpclimit.PeerKey(), grpclimit.Options{})
	c := grpc_testing.NewTestServiceClient(conn)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		var head metadata.MD
		_, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}, grpc.Header(&head))
		if status.Code(err) != want {
			t.Fatalf("call %d: %v, want %v", i, err, want)
		}
		if got := head.Get("ratelimit-policy"); !slices.Equal(got, []string{`"calls";q=2;w=3600`}) {
			t.Errorf("call %d: ratelimit-policy %q", i, got)
		}
		wantLimit := []string{`"calls";r=1;t=1`, `"calls";r=0;t=3`, `"calls";r=0;t=1`}[i] // half an hour, an hour and half of one, less what has passed
		if got := head.Get("ratelimit"); len(got) != 1 || !strings.HasPrefix(got[0], wantLimit) || len(got[0]) != len(wantLimit)+3 {
			t.Errorf("call %d: ratelimit %q, want %q", i, got, wantLimit)
		}
		if err == nil {
			continue
		}
		if got := head.Get("retry-after"); len(got) != 1 || len(got[0]) != 4 {
			t.Errorf("retry-after %q", got)
		}
		retry, quota, info := details(err)
		if d := retry.GetRetryDelay().AsDuration(); d <= 29*time.Minute || d > 30*time.Minute {
			t.Errorf("retry after %v", d)
		}
		if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "calls" {
			t.Errorf("violations %v", v)
		}
		if info.GetReason() != "RATE_LIMITED" || info.GetDomain() != "stint" || info.GetMetadata()["limit"] != "calls" {
			t.Errorf("info %v", info)
		}
	}
	for range 3 {
		if _, err := healthpb.NewHealthClient(conn).Check(soon(t), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health is limited: %v", err)
		}
	}
}

// TestStream: streams are counted when they open.
func TestStream(t *testing.T) {
	c := grpc_testing.NewTestServiceClient(guarded(t, twoAnHour, grpclimit.PeerKey(), grpclimit.Options{}))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		stream, err := c.FullDuplexCall(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err = stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err == nil {
				_, err = stream.Recv()
			} else if err == io.EOF {
				_, err = stream.Recv() // the status
			}
			if status.Code(err) != want {
				t.Fatalf("stream %d: %v, want %v", i, err, want)
			}
			if err != nil {
				break
			}
		}
		_ = stream.CloseSend()
		if _, err := stream.Recv(); want == codes.OK && err != io.EOF {
			t.Errorf("stream %d ends with %v", i, err)
		}
	}
}

// TestMessages: with Messages, one opening and two messages count as three.
func TestMessages(t *testing.T) {
	c := grpc_testing.NewTestServiceClient(guarded(t, []stint.Limit{stint.PerHour(3).WithName("m")}, grpclimit.All(), grpclimit.Options{Messages: true}))
	stream, err := c.FullDuplexCall(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("message %d: %v, want %v", i, err, want)
		} else if retry, _, _ := details(err); err != nil && retry == nil {
			t.Errorf("message %d: no RetryInfo in %v", i, err)
		}
	}
	if got := stream.Trailer().Get("retry-after"); len(got) != 1 {
		t.Errorf("retry-after %q", got)
	}
}

func TestKeysAndOptions(t *testing.T) {
	with := func(pairs ...string) context.Context {
		return metadata.NewOutgoingContext(soon(t), metadata.Pairs(pairs...))
	}
	var reported atomic.Pointer[grpclimit.Outcome]
	hear := func(_ context.Context, _ string, o grpclimit.Outcome) { reported.Store(&o) }
	costly := func(_ context.Context, c grpclimit.Call) int64 {
		if c.Method != "/grpc.testing.TestService/EmptyCall" || c.Stream || c.Message == nil {
			t.Errorf("%+v", c)
		}
		return 2
	}
	for name, c := range map[string]struct {
		key  grpclimit.Key
		o    grpclimit.Options
		ctx  []context.Context
		want []codes.Code
	}{
		"each key by itself": {grpclimit.MetadataKey("X-Api-Key"), grpclimit.Options{}, []context.Context{with("x-api-key", "a"), with("x-api-key", "a"), with("x-api-key", "a"), with("x-api-key", "b")}, []codes.Code{0, 0, 8, 0}},
		"those without one":  {grpclimit.MetadataKey("x-api-key"), grpclimit.Options{}, []context.Context{with(), with("x-api-key", ""), with(), with("x-api-key", "a")}, []codes.Code{0, 0, 8, 0}},
		"are refused":        {grpclimit.MetadataKey("x-api-key"), grpclimit.Options{Missing: grpclimit.MissingDeny}, []context.Context{with(), with("x-api-key", "a")}, []codes.Code{7, 0}},
		"pass":               {grpclimit.MetadataKey("x-api-key"), grpclimit.Options{Missing: grpclimit.MissingSkip}, []context.Context{with(), with(), with()}, []codes.Code{0, 0, 0}},
		"cost":               {grpclimit.All(), grpclimit.Options{Cost: costly}, []context.Context{with(), with()}, []codes.Code{0, 8}},
		"never":              {grpclimit.All(), grpclimit.Options{Cost: func(context.Context, grpclimit.Call) int64 { return 3 }}, []context.Context{with()}, []codes.Code{8}},
		"below zero":         {grpclimit.All(), grpclimit.Options{Cost: func(context.Context, grpclimit.Call) int64 { return -1 }}, []context.Context{with()}, []codes.Code{3}},
		"shadow":             {grpclimit.All(), grpclimit.Options{Shadow: true, OnDecision: hear}, []context.Context{with(), with(), with()}, []codes.Code{0, 0, 0}},
		"skip":               {grpclimit.All(), grpclimit.Options{Skip: func(context.Context, string) bool { return true }}, []context.Context{with(), with(), with()}, []codes.Code{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			client := grpc_testing.NewTestServiceClient(guarded(t, twoAnHour, c.key, c.o))
			for i, ctx := range c.ctx {
				_, err := client.EmptyCall(ctx, &grpc_testing.Empty{})
				if status.Code(err) != c.want[i] {
					t.Errorf("call %d: %v, want %v", i, err, c.want[i])
				}
				if retry, _, _ := details(err); name == "never" && retry != nil {
					t.Errorf("retry %v of what never passes", retry)
				}
			}
		})
	}
	if o := reported.Load(); o == nil || o.Decision.Allowed || !o.Shadow || !slices.Equal(o.Violated, []string{"calls"}) {
		t.Errorf("shadow was reported: %+v", o)
	}
}

// TestQueue: calls wait under a leaky_queue, as long as they may.
func TestQueue(t *testing.T) {
	queue := stint.New(20, time.Second).WithAlgorithm(meter.LeakyQueue).WithBurst(5).WithName("q")
	c := grpc_testing.NewTestServiceClient(guarded(t, []stint.Limit{queue}, grpclimit.All(), grpclimit.Options{MaxWait: time.Minute}))
	var all sync.WaitGroup
	began := time.Now()
	for range 6 {
		all.Go(func() {
			if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < 250*time.Millisecond { // six starts, 50 ms apart
		t.Errorf("six starts within %v", took)
	}
	slow := stint.New(1, time.Hour).WithAlgorithm(meter.LeakyQueue).WithBurst(5).WithName("q")
	c = grpc_testing.NewTestServiceClient(guarded(t, []stint.Limit{slow}, grpclimit.All(), grpclimit.Options{MaxWait: time.Minute}))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != want {
			t.Errorf("call %d of a slow queue: %v, want %v", i, err, want)
		}
	}
}

// failing is a store whose decisions fail.
type failing struct {
	*memstore.Store
	err error
}

type failingBound struct {
	stint.Bound
	err error
}

func (f failing) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := f.Store.Bind(name, limits...)
	return failingBound{b, f.err}, err
}

func (f failingBound) Decide(context.Context, meter.Op, string, int64) (stint.Decision, error) {
	return stint.Decision{}, f.err
}

// TestStoreFails: FailOpen lets calls pass after errors of the store, not after errors of a
// call.
func TestStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		o    grpclimit.Options
		err  error
		want codes.Code
	}{
		"closed":         {grpclimit.Options{}, stint.ErrClosed, codes.Unavailable},
		"open":           {grpclimit.Options{FailOpen: true}, stint.ErrClosed, codes.OK},
		"open, too many": {grpclimit.Options{FailOpen: true}, stint.ErrLayers, codes.Unavailable},
		"open, cost":     {grpclimit.Options{FailOpen: true}, stint.ErrCost, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			l := made.Limiter(t, failing{memstore.New(memstore.Options{}), c.err}, "test", twoAnHour...)
			var heard atomic.Pointer[error]
			c.o.OnError = func(_ context.Context, _ string, err error) { heard.Store(&err) }
			guard, err := grpclimit.NewServer(l, grpclimit.All(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			client := grpc_testing.NewTestServiceClient(dial(t, serve(t, guard.Unary())))
			if _, err := client.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
			if e := heard.Load(); e == nil || !errors.Is(*e, c.err) {
				t.Errorf("reported %v", e)
			}
		})
	}
}

// slow answers after 12 ms. It fails, as a store does, if its own deadline of 15 ms or three
// quarters of its caller's time are over before.
type slow struct{ stint.Store }

func (s slow) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return slowBound{b}, err
}

type slowBound struct{ stint.Bound }

func (s slowBound) Decide(ctx context.Context, op meter.Op, key string, n int64) (stint.Decision, error) {
	within := 15 * time.Millisecond
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end)*3/4)
	}
	select {
	case <-ctx.Done():
		return stint.Decision{}, ctx.Err()
	case <-time.After(within):
		return stint.Decision{}, errors.New("the store does not answer")
	case <-time.After(12 * time.Millisecond):
		return s.Bound.Decide(ctx, op, key, n)
	}
}

// TestClientsDeadline: however short a call's deadline is, that is not taken for a failure of
// the store, which would let the call pass.
func TestClientsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		l := made.Limiter(t, slow{store}, "test", twoAnHour...)
		guard, err := grpclimit.NewServer(l, grpclimit.All(), grpclimit.Options{FailOpen: true})
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for _, deadline := range []time.Duration{time.Second, time.Second, time.Second, time.Millisecond, 11 * time.Millisecond, 14 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			passed := false
			_, err := guard.UnaryInterceptor(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
				passed = true
				return nil, nil
			})
			cancel()
			if (err == nil) != passed {
				t.Errorf("within %v: %v", deadline, err)
			}
			if passed {
				used++
			}
		}
		if used != 2 {
			t.Errorf("%d pass of 2 an hour", used)
		}
	})
}

const grpcRules = `{"attributes": ["jwt.sub"], "rules": [
	{"name": "ban", "match": {"header.x-user": "mallory"}, "block": true},
	{"name": "empty", "match": {"path": "/grpc.testing.TestService/EmptyCall", "method": "POST", "grpc.method": "EmptyCall"}, "key": ["ip"], "limits": ["2 per hour"]},
	{"name": "streams", "match": {"grpc.service": "grpc.testing.TestService", "grpc.method": "FullDuplexCall"}, "unless": {"grpc.message": true}, "key": ["header.x-user"], "on_missing": "deny", "limits": ["1 per hour"]},
	{"name": "messages", "match": {"grpc.message": true}, "key": ["jwt.sub"], "limits": ["2 per hour"]}
]}`

func TestPolicy(t *testing.T) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, grpcRules), policy.Options{})
	guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{
		Messages:  true,
		Attribute: func(_ context.Context, _, name string) (string, bool) { return "sub", name == "jwt.sub" },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := grpc_testing.NewTestServiceClient(dial(t, serve(t, guard.Unary(), guard.Stream())))
	as := func(user string) context.Context {
		return metadata.AppendToOutgoingContext(soon(t), "x-user", user)
	}
	for i, one := range []struct {
		ctx  context.Context
		want codes.Code
	}{{as("ann"), codes.OK}, {as("mallory"), codes.PermissionDenied}, {as("bob"), codes.OK}, {as("ann"), codes.ResourceExhausted}} {
		_, err := c.EmptyCall(one.ctx, &grpc_testing.Empty{})
		if status.Code(err) != one.want {
			t.Errorf("call %d: %v, want %v", i, err, one.want)
		}
		if _, quota, _ := details(err); one.want == codes.ResourceExhausted && (len(quota.GetViolations()) != 1 || quota.GetViolations()[0].GetSubject() != "empty") {
			t.Errorf("violations %v", quota)
		}
	}
	for i, one := range []struct {
		ctx  context.Context
		want []codes.Code // of each message
	}{{as("ann"), []codes.Code{0, 0, 8}}, {as("ann"), []codes.Code{8}}, {soon(t), []codes.Code{7}}} {
		stream, err := c.FullDuplexCall(one.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for k, want := range one.want {
			_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{}) // Recv says why it failed
			if _, err := stream.Recv(); status.Code(err) != want {
				t.Errorf("stream %d, message %d: %v, want %v", i, k, err, want)
			}
		}
	}
}

// TestRepeatedMetadata: a call is refused if metadata that rules look at comes twice. Its
// client could vary the value that rules go by, while the handler goes by the other.
func TestRepeatedMetadata(t *testing.T) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules": [{"name": "a", "key": ["header.x-user"], "limits": "2/h"}, {"name": "trial", "key": ["header.x-other"], "limits": "9/h", "shadow": true}]}`), policy.Options{})
	guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := grpc_testing.NewTestServiceClient(dial(t, serve(t, guard.Unary(), guard.Stream())))
	for i, one := range []struct {
		md   []string
		want codes.Code
	}{
		{[]string{"x-user", "ann"}, codes.OK},
		{[]string{"x-user", "junk", "x-user", "ann"}, codes.InvalidArgument},
		{[]string{"X-User", "ann", "x-user", ""}, codes.InvalidArgument},
		{[]string{"x-user", "ann "}, codes.InvalidArgument},
		{[]string{"x-user", "ann", "x-other", "a ", "x-other", "b"}, codes.OK},
		{[]string{"x-user", "ann"}, codes.ResourceExhausted},
	} {
		_, err := c.EmptyCall(metadata.AppendToOutgoingContext(soon(t), one.md...), &grpc_testing.Empty{})
		if status.Code(err) != one.want {
			t.Errorf("call %d, %q: %v, want %v", i, one.md, err, one.want)
		}
	}
}

func TestRefused(t *testing.T) {
	l := limiter(t, twoAnHour...)
	for name, make := range map[string]func() (*grpclimit.Server, error){
		"unmade": func() (*grpclimit.Server, error) {
			return grpclimit.NewServer(&stint.Limiter{}, grpclimit.All(), grpclimit.Options{})
		},
		"no limiter": func() (*grpclimit.Server, error) {
			return grpclimit.NewServer(nil, grpclimit.All(), grpclimit.Options{})
		},
		"no key": func() (*grpclimit.Server, error) { return grpclimit.NewServer(l, nil, grpclimit.Options{}) },
		"a word": func() (*grpclimit.Server, error) {
			return grpclimit.NewServer(l, grpclimit.All(), grpclimit.Options{Missing: 9})
		},
		"no policy": func() (*grpclimit.Server, error) { return grpclimit.NewServerPolicy(nil, grpclimit.Options{}) },
	} {
		if s, err := make(); err == nil || s != nil {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
}

func BenchmarkUnary(b *testing.B) {
	guard, err := grpclimit.NewServer(limiter(b, stint.PerSecond(1_000_000_000)), grpclimit.All(), grpclimit.Options{NoFields: true})
	if err != nil {
		b.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: "/a/B"}
	next := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := guard.UnaryInterceptor(b.Context(), nil, info, next); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNotGiven: rules that look at what a call does not have are refused at the start. After
// a reload, a call that they may hold ends with Internal.
func TestNotGiven(t *testing.T) {
	policyOf := func(text string) *policy.Policy {
		rules := made.Rules(t, text)
		return made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{})
	}
	current := policyOf(`{"rules": [{"name": "a", "match": {"grpc.method": "EmptyCall"}, "key": ["cookie.c"], "limits": "1/h"}]}`)
	if _, err := grpclimit.NewServerPolicy(func() *policy.Policy { return current }, grpclimit.Options{}); err == nil || !strings.Contains(err.Error(), "package httplimit") {
		t.Errorf("at the start: %v", err)
	}
	cookies := current
	current = policyOf(`{"rules": []}`)
	guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return current }, grpclimit.Options{FailOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	current = cookies
	c := grpc_testing.NewTestServiceClient(dial(t, serve(t, guard.Unary())))
	if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != codes.Internal {
		t.Errorf("a call that the rule may hold: %v", err)
	}
	if _, err := c.UnaryCall(soon(t), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Unimplemented { // the call has reached the server
		t.Errorf("another: %v", err)
	}
}

// TestNoMetadata: a name that no call can have is an error of the program.
func TestNoMetadata(t *testing.T) {
	for _, name := range []string{"", "x-api-key:", "x key"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q: no panic", name)
				}
			}()
			grpclimit.MetadataKey(name)
		}()
	}
}
