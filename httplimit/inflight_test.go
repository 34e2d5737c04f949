package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A crowd is a handler that holds its requests until the test lets them go, and counts them.
type crowd struct {
	now, most atomic.Int64
	hold      time.Duration
	status    int
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-time.After(c.hold):
	case <-r.Context().Done():
	}
	if r.URL.Path == "/panic" {
		panic(http.ErrAbortHandler)
	}
	if c.status > 0 {
		w.WriteHeader(c.status)
	}
}

// guards returns two guards with a limit of two in flight: by a limiter, and by rules.
func guards(t *testing.T, o httplimit.Options, wait string) map[string]func(http.Handler) http.Handler {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	l := made.Limiter(t, store, "limiter", stint.InFlight(2), stint.PerHour(1000).WithAlgorithm(stint.SlidingLog))
	limiter, err := o, error(nil)
	if wait != "" {
		if limiter.MaxWait, err = time.ParseDuration(wait); err != nil {
			t.Fatal(err)
		}
		wait = fmt.Sprintf(`,"wait":%q`, wait)
	}
	all := make(map[string]func(http.Handler) http.Handler)
	if all["limiter"], err = httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), limiter); err != nil {
		t.Fatal(err)
	}
	rules := made.Rules(t, `{"rules":[{"name":"pool","key":["ip"],"limits":["2 in flight","1000/h sliding_log"]`+wait+`}]}`)
	p := made.Policy(t, store, rules, policy.Options{})
	if all["rules"], err = httplimit.NewPolicy(p, httplimit.ClientIP{}, o); err != nil {
		t.Fatal(err)
	}
	return all
}

func ask(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	defer func() { _ = recover() }() // the handler panics
	h.ServeHTTP(w, r)
	return w
}

// TestInFlight: a third request is denied at once, with a retry after of a second and the
// fields of the other limit alone, and a place is given back however its request ends, even
// by a panic.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, guard := range guards(t, httplimit.Options{}, "") {
			c := &crowd{hold: time.Minute}
			h := guard(c)
			for round, path := range []string{"/", "/panic", "/"} {
				var all sync.WaitGroup
				for range 2 {
					all.Go(func() { ask(h, path) })
				}
				synctest.Wait()
				w := ask(h, "/")
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || w.Header().Get("Ratelimit") != "" {
					t.Errorf("%s, round %d: %d %v", name, round, w.Code, w.Header())
				}
				all.Wait()
			}
			c.hold = 0
			w := ask(h, "/")
			policies := w.Header().Get("Ratelimit-Policy")
			if w.Code != http.StatusOK || !strings.Contains(policies, "q=1000;w=3600") || strings.Contains(policies, ",") {
				t.Errorf("%s: %d, policies %q", name, w.Code, policies)
			}
			if remaining := w.Header().Get("Ratelimit"); !strings.Contains(remaining, ";r=993;") {
				t.Errorf("%s: %q: want seven charged, and no denial", name, remaining)
			}
			if most := c.most.Load(); most != 2 {
				t.Errorf("%s: %d at once", name, most)
			}
		}
	})
}
