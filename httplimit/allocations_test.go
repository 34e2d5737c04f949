package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stint-dev/stint/httplimit"
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

// TestAllocations: a decision makes no more allocations than it may.
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
			if got := testing.AllocsPerRun(1000, func() { clear(w.h); h.ServeHTTP(w, r) }); got > most {
				t.Errorf("%s, %s: %v allocations, at most %v", name, peer, got, most)
			}
		}
	}
}
