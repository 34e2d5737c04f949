package httplimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

func fields(h http.Header) string {
	var all []string
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After"} {
		if values := h.Values(name); values != nil {
			all = append(all, strings.Join(values, " AND "))
		}
	}
	return strings.Join(all, " | ")
}

// TestNested: nested guards write one header, with the policies of all, and the standing of
// the limit with the least remaining, whichever guard has it.
func TestNested(t *testing.T) {
	store := memstore.New(memstore.Options{Now: func() int64 { return int64(time.Hour) }})
	defer store.Close()
	for _, c := range []struct {
		dialect      httplimit.Dialect
		outer, inner string
		want         [3]string
	}{
		{httplimit.Draft11, "100/h", "2/min", [3]string{
			`"100/1h";q=100;w=3600, "2/1m";q=2;w=60 | "2/1m";r=1;t=30`,
			`"100/1h";q=100;w=3600, "2/1m";q=2;w=60 | "2/1m";r=0;t=60`,
			`"100/1h";q=100;w=3600, "2/1m";q=2;w=60 | "2/1m";r=0;t=30 | 30`,
		}},
		{httplimit.Draft11, "2/min", "100/h", [3]string{
			`"2/1m";q=2;w=60, "100/1h";q=100;w=3600 | "2/1m";r=1;t=30`,
			`"2/1m";q=2;w=60, "100/1h";q=100;w=3600 | "2/1m";r=0;t=60`,
			`"2/1m";q=2;w=60 | "2/1m";r=0;t=30 | 30`,
		}},
		{httplimit.Draft06, "100/h", "2/min", [3]string{
			`100;w=3600, 2;w=60 | 2 | 1 | 30`, `100;w=3600, 2;w=60 | 2 | 0 | 60`, `100;w=3600, 2;w=60 | 2 | 0 | 30 | 30`,
		}},
		{httplimit.XRateLimit, "2/min", "100/h", [3]string{`2 | 1`, `2 | 0`, `2 | 0 | 30`}},
	} {
		o := httplimit.Options{Dialect: c.dialect}
		outer, inner := limiter(t, store, c.outer), limiter(t, store, c.inner)
		h := guard(t, outer, o)(guard(t, inner, o)(status))
		for i, want := range c.want {
			if got := fields(serve(h, "/").Header()); got != want {
				t.Errorf("%d, %s around %s, request %d:\n%s, want\n%s", c.dialect, c.outer, c.inner, i, got, want)
			}
		}
		for _, l := range []*stint.Limiter{outer, inner} {
			if err := l.Reset(t.Context(), "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTwice puts one guard around a handler three times, with another one in between: a
// request counts each time, the guard's policy is listed once, and there is one warning.
func TestTwice(t *testing.T) {
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	p := policyOf(t, memstore.New(memstore.Options{}), `{"rules":[{"name":"r","key":["ip"],"limits":"3/h"}]}`)
	ruled := sound(t)(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{}))
	byPath := func(r *http.Request) (string, bool) { return r.URL.Path, true }
	for _, dialect := range []httplimit.Dialect{httplimit.Draft11, httplimit.Draft06, httplimit.XRateLimit} {
		twice := sound(t)(httplimit.New(limiter(t, nil, "3/h"), byPath, httplimit.Options{Dialect: dialect}))
		between := guard(t, limiter(t, nil, "1/h"), httplimit.Options{Dialect: dialect, Cost: func(*http.Request) int64 { return 0 }})
		for name, g := range map[string]func(http.Handler) http.Handler{"limiter": twice, "rules": ruled} {
			log.Reset()
			h := g(between(g(g(status))))
			for i, want := range []int{200, 429} {
				if rec := serve(h, "/"); rec.Code != want && (name == "limiter" || dialect == httplimit.Draft11) {
					t.Errorf("%s, request %d: %d, want %d", name, i, rec.Code, want)
				}
			}
			if n := strings.Count(log.String(), "stands twice"); n > 1 || n == 0 && name == "limiter" {
				t.Errorf("%s: %d warnings: %s", name, n, &log)
			}
		}
		forwarding := twice(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/b"
			twice(status).ServeHTTP(w, r)
		}))
		for i, want := range []int{200, 200, 200, 429} {
			if rec := serve(forwarding, fmt.Sprintf("/a%d", i)); rec.Code != want {
				t.Errorf("forwarded request %d: %d, want %d", i, rec.Code, want)
			}
		}
	}
}

// TestBatch: one response answers many requests, each under a key of its own. Each counts,
// and the header does not grow with them.
func TestBatch(t *testing.T) {
	one := sound(t)(httplimit.New(limiter(t, nil, "3/h"), func(r *http.Request) (string, bool) { return r.URL.Path, true }, httplimit.Options{}))
	passed, rec := 0, httptest.NewRecorder()
	h := one(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	for i := range 1000 {
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, fmt.Sprint("/", i%100), nil))
	}
	if passed != 300 || rec.Header().Get("RateLimit-Policy") != `"3/1h";q=3;w=3600` || cap(rec.Header()["Ratelimit"]) > 8 {
		t.Errorf("%d passed, want 300: %d, %v", passed, cap(rec.Header()["Ratelimit"]), rec.Header())
	}
}

// A handler that knows better than middleware what a request is about asks its limiter
// itself, and answers as a guard does.
func ExampleDialect_SetDecision() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "codes", stint.PerHour(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	send := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := limiter.Take(r.Context(), r.FormValue("phone"), 1)
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		if code := httplimit.Draft11.SetDecision(w.Header(), d, limiter); code != http.StatusOK {
			http.Error(w, "a code is on its way already", code)
		}
	})
	for range 2 {
		rec := httptest.NewRecorder()
		send.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/?phone=555", nil))
		fmt.Println(rec.Code, rec.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "codes";r=0;t=3600
	// 429 "codes";r=0;t=3600
}
