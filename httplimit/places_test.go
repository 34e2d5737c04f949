package httplimit_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// dial asks for a path on a connection of its own, and returns the status and the
// connection, which is open.
func dial(t *testing.T, address, path string) (code int, conn net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	if _, err := fmt.Fscanf(conn, "HTTP/1.1 %d", &code); err != nil {
		t.Fatal(err)
	}
	return code, conn
}

// TestInFlightHijacked has some handlers take over their connections and return, and others
// keep them until they return. Twenty requests ask for two places. Each place is free when
// its connection is closed and its handler has returned, not before.
func TestInFlightHijacked(t *testing.T) {
	all := guards(t, httplimit.Options{}, "")
	all["rules that settle"] = settling(t)
	for name, guard := range all {
		for how, outer := range map[string]func(http.ResponseWriter) http.ResponseWriter{
			"bare":    func(w http.ResponseWriter) http.ResponseWriter { return w },
			"wrapped": func(w http.ResponseWriter) http.ResponseWriter { return plainWriter{w, w} },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				open, end := make(chan net.Conn, 20), make(chan bool)
				h := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/" {
						return
					}
					hijack := http.NewResponseController(w).Hijack
					if r.URL.Path == "/asserted" {
						hijack = w.(http.Hijacker).Hijack
					}
					conn, _, err := hijack()
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
					if r.URL.Path == "/slow" {
						_ = conn.Close()
						<-end
						return
					}
					open <- conn
				}))
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(outer(w), r) }))
				defer s.Close()
				address := s.Listener.Addr().String()
				until := func(path string, want int) (conn net.Conn) {
					t.Helper()
					for code, tries := 0, 0; code != want; tries++ {
						if tries == 1000 {
							t.Fatalf("%s: %d, want %d", path, code, want)
						}
						time.Sleep(time.Millisecond) // a handler that has answered may not have returned yet
						code, conn = dial(t, address, path)
					}
					return conn
				}
				passed := 0
				for i := range 20 {
					if code, _ := dial(t, address, [...]string{"/controlled", "/asserted"}[i%2]); code == http.StatusSwitchingProtocols {
						passed++
					}
				}
				if passed != 2 {
					t.Fatalf("%d connections are open, of 2", passed)
				}
				for range 2 {
					until("/", http.StatusTooManyRequests)
					conn := <-open
					for range 2 { // closing twice gives the place back once
						_ = conn.Close()
					}
					until("/", http.StatusOK)
					until("/slow", http.StatusSwitchingProtocols) // the connection is closed, but the handler has not returned
					until("/", http.StatusTooManyRequests)
					end <- true
					until("/controlled", http.StatusSwitchingProtocols)
				}
				for range 2 {
					_ = (<-open).Close() // the guard serves the next test
				}
			})
		}
	}
}

// settling returns rules with a limit in flight, and one that looks at the response.
func settling(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules":[{"name":"pool","key":["ip"],"limits":["2 in flight"]},
		{"name":"failures","key":["ip"],"limits":["1000/h"],"count":{"status":[401]}}]}`), policy.Options{})
	guard := sound(t)(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{}))
	return guard
}
