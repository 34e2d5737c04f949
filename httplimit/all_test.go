package httplimit_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

func everybody(*http.Request) (string, bool) { return "all", true }

// An asking is a user's request, the status it must get, and what must remain.
type asking struct {
	user, want string
}

func compare(t *testing.T, h http.Handler, asks []asking) {
	t.Helper()
	for i, a := range asks {
		r := request("192.0.2.7:1")
		if a.user != "" {
			r.Header.Set("X-User", a.user)
		}
		rec := recorded(h, r)
		if got := fmt.Sprint(rec.Code, " ", rec.Header().Get("RateLimit")); got != a.want {
			t.Errorf("request %d of %q: %s, want %s", i, a.user, got, a.want)
		}
	}
}

// TestAll holds requests to two limiters by two keys: a request that one of them denies is
// charged to neither.
func TestAll(t *testing.T) {
	both := func(o httplimit.Options, texts ...string) http.Handler {
		store := memstore.New(memstore.Options{Now: func() int64 { return int64(time.Hour) }})
		var pairs []httplimit.Pair
		for i, key := range []httplimit.Key{everybody, httplimit.HeaderKey("X-User")} {
			pairs = append(pairs, httplimit.Pair{Limiter: limiter(t, store, texts[i]), Key: key})
		}
		g := sound(t)(httplimit.NewAll(o, pairs...))
		return g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-User") == "fails" {
				w.WriteHeader(401)
			}
		}))
	}
	compare(t, both(httplimit.Options{}, "3/h", "1/min"), []asking{
		{"a", `200 "1/1m";r=0;t=60`}, {"a", `429 "1/1m";r=0;t=60`}, {"a", `429 "1/1m";r=0;t=60`},
		{"b", `200 "1/1m";r=0;t=60`}, {"", `200 "3/1h";r=0;t=3600`}, {"c", `429 "3/1h";r=0;t=1200`},
	})
	compare(t, both(httplimit.Options{Missing: httplimit.MissingSkip}, "3/h", "1/min"), []asking{
		{"", `200 "3/1h";r=2;t=2400`}, {"", `200 "3/1h";r=1;t=2400`}, {"a", `200 "3/1h";r=0;t=3600`},
	})
	compare(t, both(httplimit.Options{Missing: httplimit.MissingDeny}, "3/h", "1/min"), []asking{{"", "403 "}})
	compare(t, both(httplimit.Options{Settle: back(func(status int) bool { return status != 401 })}, "3/h", "2/min"), []asking{
		{"a", `200 "2/1m";r=2;t=60`}, {"a", `200 "2/1m";r=2;t=60`}, {"a", `200 "2/1m";r=2;t=60`},
		{"fails", `401 "2/1m";r=1;t=60`}, {"fails", `401 "2/1m";r=0;t=60`}, {"fails", `429 "2/1m";r=0;t=30`},
		{"a", `200 "3/1h";r=1;t=2400`}, {"a", `200 "3/1h";r=1;t=2400`},
	})
	h := both(httplimit.Options{Cost: func(*http.Request) int64 { return 2 }}, "3/h", "2/min")
	compare(t, h, []asking{{"a", `200 "3/1h";r=0;t=2400`}, {"b", `429 "3/1h";r=0;t=1200`}})
}

// TestAllWaits: requests wait until both limiters let them pass.
func TestAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		g, err := httplimit.NewAll(httplimit.Options{MaxWait: 5 * time.Second},
			httplimit.Pair{Limiter: limiter(t, store, "1/s"), Key: everybody},
			httplimit.Pair{Limiter: limiter(t, store, "1/4s"), Key: httplimit.HeaderKey("X-User")})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i, want := range []time.Duration{0, 4 * time.Second, 8 * time.Second} {
			if rec := recorded(g(status), request("192.0.2.7:1")); rec.Code != 200 || time.Since(began) != want {
				t.Errorf("request %d: %d after %v, want %v", i, rec.Code, time.Since(began), want)
			}
		}
	})
}

// TestSettle has responses say what requests cost, by the status, or by a header more than was
// taken; and a success resets what failures have used. All this is settled when the header is written,
// and is no error if the handler has reset its key.
func TestSettle(t *testing.T) {
	o := httplimit.Options{Settle: func(_ int, h http.Header, cost int64) int64 {
		switch h.Get("Location") {
		case "/failed":
			return 2 * cost
		case "/welcome":
			return httplimit.Forget
		case "/kept":
			return cost
		}
		return 0
	}, OnError: func(_ *http.Request, err error) { t.Error(err) }}
	store := memstore.New(memstore.Options{Now: func() int64 { return int64(time.Hour) }})
	l := limiter(t, store, "5/h")
	several := sound(t)(httplimit.NewAll(o, httplimit.Pair{Limiter: l, Key: everybody}, httplimit.Pair{Limiter: limiter(t, store, "99/min"), Key: everybody}))
	alone := sound(t)(httplimit.New(l, everybody, o))
	for name, g := range map[string]func(http.Handler) http.Handler{"New": alone, "NewAll": several} {
		for i, c := range []struct {
			path string
			left int64 // units left once the header is written
		}{{"/kept", 4}, {"/reset", 5}, {"/failed", 3}, {"/failed", 1}, {"/welcome", 5}, {"/", 5}, {"/failed", 3}, {"/kept", 2}, {"/failed", 0}, {"/failed", 0}} {
			left := func() {
				t.Helper()
				if d, err := l.Peek(t.Context(), "all", 1); err != nil || d.Remaining != c.left {
					t.Errorf("%s, %d %s: %+v, %v", name, i, c.path, d, err)
				}
			}
			serve(g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.path == "/reset" {
					if err := l.Reset(r.Context(), "all"); err != nil {
						t.Error(err)
					}
				}
				w.Header().Set("Location", c.path)
				w.WriteHeader(http.StatusSeeOther)
				left()
			})), c.path)
			left()
		}
		if err := l.Reset(t.Context(), "all"); err != nil {
			t.Fatal(err)
		}
	}
}

// One decision holds a request to what the site bears and to what its user may. A denied
// request uses up neither.
func ExampleNewAll() {
	store := memstore.New(memstore.Options{})
	site, err := stint.NewLimiter(store, "site", stint.PerMinute(1000))
	if err != nil {
		fmt.Println(err)
		return
	}
	user, err := stint.NewLimiter(store, "user", stint.PerHour(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := httplimit.NewAll(httplimit.Options{},
		httplimit.Pair{Limiter: site, Key: func(*http.Request) (string, bool) { return "", true }},
		httplimit.Pair{Limiter: user, Key: httplimit.HeaderKey("X-User")},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := guard(hello)
	get(handler, "GET", "/", "X-User", "ann")
	get(handler, "GET", "/", "X-User", "ann")
	// Output:
	// GET / 200 "user";r=0;t=3600
	// GET / 429 "user";r=0;t=3600 3600
}
