package library

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// http measures what stands in front of HTTP: the middleware in this process,
// then /v1/check and the proxy in processes of their own.
func (f *figures) http() error {
	if err := f.middleware(); err != nil {
		return fmt.Errorf("middleware: %w", err)
	}
	if runtime.GOOS != "linux" {
		fmt.Fprint(f.Out, "\nThe resources of other processes are known only on Linux: there are no figures for servers.\n")
		return nil
	}
	return f.servers()
}

// A middleware is a way to limit a handler by address. make returns it with
// every address held to plenty.
type middleware struct {
	name   string
	allocs float64 // the most that is promised; below 0 for those of others
	make   func() (func(http.Handler) http.Handler, error)
}

const bareHandler = "the handler alone"

var middlewares = []middleware{
	{bareHandler, -1, func() (func(http.Handler) http.Handler, error) {
		return func(next http.Handler) http.Handler { return next }, nil
	}},
	{"httplimit.New, draft 11", 2, newGuard(httplimit.Draft11)},
	{"httplimit.New, X-RateLimit", 2, newGuard(httplimit.XRateLimit)},
	{"httplimit.New, no fields", 0, newGuard(httplimit.NoFields)},
	{"httplimit.NewPolicy, one rule, draft 11", 2, newPolicyGuard(httplimit.Draft11)},
	{"httplimit.NewPolicy, one rule, no fields", 0, newPolicyGuard(httplimit.NoFields)},
	{"go-chi/httprate LimitByIP", -1, func() (func(http.Handler) http.Handler, error) {
		return httprate.LimitBy(int(plentyCount), plentyPeriod, httprate.KeyByIP), nil //nolint:staticcheck // deprecated for servers behind proxies; here the peer is the client
	}},
	{"didip/tollbooth LimitHandler", -1, func() (func(http.Handler) http.Handler, error) {
		l := tollbooth.NewLimiter(1e9, nil).SetIPLookups([]string{"RemoteAddr"})
		return func(next http.Handler) http.Handler { return tollbooth.LimitHandler(l, next) }, nil
	}},
	{"ulule/limiter stdlib", -1, func() (func(http.Handler) http.Handler, error) {
		l := limiter.New(ululestore.NewStore(), limiter.Rate{Period: plentyPeriod, Limit: plentyCount})
		return stdlib.NewMiddleware(l).Handler, nil
	}},
}

func newGuard(fields httplimit.Dialect) func() (func(http.Handler) http.Handler, error) {
	return func() (func(http.Handler) http.Handler, error) {
		l, _, err := newStint(addresses, plenty())
		if err != nil {
			return nil, err
		}
		return httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{Dialect: fields})
	}
}

func newPolicyGuard(fields httplimit.Dialect) func() (func(http.Handler) http.Handler, error) {
	return func() (func(http.Handler) http.Handler, error) {
		rules, err := policy.Parse(fmt.Appendf(nil, `{"rules": [{"name": "all", "key": ["ip"], "limits": [%q]}]}`, plenty().String()))
		if err != nil {
			return nil, err
		}
		p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
		if err != nil {
			return nil, err
		}
		return httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{Dialect: fields})
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

// contender times the middleware over the small handler. The header is emptied
// before each request, since some add to what is there.
func (m middleware) contender() (contender, error) {
	wrap, err := m.make()
	if err != nil {
		return contender{}, fmt.Errorf("%s: %w", m.name, err)
	}
	h := wrap(http.HandlerFunc(smallHandler))
	requests := make([]*http.Request, addresses)
	for i := range requests {
		r, err := http.NewRequest(http.MethodGet, "http://server.example/", nil)
		if err != nil {
			return contender{}, err
		}
		r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:1234", i/250, i%250)
		requests[i] = r
	}
	at := 0
	run := func(_, n int) int {
		w := discardWriter{header: make(http.Header)}
		for range n {
			clear(w.header)
			h.ServeHTTP(&w, requests[at%addresses])
			at++
		}
		return n - w.refused
	}
	run(0, 2*addresses) // every address has its place
	return contender{name: m.name, cores: 1, ours: m.allocs >= 0, run: run}, nil
}

// middleware measures what each way to limit by address adds to a handler.
func (f *figures) middleware() error {
	var contenders []contender
	for _, m := range middlewares {
		c, err := m.contender()
		if err != nil {
			return err
		}
		contenders = append(contenders, c)
	}
	rs, err := f.race(contenders)
	if err != nil {
		return err
	}
	bare, _ := rs.of(bareHandler, 1)
	rows := [][]string{{fmt.Sprintf("middleware, %d addresses", addresses), "ns with the handler", "least", "ns added", "allocs added", "B added"}}
	for i, r := range rs {
		added, allocs := r.minus(bare), clean(r.allocs-bare.allocs)
		rows = append(rows, []string{r.name, report.Number(r.median()), report.Number(r.least()), report.Number(added), report.Number(allocs), report.Number(clean(r.bytes - bare.bytes))})
		if most := middlewares[i].allocs; most >= 0 {
			f.AtMost(1.5, added/1000, " µs", "%s adds to a handler", r.name)
			f.AtMost(most, allocs, "", "%s, allocations added", r.name)
		}
	}
	f.Table(rows)
	return nil
}

// minus returns how much longer r takes than other, round by round.
func (r result) minus(other result) float64 {
	more := make([]float64, len(r.rounds))
	for i := range more {
		more[i] = r.rounds[i] - other.rounds[i]
	}
	return report.Median(r.good(more, other))
}

// clean rounds to hundredths: a chunk of requests may share one allocation.
func clean(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }
