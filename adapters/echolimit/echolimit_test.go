package echolimit_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
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
