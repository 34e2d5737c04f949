package fiberlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func guard(t *testing.T, text string, key httplimit.Key, o httplimit.Options) fiber.Handler {
	t.Helper()
	limit := made.Limit(t, text)
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}) // seconds are compared
	t.Cleanup(func() { store.Close() })
	l := made.Limiter(t, store, "test", limit)
	g, err := httplimit.New(l, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return fiberlimit.Guard(g)
}

func all(*http.Request) (string, bool) { return "", true }

// wrapped is a listener whose connections embed those of the system, as netutil.LimitListener's do.
type wrapped struct{ net.Listener }

func (w wrapped) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	return struct{ net.Conn }{conn}, err
}

// serve runs an app on a port of its own, and returns its address.
func serve(t testing.TB, app *fiber.App) string {
	t.Helper()
	ln := freeport.Listen(t)
	done := make(chan error, 1)
	go func() { done <- app.Listener(wrapped{ln}, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // or Shutdown may wait for them for 90 s
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func get(t testing.TB, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestSeen compares what a key can see with what was sent.
func TestSeen(t *testing.T) {
	var saw string
	key := func(r *http.Request) (string, bool) {
		saw = fmt.Sprint(r.Method, r.Host != "", r.URL.Path, r.URL.RawQuery, r.Header["X-Forwarded-For"], r.Header["X-Api-Key"], strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"))
		return "", true
	}
	app := fiber.New()
	app.Use("/*", guard(t, "10/h", key, httplimit.Options{}))
	app.Get("/*", func(c fiber.Ctx) error { return c.SendString("hello") })
	get(t, serve(t, app)+"/a%2Fb?q=1", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "192.0.2.2", "x-api-key", "k")
	if want := "GETtrue/a/bq=1[192.0.2.1 192.0.2.2][k]true"; strings.ReplaceAll(saw, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("saw %s, want %s", saw, want)
	}
}

// TestPath compares the path that a guard sees with the handler that fiber finds for a
// target: both must mean the same.
func TestPath(t *testing.T) {
	for _, test := range []struct {
		config       fiber.Config
		target       string
		saw, handler string // "" for a request that gets 400
	}{
		{fiber.Config{}, "/login", "/login", "login"},
		{fiber.Config{}, "/LOGIN?Q=1", "/login?Q=1", "login"},
		{fiber.Config{}, "/login///", "/login", "login"},
		{fiber.Config{}, "/login#x", "/login", "login"},
		{fiber.Config{}, "/login?q=1#x?y", "/login?q=1", "login"},
		{fiber.Config{}, "/#/login", "/", "rest"},
		{fiber.Config{}, "http://h/login", "/login", "login"},
		{fiber.Config{}, "/a%2FLogin", "/a%2flogin", "rest"},
		{fiber.Config{}, "/CAFÉ", "/caf%C3%89", "rest"},
		{fiber.Config{}, "login", "", ""},
		{fiber.Config{}, "a:/login", "", ""},
		{fiber.Config{}, "//", "", ""},
		{fiber.Config{}, "/%zz", "", ""},
		{fiber.Config{CaseSensitive: true}, "/LOGIN", "/LOGIN", "rest"},
		{fiber.Config{CaseSensitive: true}, "/login/", "/login", "login"},
		{fiber.Config{StrictRouting: true}, "/LOGIN", "/login", "login"},
		{fiber.Config{StrictRouting: true}, "/login/", "/login/", "rest"},
		{fiber.Config{UnescapePath: true}, "/%4cogin", "/login", "login"},
		{fiber.Config{UnescapePath: true}, "%2flogin", "/login", "login"},
		{fiber.Config{UnescapePath: true}, "/login%2f", "/login", "login"},
		{fiber.Config{UnescapePath: true}, "/a+b%2525", "/a%20b%2525", "rest"},
		{fiber.Config{UnescapePath: true}, "/%ff", "/%FF", "rest"},
	} {
		saw, handler := "", ""
		app := fiber.New(test.config)
		app.Use("/*", guard(t, "10/h", func(r *http.Request) (string, bool) {
			if saw = r.URL.EscapedPath(); r.URL.RawQuery != "" {
				saw += "?" + r.URL.RawQuery
			}
			return "", true
		}, httplimit.Options{}))
		app.Get("/login", func(c fiber.Ctx) error { handler = "login"; return c.SendString("hello") })
		app.Get("/*", func(c fiber.Ctx) error { handler = "rest"; return c.SendString("hello") })
		status := raw(t, serve(t, app), test.target)
		if saw != test.saw || handler != test.handler || (status == 400) != (test.handler == "") {
			t.Errorf("case sensitive %t, strict %t, unescaped %t, %s: the guard saw %q, the handler was %q, status %d; want %q and %q",
				test.config.CaseSensitive, test.config.StrictRouting, test.config.UnescapePath, test.target, saw, handler, status, test.saw, test.handler)
		}
	}
}

// TestEveryTarget has the guard, as documents install it, see each request that a
// handler of /* gets.
func TestEveryTarget(t *testing.T) {
	asked, reached := 0, 0
	app := fiber.New()
	app.Use("/*", guard(t, "100/h", func(*http.Request) (string, bool) { asked++; return "", true }, httplimit.Options{}))
	app.All("/*", func(c fiber.Ctx) error { reached++; return c.SendString("hello") })
	url := serve(t, app)
	for _, target := range []string{"/", "/login", "login", "*", "//", "?x", "#x", "a:b", ".", "../login", "%2flogin", `\login`, "/a//../b"} {
		raw(t, url, target)
		if reached > asked {
			t.Fatalf("%s reached the handler past the guard", target)
		}
	}
	if reached == 0 {
		t.Error("no request reached the handler")
	}
}

// raw asks for a target as it stands, and returns the status of the answer.
func raw(t testing.TB, url, target string) (status int) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", target)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestMany gives each of a hundred clients what is theirs, many at once: no key is
// read from memory that another request uses meanwhile.
func TestMany(t *testing.T) {
	app := fiber.New()
	app.Use("/*", guard(t, "5/h", httplimit.HeaderKey("X-Api-Key"), httplimit.Options{}))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	url := serve(t, app)
	var passed [100]atomic.Int64
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for n := range 100 {
				if w, _ := get(t, url, "X-Api-Key", fmt.Sprintf("customer-%d", (n+worker*7)%100)); w.StatusCode == 200 {
					passed[(n+worker*7)%100].Add(1)
				}
			}
		})
	}
	group.Wait()
	for i := range passed {
		if n := passed[i].Load(); n != 5 {
			t.Errorf("%d requests of customer %d passed, want 5", n, i)
		}
	}
}

// pool is a guard by rules with one place.
func pool(t *testing.T) fiber.Handler {
	t.Helper()
	rules := made.Rules(t, `{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"]}]}`)
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	p := made.Policy(t, store, rules, policy.Options{})
	g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fiberlimit.Guard(g)
}

// TestBytes: a body that is a stream has an unknown length, as one that an ErrorHandler writes and a
// connection that was taken over: it costs what was reserved.
func TestBytes(t *testing.T) {
	rules := made.Rules(t, `{"rules": [{"name": "bytes", "key": [], "limits": ["1000/h"], "cost": {"response": "bytes", "reserve": 100}}]}`)
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	p := made.Policy(t, store, rules, policy.Options{})
	g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use("/*", fiberlimit.Guard(g))
	app.Get("/text", func(c fiber.Ctx) error { return c.SendString(strings.Repeat("x", 30)) })
	app.Get("/stream", func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("some text")) })
	app.Get("/hijack", func(c fiber.Ctx) error {
		c.RequestCtx().Hijack(func(net.Conn) {})
		return nil
	})
	app.Get("/error", func(fiber.Ctx) error { return fiber.NewError(http.StatusTeapot, strings.Repeat("x", 300)) })
	url, left := serve(t, app), int64(1000)
	for path, cost := range map[string]int64{"/text": 30, "/stream": 100, "/hijack": 100, "/error": 100} {
		get(t, url+path)
		left -= cost
		var r policy.Result
		if err := p.Peek(t.Context(), policy.Map{}, 1, &r); err != nil || r.Decision.Remaining != left {
			t.Errorf("after %s: %d left, want %d, %v", path, r.Decision.Remaining, left, err)
		}
	}
}

// untilOK asks until it may pass: a place is given back once a response has been sent.
func untilOK(t *testing.T, url string) {
	t.Helper()
	for range 10_000 {
		if w, _ := get(t, url); w.StatusCode == http.StatusOK {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("its place is not given back")
}

// TestInFlight keeps the place of a response that goes on after its handler has returned: a
// body that is a stream, and a connection that was taken over. Under each of two guards.
func TestInFlight(t *testing.T) {
	for name, guard := range map[string]fiber.Handler{"limiter": guard(t, "1 in flight", all, httplimit.Options{}), "policy": pool(t)} {
		t.Run(name, func(t *testing.T) {
			app := fiber.New()
			app.Use("/*", recover.New(), guard, pool(t))
			began, end := make(chan bool, 1), make(chan bool)
			app.Get("/stream", func(c fiber.Ctx) error {
				return c.SendStreamWriter(func(w *bufio.Writer) {
					fmt.Fprint(w, "first")
					_ = w.Flush()
					began <- true
					<-end
				})
			})
			app.Get("/hijack", func(c fiber.Ctx) error {
				c.RequestCtx().Hijack(func(net.Conn) {
					began <- true
					<-end
				})
				return nil
			})
			app.Get("/panic", func(fiber.Ctx) error { panic("a handler") })
			app.Get("/error", func(c fiber.Ctx) error {
				_ = c.SendStream(strings.NewReader("never sent"))
				return fiber.ErrTeapot
			})
			app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
			url := serve(t, app)
			for range 2 {
				for _, path := range []string{"/stream", "/hijack"} {
					conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
					<-began
					if w, _ := get(t, url); w.StatusCode != http.StatusTooManyRequests {
						t.Errorf("beside %s: %d", path, w.StatusCode)
					}
					end <- true
					untilOK(t, url)
					_ = conn.Close()
				}
			}
			for _, path := range []string{"/error", "/panic"} {
				get(t, url+path)
				untilOK(t, url)
			}
			for _, fields := range []string{"HTTP/1.1\r\nConnection: close", "HTTP/1.0"} { // fasthttp never calls the handler
				conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "GET /hijack %s\r\nHost: h\r\n\r\n", fields)
				_, _ = io.ReadAll(conn)
				_ = conn.Close()
				untilOK(t, url)
			}
		})
	}
}
