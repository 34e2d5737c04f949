package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/grpclimit/connectlimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestSettled: what a call has cost is settled by its code, and by the fields of its header,
// its trailer and its error, in each protocol.
func TestSettled(t *testing.T) {
	rules := made.Rules(t, `{"rules": [
		{"name": "failures", "key": [], "limits": ["1000 per hour sliding_log"], "count": {"status": [404]}},
		{"name": "tokens", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"response": "header.x-tokens", "reserve": 100}}]}`)
	do := func(what string, header, trailer http.Header) error {
		switch what {
		case "header":
			header.Set("X-Tokens", "3")
		case "trailer":
			trailer.Set("X-Tokens", "4")
		case "error":
			e := connect.NewError(connect.CodeNotFound, errors.New("of the handler"))
			e.Meta().Set("X-Tokens", "5")
			return e
		}
		return nil
	}
	for name, options := range protocols {
		for what, want := range map[string][2]int64{"header": {0, 3}, "trailer": {0, 4}, "error": {1, 5}, "nothing": {0, 100}} {
			p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), rules, policy.Options{})
			guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{OnError: func(_ context.Context, _ string, err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			with := connect.WithInterceptors(connectlimit.Interceptor(guard))
			mux := http.NewServeMux()
			mux.Handle(unary, connect.NewUnaryHandler(unary, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
				a := connect.NewResponse(r.Msg)
				if err := do(what, a.Header(), a.Trailer()); err != nil {
					return nil, err
				}
				return a, nil
			}, with))
			mux.Handle(server, connect.NewServerStreamHandler(server, func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
				return do(what, s.ResponseHeader(), s.ResponseTrailer())
			}, with))
			s := httptest.NewServer(mux)
			for i, form := range []string{unary, server} {
				c := connect.NewClient[text, text](s.Client(), s.URL+form, options...)
				if form == unary {
					a, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("a")))
					if says := fmt.Sprintf(`"tokens";r=%d;`, 1000-want[1]); err == nil && (len(a.Header()["Ratelimit"]) != 1 || !strings.HasPrefix(a.Header().Get("Ratelimit"), says)) {
						t.Errorf("%s, %s: %q, want %s", name, what, a.Header()["Ratelimit"], says)
					}
				} else if stream, err := c.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("a"))); err == nil {
					for stream.Receive() {
					}
				}
				var r policy.Result
				if err := p.Peek(t.Context(), policy.Map{}, 1, &r); err != nil {
					t.Fatal(err)
				}
				for k, one := range want {
					if used := 1000 - r.Rules[k].Remaining; used != one*int64(i+1) {
						t.Errorf("%s, %s, %s: %d used of %s, want %d", name, form, what, used, r.Rules[k].Rule, one*int64(i+1))
					}
				}
			}
			s.Close()
		}
	}
}
