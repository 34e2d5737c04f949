package httplimit_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

// sink is a ResponseWriter that costs nothing, with headers that are there
// already, as a handler's own would be.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

var plain = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = textPlain
})

var textPlain = []string{"text/plain"}

func benchmark(b *testing.B, h http.Handler, peers []string, headers ...string) {
	rs := make([]*http.Request, len(peers))
	for i, peer := range peers {
		rs[i] = request(peer, headers...)
		rs[i].URL.Path = "/service199/items"
	}
	w := &sink{make(http.Header)}
	for _, r := range rs {
		h.ServeHTTP(w, r)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		h.ServeHTTP(w, rs[i%len(rs)])
	}
}

// BenchmarkGuard is what the middleware adds to a handler, for one rule by
// address: compare with none.
func BenchmarkGuard(b *testing.B) {
	v4 := make([]string, 1000)
	v6 := make([]string, 300)
	for i := range v4 {
		v4[i] = fmt.Sprintf("192.0.%d.%d:1234", i/250, i%250)
	}
	for i := range v6 {
		v6[i] = fmt.Sprintf("[2001:db8:0:%x::1]:1234", i)
	}
	b.Run("none", func(b *testing.B) { benchmark(b, plain, v4) })
	for _, name := range httplimit.DialectNames() {
		dialect, _ := httplimit.ParseDialect(name)
		h := guard(b, limiter(b, nil, "1000000/s"), httplimit.Options{Dialect: dialect})(plain)
		b.Run("fields="+name+"/ip=4", func(b *testing.B) { benchmark(b, h, v4) })
		b.Run("fields="+name+"/ip=6", func(b *testing.B) { benchmark(b, h, v6) })
	}
	proxied, err := httplimit.New(limiter(b, nil, "1000000/s"), httplimit.IPKey(httplimit.ClientIP{
		Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.0.0/16")},
	}), httplimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("behind a proxy", func(b *testing.B) {
		benchmark(b, proxied(plain), v4, "X-Forwarded-For: 6.6.6.6, 203.0.113.9")
	})
	h := guard(b, limiter(b, nil, "1/h"), httplimit.Options{})(plain)
	b.Run("denied", func(b *testing.B) { benchmark(b, h, v4) })
	refund := guard(b, limiter(b, nil, "1000000/s"), httplimit.Options{Refund: func(int) bool { return false }, RefundWithin: 1e6})(plain)
	b.Run("refundable", func(b *testing.B) { benchmark(b, refund, v4) })
}

// BenchmarkRules is the guard by rules beside the plain one: by one rule for all
// requests, by one for a path, and by the last of 200 for paths and methods.
func BenchmarkRules(b *testing.B) {
	const limit = `"key": ["ip"], "limits": ["1000000/s"]}`
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name": "rule%d", "match": {"method": ["GET", "POST"], "path": "/service%d/**"}, `, i, i) + limit
	}
	all := []string{`{"name": "all", ` + limit}
	one := []string{`{"name": "one", "match": {"path": "/service199/**"}, ` + limit}
	peers := make([]string, 1000)
	for i := range peers {
		peers[i] = fmt.Sprintf("192.0.%d.%d:1234", i/250, i%250)
	}
	for _, dialect := range []httplimit.Dialect{httplimit.Draft11, httplimit.NoFields} {
		o := httplimit.Options{Dialect: dialect}
		fields := fmt.Sprintf("fields=%t/", dialect != httplimit.NoFields)
		b.Run(fields+"plain", func(b *testing.B) {
			benchmark(b, guard(b, limiter(b, nil, "1000000/s"), o)(plain), peers)
		})
		for _, c := range []struct {
			name  string
			rules []string
		}{{"one", all}, {"one for a path", one}, {"200", many}} {
			p := policyOf(b, memstore.New(memstore.Options{}), `{"rules": [`+strings.Join(c.rules, ",")+`]}`)
			g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, o)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fields+c.name, func(b *testing.B) { benchmark(b, g(plain), peers) })
		}
	}
}

// TestAllocations holds the hot path to what it may allocate.
func TestAllocations(t *testing.T) {
	for _, name := range httplimit.DialectNames() {
		dialect, _ := httplimit.ParseDialect(name)
		for _, peer := range []string{"192.0.2.7:1234", "[2001:db8::1]:1234"} {
			h := guard(t, limiter(t, nil, "1000000/s"), httplimit.Options{Dialect: dialect})(plain)
			r, w := request(peer), &sink{make(http.Header)}
			most := 2.0
			if dialect == httplimit.NoFields {
				most = 0
			}
			if got := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); got > most {
				t.Errorf("%s, %s: %v allocations, at most %v", name, peer, got, most)
			}
		}
	}
}
