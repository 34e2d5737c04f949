package echolimit_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func limiter(t *testing.T, text string) *stint.Limiter {
	t.Helper()
	limit, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}) // seconds are compared
	t.Cleanup(func() { store.Close() })
	l, err := stint.NewLimiter(store, "test", limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func guard(t *testing.T, text string, key httplimit.Key, o httplimit.Options) echo.MiddlewareFunc {
	t.Helper()
	g, err := httplimit.New(limiter(t, text), key, o)
	if err != nil {
		t.Fatal(err)
	}
	return echolimit.Guard(g)
}

func all(*http.Request) (string, bool) { return "", true }

func engine() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover())
	return e
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestDenied denies, and no handler behind the guard runs.
func TestDenied(t *testing.T) {
	r := engine()
	reached := 0
	r.Use(guard(t, "1/h", all, httplimit.Options{}))
	r.GET("/", func(c *echo.Context) error { reached++; return c.String(http.StatusOK, "hello") })
	for i, want := range []int{200, 429} {
		w := get(r, "/")
		if w.Code != want || w.Header().Get("RateLimit") == "" || (w.Header().Get("Retry-After") == "3600") != (want == 429) {
			t.Errorf("request %d: %d %v", i, w.Code, w.Header())
		}
	}
	if reached != 1 {
		t.Errorf("%d requests reached the handlers", reached)
	}
}

// TestRoutes gives each route its own count.
func TestRoutes(t *testing.T) {
	r := engine()
	r.Use(guard(t, "1/h", httplimit.RouteKey(), httplimit.Options{}))
	r.GET("/users/:id", func(*echo.Context) error { return nil })
	r.GET("/other", func(*echo.Context) error { return nil })
	for _, try := range []struct {
		path string
		want int
	}{{"/users/1", 200}, {"/users/2", 429}, {"/other", 200}, {"/nowhere", 404}, {"/elsewhere", 429}} {
		if w := get(r, try.path); w.Code != try.want {
			t.Errorf("%s: %d, want %d", try.path, w.Code, try.want)
		}
	}
}

// TestRefund gives back what succeeded, and not what an error or a
// panic ended.
func TestRefund(t *testing.T) {
	r := engine()
	r.Use(guard(t, "2/h", all, httplimit.Options{Refund: func(status int) bool { return status < 400 }}))
	r.GET("/good", func(c *echo.Context) error { return c.JSON(http.StatusCreated, "made") })
	r.GET("/late", func(*echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "who are you?") })
	r.GET("/panic", func(*echo.Context) error { panic("x") })
	for i, try := range []struct {
		path string
		want int
	}{{"/good", 201}, {"/good", 201}, {"/good", 201}, {"/late", 401}, {"/panic", 500}, {"/good", 429}} {
		if w := get(r, try.path); w.Code != try.want {
			t.Errorf("request %d, %s: %d, want %d", i, try.path, w.Code, try.want)
		}
	}
}

// TestResponse charges what the response says, and counts failures alone, with a key out of
// the request's body.
func TestResponse(t *testing.T) {
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "tokens", "key": ["body./model"], "limits": ["1000/h"], "cost": {"usage": "openai", "reserve": 50}},
		{"name": "failures", "key": [], "limits": ["10/h"], "count": {"status": "4xx"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{OnError: func(_ *http.Request, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	r := engine()
	r.Use(echolimit.Guard(g))
	r.POST("/good", func(c *echo.Context) error { return c.String(http.StatusOK, `{"usage":{"total_tokens":7}}`) })
	r.POST("/bad", func(c *echo.Context) error { return c.String(http.StatusNotFound, `{"usage":{"total_tokens":8}}`) })
	r.POST("/late", func(*echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "who are you?") })
	post := func(path, body string) int {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		return w.Code
	}
	for path, want := range map[string]int{"/good": 200, "/bad": 404, "/late": 401} {
		if got := post(path, `{"model":"m"}`); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	var d policy.Result
	if err := p.Peek(t.Context(), policy.Map{"body./model": "m"}, 1, &d); err != nil {
		t.Fatal(err)
	}
	// 7 of the good one, 8 of the bad one, and what was reserved for the last.
	if tokens, failures := 1000-d.Rules[0].Remaining, 10-d.Rules[1].Remaining; tokens != 65 || failures != 2 {
		t.Errorf("%d tokens and %d failures, want 65 and 2", tokens, failures)
	}
}

// TestMany lets pass as many of a thousand at once as there is room for.
func TestMany(t *testing.T) {
	r := engine()
	r.Use(guard(t, "100/h", all, httplimit.Options{}))
	r.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			if get(r, "/").Code == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	if passed.Load() != 100 {
		t.Errorf("%d passed, want 100", passed.Load())
	}
}
