package benchmarks_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A middleware is a way to limit a handler by address. make returns it with
// every address held to plenty.
type middleware struct {
	name string
	make func(testing.TB) func(http.Handler) http.Handler
}

var middlewares = []middleware{
	{"none", func(testing.TB) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return next }
	}},
	{"httplimit.New,draft11", newGuard(httplimit.Draft11)},
	{"httplimit.New,x-ratelimit", newGuard(httplimit.XRateLimit)},
	{"httplimit.New,no-fields", newGuard(httplimit.NoFields)},
	{"httplimit.NewPolicy,draft11", newPolicyGuard(httplimit.Draft11)},
	{"httplimit.NewPolicy,no-fields", newPolicyGuard(httplimit.NoFields)},
	{"httprate", func(testing.TB) func(http.Handler) http.Handler {
		return httprate.LimitBy(int(plentyCount), plentyPeriod, httprate.KeyByIP) //nolint:staticcheck // deprecated for servers behind proxies; here the peer is the client
	}},
	{"tollbooth", func(testing.TB) func(http.Handler) http.Handler {
		l := tollbooth.NewLimiter(1e9, nil).SetIPLookups([]string{"RemoteAddr"})
		return func(next http.Handler) http.Handler { return tollbooth.LimitHandler(l, next) }
	}},
	{"ulule", func(testing.TB) func(http.Handler) http.Handler {
		l := limiter.New(ululestore.NewStore(), limiter.Rate{Period: plentyPeriod, Limit: plentyCount})
		return stdlib.NewMiddleware(l).Handler
	}},
}

func newGuard(fields httplimit.Dialect) func(testing.TB) func(http.Handler) http.Handler {
	return func(t testing.TB) func(http.Handler) http.Handler {
		return must(httplimit.New(newStint(t, addresses, plenty()), httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{Dialect: fields}))(t)
	}
}

func newPolicyGuard(fields httplimit.Dialect) func(testing.TB) func(http.Handler) http.Handler {
	return func(t testing.TB) func(http.Handler) http.Handler {
		rules := must(policy.Parse(fmt.Appendf(nil, `{"rules": [{"name": "all", "key": ["ip"], "limits": [%q]}]}`, plenty().String())))(t)
		p := must(policy.New(memstore.New(memstore.Options{}), rules, policy.Options{}))(t)
		return must(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{Dialect: fields}))(t)
	}
}

// addresses is how many clients there are.
const addresses = 1000

// discardWriter is a ResponseWriter that costs nothing, and remembers what was
// not let through.
type discardWriter struct {
	header  http.Header
	refused int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *discardWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.refused++
	}
}

var textPlain = []string{"text/plain"}

// smallHandler does as little as a handler can and be one.
func smallHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = textPlain
}

// BenchmarkMiddleware is a small handler behind each middleware, asked by a thousand
// addresses. The header is emptied before each request, since some add to what is there.
func BenchmarkMiddleware(b *testing.B) {
	requests := make([]*http.Request, addresses)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "http://server.example/", nil)
		requests[i].RemoteAddr = fmt.Sprintf("192.0.%d.%d:1234", i/250, i%250)
	}
	for _, m := range middlewares {
		b.Run("by="+m.name, func(b *testing.B) {
			h := m.make(b)(http.HandlerFunc(smallHandler))
			w := &discardWriter{header: make(http.Header)}
			for _, r := range requests { // every address has its place
				clear(w.header)
				h.ServeHTTP(w, r)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				clear(w.header)
				h.ServeHTTP(w, requests[i%addresses])
			}
			if w.refused > 0 {
				b.Errorf("%d were refused", w.refused)
			}
		})
	}
}
