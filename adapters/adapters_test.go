// Package adapters_test holds the adapters to frameworks to one table: what a guard is to do
// is the same in each. A crowd meets them in test/proof/adapters.
package adapters_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/adapters/ginlimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// What the routes of each app answer: to GET, hello at /, nothing at /users/:id and /other,
// 201 at /good, 401 at /late, by what the framework has for that, and a panic at /panic; to
// POST of wantBody, usage with 200 at /good and with 404 at /bad, and 401 at /late.
const (
	wantBody = `{"model":"m"}`
	goodBody = `{"usage":{"total_tokens":7}}`
	badBody  = `{"usage":{"total_tokens":8}}`
)

// apps make an app behind a guard, which notes each request that passes it, and return where
// the app is served.
var apps = []struct {
	name string
	open func(t *testing.T, g func(http.Handler) http.Handler, passed func()) (url string)
}{{"echo", byEcho}, {"gin", byGin}, {"fiber", byFiber}}

func byEcho(t *testing.T, g func(http.Handler) http.Handler, passed func()) string {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover(), echolimit.Guard(g), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { passed(); return next(c) }
	})
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	e.GET("/users/:id", func(*echo.Context) error { return nil })
	e.GET("/other", func(*echo.Context) error { return nil })
	e.GET("/good", func(c *echo.Context) error { return c.JSON(http.StatusCreated, "made") })
	late := func(*echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "who are you?") }
	e.GET("/late", late)
	e.POST("/late", late)
	e.GET("/panic", func(*echo.Context) error { panic("x") })
	e.GET("/taken", func(c *echo.Context) error {
		conn, _, err := c.Response().(http.Hijacker).Hijack()
		take(t, conn, err)
		return nil
	})
	e.POST("/good", func(c *echo.Context) error {
		sent(t, c.Request().Body)
		return c.String(http.StatusOK, goodBody)
	})
	e.POST("/bad", func(c *echo.Context) error { return c.String(http.StatusNotFound, badBody) })
	return serve(t, e)
}

func byGin(t *testing.T, g func(http.Handler) http.Handler, passed func()) string {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	r.Use(ginlimit.Guard(g), func(*gin.Context) { passed() })
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	r.GET("/users/:id", func(*gin.Context) {})
	r.GET("/other", func(*gin.Context) {})
	r.GET("/good", func(c *gin.Context) { c.JSON(http.StatusCreated, "made") })
	late := func(c *gin.Context) { c.Status(http.StatusOK); c.Status(http.StatusUnauthorized) }
	r.GET("/late", late)
	r.POST("/late", late)
	r.GET("/panic", func(*gin.Context) { panic("x") })
	r.GET("/taken", func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		take(t, conn, err)
	})
	r.POST("/good", func(c *gin.Context) {
		sent(t, c.Request.Body)
		c.String(http.StatusOK, goodBody)
	})
	r.POST("/bad", func(c *gin.Context) {
		c.Status(http.StatusNotFound)
		_, _ = c.Writer.WriteString(badBody[:9])
		c.Writer.Flush()
		_, _ = c.Writer.WriteString(badBody[9:])
	})
	return serve(t, r)
}

func byFiber(t *testing.T, g func(http.Handler) http.Handler, passed func()) string {
	app := fiber.New()
	app.Use("/*", fiberrecover.New(), fiberlimit.Guard(g), func(c fiber.Ctx) error { passed(); return c.Next() })
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	app.Get("/good", func(c fiber.Ctx) error { return c.Status(http.StatusCreated).JSON("made") })
	late := func(fiber.Ctx) error { return fiber.ErrUnauthorized }
	app.Get("/late", late)
	app.Post("/late", late)
	app.Get("/panic", func(fiber.Ctx) error { panic("x") })
	app.Post("/good", func(c fiber.Ctx) error {
		sent(t, strings.NewReader(string(c.Body())))
		return c.SendString(goodBody)
	})
	app.Post("/bad", func(c fiber.Ctx) error { return c.Status(http.StatusNotFound).SendString(badBody) })
	ln := freeport.Listen(t)
	done := make(chan error, 1)
	go func() { done <- app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
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

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// sent holds the body that a handler reads to what was sent.
func sent(t *testing.T, body io.Reader) {
	if text, err := io.ReadAll(body); err != nil || string(text) != wantBody {
		t.Errorf("the body is %q, %v", text, err)
	}
}

// take has a connection that a handler takes over stay open until its client closes it.
func take(t *testing.T, conn net.Conn, err error) {
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	go func() {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}()
}

// guard has a limit under a clock that stands still: seconds are compared.
func guard(t *testing.T, text string, key httplimit.Key, o httplimit.Options) func(http.Handler) http.Handler {
	t.Helper()
	limit := made.Limit(t, text)
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }})
	t.Cleanup(func() { store.Close() })
	l := made.Limiter(t, store, "test", limit)
	g, err := httplimit.New(l, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func all(*http.Request) (string, bool) { return "", true }

// ask returns the answer, whose body is read.
func ask(t *testing.T, method, url, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// A step is a request, and the status that it gets.
type step struct {
	path string
	want int
}

func steps(t *testing.T, method, url, body string, all []step) {
	t.Helper()
	for i, s := range all {
		if answer, _ := ask(t, method, url+s.path, body); answer.StatusCode != s.want {
			t.Errorf("request %d, %s: %d, want %d", i, s.path, answer.StatusCode, s.want)
		}
	}
}

// TestDenied denies, and nothing behind the guard runs.
func TestDenied(t *testing.T) {
	for _, app := range apps {
		t.Run(app.name, func(t *testing.T) {
			var reached atomic.Int64
			url := app.open(t, guard(t, "1/h", all, httplimit.Options{}), func() { reached.Add(1) })
			for i, want := range []int{200, 429} {
				w, body := ask(t, http.MethodGet, url, "")
				if w.StatusCode != want || w.Header.Get("RateLimit") == "" || (w.Header.Get("Retry-After") == "3600") != (want == 429) {
					t.Errorf("request %d: %d %v", i, w.StatusCode, w.Header)
				}
				if (body == "hello") != (want == 200) || strings.Contains(body, "Quota Exceeded") != (want == 429) {
					t.Errorf("request %d: %q", i, body)
				}
			}
			if n := reached.Load(); n != 1 {
				t.Errorf("%d requests passed the guard", n)
			}
		})
	}
}

// TestRoutes gives each route its own count, where the router has chosen one before the guard.
func TestRoutes(t *testing.T) {
	for _, app := range apps[:2] {
		t.Run(app.name, func(t *testing.T) {
			url := app.open(t, guard(t, "1/h", httplimit.RouteKey(), httplimit.Options{}), func() {})
			steps(t, http.MethodGet, url, "", []step{{"/users/1", 200}, {"/users/2", 429}, {"/other", 200}, {"/nowhere", 404}, {"/elsewhere", 429}})
		})
	}
}

// TestRefund gives back what succeeded, whatever a framework does to the status on the way,
// and not what an error or a panic ended. The fields say what remains after that.
func TestRefund(t *testing.T) {
	for _, app := range apps {
		t.Run(app.name, func(t *testing.T) {
			url := app.open(t, guard(t, "2/h", all, httplimit.Options{Settle: func(status int, _ http.Header, cost int64) int64 {
				if status < 400 {
					return 0
				}
				return cost
			}}), func() {})
			if w, _ := ask(t, http.MethodGet, url+"/good", ""); len(w.Header["Ratelimit"]) != 1 || !strings.Contains(w.Header.Get("RateLimit"), ";r=2;") {
				t.Errorf("after the refund: %q", w.Header["Ratelimit"])
			}
			steps(t, http.MethodGet, url, "", []step{{"/good", 201}, {"/good", 201}, {"/good", 201}, {"/late", 401}, {"/panic", 500}, {"/good", 429}})
		})
	}
}

// TestTaken has a connection that a handler takes over keep its place until it is closed.
func TestTaken(t *testing.T) {
	for _, app := range apps[:2] { // fiberlimit has a test of its own
		t.Run(app.name, func(t *testing.T) {
			url := app.open(t, guard(t, "1 in flight", all, httplimit.Options{}), func() {})
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET /taken HTTP/1.1\r\nHost: h\r\n\r\n")
			if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, " 101 ") {
				t.Errorf("%q, %v", line, err)
			}
			for range 20 {
				if answer, _ := ask(t, http.MethodGet, url, ""); answer.StatusCode != http.StatusTooManyRequests {
					t.Fatalf("beside a connection that is open: %d", answer.StatusCode)
				}
			}
			_ = conn.Close()
			for code := 0; code != http.StatusOK; {
				answer, _ := ask(t, http.MethodGet, url, "")
				code = answer.StatusCode
			}
		})
	}
}

// TestResponse charges what the response says, and counts failures alone, with a key out of
// the request's body.
func TestResponse(t *testing.T) {
	rules := made.Rules(t, `{"rules": [
		{"name": "tokens", "key": ["body./model"], "limits": ["1000/h"], "cost": {"usage": "openai", "reserve": 50}},
		{"name": "failures", "key": [], "limits": ["10/h"], "count": {"status": "4xx"}}]}`)
	for _, app := range apps {
		t.Run(app.name, func(t *testing.T) {
			p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), rules, policy.Options{})
			g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{OnError: func(_ *http.Request, err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			steps(t, http.MethodPost, app.open(t, g, func() {}), wantBody, []step{{"/good", 200}, {"/bad", 404}, {"/late", 401}})
			var d policy.Result
			// 7 of the good one, 8 of the bad one, and what was reserved for the last.
			settled := func() (tokens, failures int64) {
				if err := p.Peek(t.Context(), policy.Map{"body./model": "m"}, 1, &d); err != nil {
					t.Fatal(err)
				}
				return 1000 - d.Rules[0].Remaining, 10 - d.Rules[1].Remaining
			}
			if tokens, failures := settled(); tokens != 65 || failures != 2 {
				t.Errorf("%d tokens and %d failures, want 65 and 2", tokens, failures)
			}
		})
	}
}
