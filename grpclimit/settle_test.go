package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A told is a server behind a guard. Its calls do what their metadata says, and it says when
// a call is over.
type told struct {
	grpc_testing.TestServiceClient
	over chan struct{}
	open chan struct{} // a call that waits does so until it receives from here
}

func telling(t *testing.T, guard *grpclimit.Server) *told {
	s := &told{over: make(chan struct{}, 100), open: make(chan struct{})}
	act := func(ctx context.Context, header, trailer func(metadata.MD)) error {
		do, _ := metadata.FromIncomingContext(ctx)
		for _, text := range do.Get("header") {
			header(metadata.Pairs("X-Tokens", text))
		}
		for _, text := range do.Get("trailer") {
			trailer(metadata.Pairs("X-Tokens", text))
		}
		if len(do.Get("wait")) > 0 {
			select {
			case <-s.open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		code, _ := strconv.Atoi(fmt.Sprint(append(do.Get("code"), "0")[0]))
		if len(do.Get("panic")) > 0 {
			panic("of the handler")
		}
		return status.Error(codes.Code(code), "told")
	}
	survive := func(err *error) {
		if recover() != nil {
			*err = status.Error(codes.Internal, "panic")
		}
		s.over <- struct{}{}
	}
	outerUnary := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (a any, err error) {
		defer survive(&err)
		return next(ctx, req)
	}
	outerStream := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer survive(&err)
		return next(srv, stream)
	}
	unary := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		err := act(ctx, func(md metadata.MD) { _ = grpc.SetHeader(ctx, md) }, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	stream := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		err := act(stream.Context(), func(md metadata.MD) { _ = stream.SendHeader(md) }, stream.SetTrailer)
		if err != nil {
			return err
		}
		return next(srv, stream)
	}
	s.TestServiceClient = grpc_testing.NewTestServiceClient(dial(t, serve(t, grpc.ChainUnaryInterceptor(outerUnary), grpc.ChainStreamInterceptor(outerStream),
		guard.Unary(), guard.Stream(), grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream))))
	return s
}

// call makes a call of one form, and returns when the client has its end.
func (s *told) call(ctx context.Context, form string) error {
	if form == "unary" {
		_, err := s.EmptyCall(ctx, &grpc_testing.Empty{})
		return err
	}
	stream, err := s.FullDuplexCall(ctx)
	if err == nil {
		err = stream.CloseSend()
	}
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// standing returns a policy on a store whose clock stands still, and a function that returns
// what a call has left under its rule.
func standing(t *testing.T, rule string) (p *policy.Policy, left func() int64) {
	rules := made.Rules(t, `{"rules": [`+rule+`]}`)
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }})
	t.Cleanup(func() { _ = store.Close() })
	p = made.Policy(t, store, rules, policy.Options{})
	return p, func() int64 {
		var r policy.Result
		if err := p.Peek(context.Background(), policy.Map{}, 1, &r); err != nil {
			t.Fatal(err)
		}
		return r.Rules[0].Remaining
	}
}

// TestSettled: the cost of a call is settled by its status, and by the fields of its header
// and its trailer, before the client gets the end of the call.
func TestSettled(t *testing.T) {
	const (
		failures = `{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "count": {"status": [401, 403]}}`
		good     = `{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "count": {"status": "2xx"}}`
		tokens   = `{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"response": "header.x-tokens", "reserve": 100, "missing": 7}}`
		both     = `{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"response": "header.x-tokens", "reserve": 100}, "count": {"status": "2xx"}}`
	)
	for _, c := range []struct {
		name, rule string
		do         []string
		used       int64
	}{
		{"a success is no failure", failures, nil, 0},
		{"UNAUTHENTICATED", failures, []string{"code", "16"}, 1},
		{"PERMISSION_DENIED", failures, []string{"code", "7"}, 1},
		{"NOT_FOUND", failures, []string{"code", "5"}, 0},
		{"a panic is no success", good, []string{"panic", "1"}, 0},
		{"an unknown code", good, []string{"code", "99"}, 0},
		{"CANCELLED is of clients", good, []string{"code", "1"}, 1},
		{"DEADLINE_EXCEEDED too", good, []string{"code", "4"}, 1},
		{"in the trailer", tokens, []string{"trailer", "42"}, 42},
		{"above what was reserved", tokens, []string{"trailer", "420"}, 420},
		{"in the header", tokens, []string{"header", "43"}, 43},
		{"of a call that fails", tokens, []string{"trailer", "44", "code", "13"}, 44},
		{"not said", tokens, nil, 7},
		{"not said before a panic", tokens, []string{"panic", "1"}, 100},
		{"said, and counted", both, []string{"trailer", "45"}, 45},
		{"said, not counted", both, []string{"header", "45", "code", "13"}, 0},
	} {
		for _, form := range []string{"unary", "stream"} {
			p, left := standing(t, c.rule)
			guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{OnError: func(_ context.Context, _ string, err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			s := telling(t, guard)
			_ = s.call(metadata.AppendToOutgoingContext(soon(t), c.do...), form)
			if used := 1000 - left(); used != c.used {
				t.Errorf("%s, %s: %d used, want %d", c.name, form, used, c.used)
			}
		}
	}
}

// TestSettledLeft: a call whose client leaves is charged what was reserved or what the
// handler has said, and a charge that counts by the status is not given back.
func TestSettledLeft(t *testing.T) {
	for _, c := range []struct {
		rule, trailer string
		used          int64
	}{
		{`{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"response": "header.x-tokens", "reserve": 100, "missing": 7}}`, "", 100},
		{`{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"response": "header.x-tokens", "reserve": 100}}`, "42", 42},
		{`{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "count": {"status": "2xx"}}`, "", 1},
		{`{"name": "r", "key": [], "limits": ["1000 per hour sliding_log"], "count": {"status": 401}}`, "", 1},
	} {
		p, left := standing(t, c.rule)
		guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := telling(t, guard)
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(soon(t), "wait", "1", "header", "x"))
		if c.trailer != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "trailer", c.trailer)
		}
		stream, err := s.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if c.trailer != "" {
			cancel()
		} else if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-s.over
		if used := 1000 - left(); used != c.used {
			t.Errorf("%s: %d used, want %d", c.rule, used, c.used)
		}
	}
}

// TestSettledOpen: calls whose status is open ban nobody, and a call that is denied because
// of them is told to come again soon. Failures do ban.
func TestSettledOpen(t *testing.T) {
	for code, banned := range map[string]bool{"0": false, "16": true} {
		p, _ := standing(t, `{"name": "login", "key": [], "limits": ["5 per 10 minutes sliding_log ban 1h"], "count": {"status": [401, 403]}}`)
		guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := telling(t, guard)
		var all []grpc_testing.TestService_FullDuplexCallClient
		for range 5 {
			stream, err := s.FullDuplexCall(metadata.AppendToOutgoingContext(soon(t), "wait", "1", "header", "1", "code", code))
			if err == nil {
				_, err = stream.Header()
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, stream)
		}
		for _, wait := range []time.Duration{time.Second, 0} {
			err := s.call(soon(t), "unary")
			retry, _, _ := details(err)
			switch {
			case wait > 0: // all five calls are open
				if status.Code(err) != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() > wait {
					t.Errorf("code %s: %v beside five open calls, %v", code, err, retry)
				}
				close(s.open)
				for _, stream := range all {
					_ = stream.CloseSend()
					_, _ = stream.Recv()
				}
			case banned:
				if status.Code(err) != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() != time.Hour {
					t.Errorf("code %s: %v after five failures, %v", code, err, retry)
				}
			case err != nil:
				t.Errorf("code %s: %v after five successes", code, err)
			}
		}
	}
}

// TestSettle: Options.Settle gives back charges of a limiter and of rules by the code, and
// charges more than was taken by the metadata.
func TestSettle(t *testing.T) {
	o := grpclimit.Options{Settle: func(c codes.Code, _ metadata.MD, cost int64) int64 {
		if c == codes.Unauthenticated {
			return cost
		}
		return 0
	}}
	limits := stint.PerHour(2)
	p, _ := standing(t, `{"name": "r", "key": [], "limits": ["2/h"]}`)
	ruled, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, o)
	if err != nil {
		t.Fatal(err)
	}
	limited, err := grpclimit.NewServer(limiter(t, limits), grpclimit.All(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, guard := range map[string]*grpclimit.Server{"limiter": limited, "rules": ruled} {
		s := telling(t, guard)
		for i, c := range []struct {
			code string
			want codes.Code
		}{{"0", 0}, {"5", codes.NotFound}, {"16", codes.Unauthenticated}, {"16", codes.Unauthenticated}, {"16", codes.ResourceExhausted}, {"0", codes.ResourceExhausted}} {
			form := []string{"unary", "stream"}[i%2]
			err := s.call(metadata.AppendToOutgoingContext(soon(t), "code", c.code), form)
			if status.Code(err) != c.want && !(c.want == 0 && form == "stream") {
				t.Errorf("%s, call %d: %v, want %v", name, i, err, c.want)
			}
		}
	}
	dear, err := grpclimit.NewServer(limiter(t, stint.PerHour(50)), grpclimit.All(), grpclimit.Options{Settle: func(_ codes.Code, said metadata.MD, cost int64) int64 {
		n, _ := strconv.ParseInt(said.Get("x-tokens")[0], 10, 64)
		return n * cost
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := telling(t, dear)
	for i, want := range []codes.Code{0, 0, codes.ResourceExhausted} {
		if err := s.call(metadata.AppendToOutgoingContext(soon(t), []string{"trailer", "header"}[i%2], "30"), "unary"); status.Code(err) != want {
			t.Errorf("30 of 50 each, call %d: %v, want %v", i, err, want)
		}
	}
	for text, l := range map[string]stint.Limit{"waiting": stint.PerSecond(1).WithAlgorithm(stint.LeakyQueue), "in flight": stint.InFlight(1)} {
		if _, err := grpclimit.NewServer(limiter(t, l), grpclimit.All(), o); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// TestTrailerIsSettled: where a settlement changes what remains, the trailer says it.
func TestTrailerIsSettled(t *testing.T) {
	p, _ := standing(t, `{"name": "r", "key": [], "limits": ["2 per hour sliding_log"], "count": {"status": [401]}}`)
	ruled, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := grpclimit.NewServer(limiter(t, stint.PerHour(2).WithAlgorithm(stint.SlidingLog)), grpclimit.All(), grpclimit.Options{Settle: func(c codes.Code, _ metadata.MD, cost int64) int64 {
		if c == codes.Unauthenticated {
			return cost
		}
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, guard := range map[string]*grpclimit.Server{"limiter": limited, "rules": ruled} {
		s := telling(t, guard)
		for i, c := range []struct{ code, form, want string }{{"16", "unary", ""}, {"0", "unary", ";r=1;"}, {"5", "stream", ";r=1;"}, {"16", "stream", ""}} {
			ctx := metadata.AppendToOutgoingContext(soon(t), "code", c.code)
			var trailer metadata.MD
			if c.form == "unary" {
				_, _ = s.EmptyCall(ctx, &grpc_testing.Empty{}, grpc.Trailer(&trailer))
			} else if stream, err := s.FullDuplexCall(ctx); err == nil {
				_, _ = stream.Recv()
				trailer = stream.Trailer()
			}
			if got := trailer.Get("ratelimit"); len(got) > 1 || !strings.Contains(fmt.Sprint(got), c.want) || (c.want == "") != (got == nil) {
				t.Errorf("%s, call %d: %q, want %s", name, i, got, c.want)
			}
		}
	}
}

// TestRefusedResponses: rules that go by the body of a response, and messages under rules that go by
// it, are refused.
func TestRefusedResponses(t *testing.T) {
	for text, want := range map[string]bool{
		`"cost": {"response": "bytes", "reserve": 1}`:    true,
		`"cost": {"usage": "openai", "reserve": 1}`:      true,
		`"cost": {"response": "header.x", "reserve": 1}`: false,
		`"count": {"status": 401}`:                       false,
	} {
		p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules": [{"name": "r", "key": [], "limits": ["9/h"], `+text+`}]}`), policy.Options{})
		for _, messages := range []bool{false, true} {
			_, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{Messages: messages})
			if (err != nil) != (want || messages) {
				t.Errorf("%s, messages %t: %v", text, messages, err)
			}
		}
	}
}

// TestSettledFull: without room for a reservation a call is refused and charged nothing, by a
// limiter and by rules, so that successes ban nobody.
func TestSettledFull(t *testing.T) {
	store := memstore.New(memstore.Options{MaxReservations: 1, Now: func() int64 { return 1e18 }})
	limiter := made.Limiter(t, store, "limiter", made.Limit(t, "3/h ban 1h"))
	p := made.Policy(t, store, made.Rules(t, `{"rules": [{"name": "r", "key": [], "limits": ["3/h ban 1h"], "count": {"status": 401}}]}`), policy.Options{})
	var reported error
	o := grpclimit.Options{FailOpen: true, OnError: func(_ context.Context, _ string, err error) { reported = err }}
	byRules, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Settle = func(codes.Code, metadata.MD, int64) int64 { return 0 }
	byLimiter, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, guard := range map[string]*grpclimit.Server{"limiter": byLimiter, "rules": byRules} {
		t.Run(name, func(t *testing.T) {
			_, held, err := limiter.Reserve(t.Context(), "somebody else", 1, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			s := telling(t, guard)
			for range 5 {
				if err := s.call(t.Context(), "unary"); status.Code(err) != codes.Unavailable || !errors.Is(reported, stint.ErrFull) {
					t.Errorf("without room: %v, reported %v", err, reported)
				}
			}
			if _, err := held.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := s.call(t.Context(), "unary"); err != nil {
					t.Errorf("with room: %v", err)
				}
			}
		})
	}
}
