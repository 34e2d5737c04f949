package grpclimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
)

// capture is a transport that keeps the metadata of a call's answer.
type capture struct{ head metadata.MD }

func (*capture) Method() string                   { return "/a.B/C" }
func (c *capture) SetHeader(md metadata.MD) error { c.head = metadata.Join(c.head, md); return nil }
func (c *capture) SendHeader(metadata.MD) error   { return nil }
func (c *capture) SetTrailer(metadata.MD) error   { return nil }

// TestFields: the metadata is the same as the header fields that package httplimit sends for
// the same requests at the same moments.
func TestFields(t *testing.T) {
	for _, limits := range [][]string{
		{"3/h"}, {"10/s burst 3"}, {"2 per 100ms"}, {"3/1m fixed_window"}, {"2/1h sliding_log"}, {"2/1m token_bucket_interval burst 5"},
		{"3/s", "4/h sliding_counter"}, {"5/m sliding_buckets", "every 20s"}, {"3/s", "3/h"}, {"4_000_000_000_000_000 per day in UTC"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var both [2][]stint.Limit
			for i := range both {
				for _, text := range limits {
					l := made.Limit(t, text)
					both[i] = append(both[i], l)
				}
			}
			guard, err := grpclimit.NewServer(limiter(t, both[0]...), grpclimit.All(), grpclimit.Options{MaxWait: -1})
			if err != nil {
				t.Fatal(err)
			}
			all := func(*http.Request) (string, bool) { return "", true }
			middleware, err := httplimit.New(limiter(t, both[1]...), all, httplimit.Options{MaxWait: -1})
			if err != nil {
				t.Fatal(err)
			}
			handler := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for call := range 7 {
				c := &capture{}
				_, _ = guard.UnaryInterceptor(grpc.NewContextWithServerTransportStream(t.Context(), c), nil, &grpc.UnaryServerInfo{FullMethod: c.Method()},
					func(context.Context, any) (any, error) { return nil, nil })
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
					got, want := "", w.Header().Get(name)
					if values := c.head.Get(name); len(values) > 0 {
						got = values[0]
					}
					if got != want {
						t.Errorf("%q, call %d: %s is %s, over HTTP %s", limits, call, name, got, want)
					}
				}
				time.Sleep(time.Duration(call) * 130 * time.Millisecond)
			}
		})
	}
}
