package connectlimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/grpclimit/connectlimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

type text = wrapperspb.StringValue

const (
	unary  = "/test.v1.Echo/Unary"
	client = "/test.v1.Echo/Client"
	server = "/test.v1.Echo/Server"
	bidi   = "/test.v1.Echo/Bidi"
)

// serve serves an echo of every form behind the guard.
func serve(t testing.TB, guard *grpclimit.Server) *httptest.Server {
	t.Helper()
	with := connect.WithInterceptors(connectlimit.Interceptor(guard))
	mux := http.NewServeMux()
	mux.Handle(unary, connect.NewUnaryHandler(unary, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if r.Msg.Value == "fail" {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("of the handler"))
		}
		return connect.NewResponse(r.Msg), nil
	}, with))
	mux.Handle(client, connect.NewClientStreamHandler(client, func(_ context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
		n := 0
		for s.Receive() {
			n++
		}
		return connect.NewResponse(wrapperspb.String(fmt.Sprint(n))), s.Err()
	}, with))
	mux.Handle(server, connect.NewServerStreamHandler(server, func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
		for range 3 {
			if err := s.Send(r.Msg); err != nil {
				return err
			}
		}
		return nil
	}, with))
	mux.Handle(bidi, connect.NewBidiStreamHandler(bidi, func(_ context.Context, s *connect.BidiStream[text, text]) error {
		for {
			m, err := s.Receive()
			if err != nil {
				return err
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}, with))
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func guard(t testing.TB, limit string, key grpclimit.Key, o grpclimit.Options) *grpclimit.Server {
	t.Helper()
	parsed := made.Limit(t, limit)
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}) // the clock stands still, since seconds are compared
	t.Cleanup(func() { store.Close() })
	limiter := made.Limiter(t, store, "test", parsed)
	g, err := grpclimit.NewServer(limiter, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// protocols are the client options for each protocol that one server speaks.
var protocols = map[string][]connect.ClientOption{
	"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
}

// TestUnary: in each protocol, a denial has all that a client needs to come back in time.
func TestUnary(t *testing.T) {
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) {
			s := serve(t, guard(t, "2/h", grpclimit.PeerKey(), grpclimit.Options{}))
			c := connect.NewClient[text, text](s.Client(), s.URL+unary, options...)
			r, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("a")))
			if err != nil || r.Msg.Value != "a" || r.Header().Get("Ratelimit") != `"test";r=1;t=1800` {
				t.Fatalf("%v, %v", r, err)
			}
			_, err = c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("fail")))
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("%v, want that of the handler", err)
			}
			_, err = c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("a")))
			denied(t, err)
		})
	}
}

// TestSharedError: the calls of many clients end with shared errors. Each client gets its own
// fields, once, and nothing is written to the errors.
func TestSharedError(t *testing.T) {
	const clients, calls = 16, 200
	var shared [calls]*connect.Error
	for n := range shared {
		shared[n] = connect.NewError(connect.CodeNotFound, errors.New("of the handler"))
	}
	s := httptest.NewServer(connect.NewUnaryHandler(unary, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		n, err := strconv.Atoi(r.Msg.Value)
		return nil, cmp.Or[error](err, shared[n])
	}, connect.WithInterceptors(connectlimit.Interceptor(guard(t, fmt.Sprint(calls, "/h"), grpclimit.MetadataKey("x-client"), grpclimit.Options{})))))
	defer s.Close()
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		var group sync.WaitGroup
		for i := range clients {
			c := connect.NewClient[text, text](s.Client(), s.URL+unary, options...)
			group.Go(func() {
				for n := range calls {
					r := connect.NewRequest(wrapperspb.String(strconv.Itoa(n)))
					r.Header().Set("X-Client", fmt.Sprint(name, i))
					_, err := c.CallUnary(t.Context(), r)
					var e *connect.Error
					if !errors.As(err, &e) || e.Code() != connect.CodeNotFound {
						t.Errorf("%s: %v, want that of the handler", name, err)
						return
					}
					if got, want := e.Meta()["Ratelimit"], fmt.Sprintf(`"test";r=%d;t=`, calls-1-n); len(got) != 1 || !strings.HasPrefix(got[0], want) {
						t.Errorf("%s: call %d of client %d has the field %q, want %s…", name, n, i, got, want)
						return
					}
				}
			})
		}
		group.Wait()
	}
	for _, e := range shared {
		if len(e.Meta()) != 0 {
			t.Errorf("the handler's error has %v", e.Meta())
		}
	}
}

// denied checks the error of a call that was denied under 2/h.
func denied(t *testing.T, err error) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != connect.CodeResourceExhausted {
		t.Fatalf("%v, want resource_exhausted", err)
	}
	if got := e.Meta()["Retry-After"]; len(got) != 1 || got[0] != "1800" || len(e.Meta()["Ratelimit-Policy"]) != 1 {
		t.Errorf("fields %v", e.Meta())
	}
	var wait time.Duration
	for _, d := range e.Details() {
		if v, err := d.Value(); err == nil {
			if info, ok := v.(*errdetails.RetryInfo); ok {
				wait = info.GetRetryDelay().AsDuration()
			}
		}
	}
	if len(e.Details()) != 3 || wait < 1700*time.Second || wait > 1800*time.Second {
		t.Errorf("%d details, retry after %v", len(e.Details()), wait)
	}
}

// TestOpening holds streams of each form to the limit when they open.
func TestOpening(t *testing.T) {
	s := serve(t, guard(t, "1/h", grpclimit.PeerKey(), grpclimit.Options{}))
	for i, want := range []connect.Code{0, connect.CodeResourceExhausted} {
		var got error
		stream, err := connect.NewClient[text, text](s.Client(), s.URL+server).CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("a")))
		if got = err; err == nil {
			n := 0
			for stream.Receive() {
				n++
			}
			if got = stream.Err(); got == nil && n != 3 {
				t.Errorf("%d messages", n)
			}
			if stream.ResponseHeader().Get("Ratelimit") == "" {
				t.Errorf("no fields: %v", stream.ResponseHeader())
			}
			_ = stream.Close()
		}
		if want == 0 && got != nil || want != 0 && connect.CodeOf(got) != want {
			t.Errorf("stream %d: %v", i, got)
		}
	}
}

// TestMessages: each message of a stream is held to the limit, and a denied one ends the
// stream.
func TestMessages(t *testing.T) {
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, guard(t, "3/h", grpclimit.PeerKey(), grpclimit.Options{Messages: true}))
			stream := connect.NewClient[text, text](s.Client(), s.URL+bidi, options...).CallBidiStream(t.Context())
			var err error
			passed := 0
			for range 5 {
				if err = stream.Send(wrapperspb.String("a")); err != nil {
					break
				}
				if _, err = stream.Receive(); err != nil {
					break
				}
				passed++
			}
			if passed != 2 || connect.CodeOf(err) != connect.CodeResourceExhausted { // opening the stream takes one of three
				t.Errorf("%d messages passed, then %v", passed, err)
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
		})
	}
}

// TestClientStream: a stream ends at the message that is denied, before the handler gets
// that.
func TestClientStream(t *testing.T) {
	s := serve(t, guard(t, "3/h", grpclimit.PeerKey(), grpclimit.Options{Messages: true}))
	stream := connect.NewClient[text, text](s.Client(), s.URL+client).CallClientStream(t.Context())
	for range 5 {
		if err := stream.Send(wrapperspb.String("a")); err != nil {
			break
		}
	}
	if _, err := stream.CloseAndReceive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v", err)
	}
}

// TestRules holds calls to rules that look at the method and at metadata.
func TestRules(t *testing.T) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules": [{"name": "api", "match": {"grpc.method": "Unary"}, "key": ["header.x-api-key"], "on_missing": "deny", "limits": ["1/h"]}]}`), policy.Options{})
	g, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, g)
	c := connect.NewClient[text, text](s.Client(), s.URL+unary)
	for _, try := range []struct {
		key  string
		want connect.Code
	}{{"a", 0}, {"a", connect.CodeResourceExhausted}, {"b", 0}, {"", connect.CodePermissionDenied}} {
		r := connect.NewRequest(wrapperspb.String("x"))
		if try.key != "" {
			r.Header().Set("X-Api-Key", try.key)
		}
		_, err := c.CallUnary(t.Context(), r)
		if try.want == 0 && err != nil || try.want != 0 && connect.CodeOf(err) != try.want {
			t.Errorf("key %q: %v, want %v", try.key, err, try.want)
		}
	}
}

// TestMetadata holds calls to rules that look at the host and at binary metadata, in
// each protocol and each spelling.
func TestMetadata(t *testing.T) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules": [
		{"name": "host", "match": {"host": "127.0.0.1"}, "unless": {"header.x-id-bin": true}, "block": true},
		{"name": "id", "key": ["header.x-id-bin"], "limits": ["6/h"]}]}`), policy.Options{})
	g, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, g)
	call := func(options []connect.ClientOption, ids ...string) connect.Code {
		r := connect.NewRequest(wrapperspb.String("x"))
		for _, id := range ids {
			r.Header().Add("X-Id-Bin", id)
		}
		if _, err := connect.NewClient[text, text](s.Client(), s.URL+unary, options...).CallUnary(t.Context(), r); err != nil {
			return connect.CodeOf(err)
		}
		return 0
	}
	for name, options := range protocols {
		if got := call(options); got != connect.CodePermissionDenied {
			t.Errorf("%s: the rule for the host does not hold: %v", name, got)
		}
		for _, id := range []string{"YQ", "YQ=="} { // two spellings of a
			if got := call(options, id); got != 0 {
				t.Errorf("%s, %s: %v", name, id, got)
			}
		}
		if got := call(options, "YQ", "Yg"); got != connect.CodeInvalidArgument {
			t.Errorf("%s: two values: %v", name, got)
		}
	}
	for name, options := range protocols {
		for _, id := range []string{"YQ", "YQ==", "YR", "YR=="} { // the last bits of base64 do not count
			if got := call(options, id); got != connect.CodeResourceExhausted {
				t.Errorf("%s, %s is not the client that has used up its limit: %v", name, id, got)
			}
		}
		if got := call(options, "YQ,Yg"); got != connect.CodeInvalidArgument {
			t.Errorf("%s: two values in a line: %v", name, got)
		}
	}
}
