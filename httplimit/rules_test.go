package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func rules(t testing.TB, text string) *policy.Rules {
	t.Helper()
	r, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func policyOf(t testing.TB, store stint.Store, text string) *policy.Policy {
	t.Helper()
	p, err := policy.New(store, rules(t, text), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ruled(t testing.TB, p *policy.Policy, o httplimit.Options) http.Handler {
	t.Helper()
	g, err := httplimit.NewPolicy(p, behind(), o)
	if err != nil {
		t.Fatal(err)
	}
	return g(status)
}

const someRules = `{"attributes": ["my.attr"], "rules": [
	{"name": "ban", "match": {"ip": "203.0.113.0/24"}, "block": true},
	{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["2/1m"]},
	{"name": "api", "match": {"path": "/api/**"}, "key": ["header.x-api-key"], "limits": ["3/1h", "5/day in UTC"], "on_missing": "deny"},
	{"name": "trial", "match": {"path": "/login"}, "key": ["ip"], "limits": ["1/1h"], "shadow": true},
	{"name": "mine", "match": {"my.attr": "7"}, "key": ["cookie.s", "query.q"], "limits": ["1/1h"]}
]}`

// TestPolicy plays requests against rules.
func TestPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), someRules), httplimit.Options{
			Attribute: func(r *http.Request, name string) (string, bool) {
				return r.URL.Query().Get("attr"), name == "my.attr"
			},
		})
		api := []string{"X-Api-Key: k1"}
		for i, test := range []struct {
			method, path, peer string
			headers            []string
			want               int
			policy, rateLimit  string
			retry              string
		}{
			{"GET", "/", "192.0.2.7:1", nil, 200, "", "", ""},
			{"GET", "/", "203.0.113.9:1", nil, 403, "", "", ""},
			{"GET", "/", "10.0.0.1:1", []string{"X-Forwarded-For: 203.0.113.9"}, 403, "", "", ""},
			{"GET", "/", "192.0.2.7:1", []string{"X-Forwarded-For: 203.0.113.9"}, 200, "", "", ""},
			{"GET", "/login", "192.0.2.7:1", nil, 200, "", "", ""},
			{"POST", "/login", "192.0.2.7:1", nil, 200, `"login";q=2;w=60`, `"login";r=1;t=30`, ""},
			{"POST", "/x/../login", "192.0.2.7:1", nil, 400, "", "", ""},
			{"POST", "/%6cogin", "192.0.2.7:1", nil, 400, "", "", ""},
			{"POST", "/login/", "192.0.2.7:1", nil, 200, `"login";q=2;w=60`, `"login";r=0;t=60`, ""},
			{"POST", "/login", "192.0.2.7:1", nil, 429, `"login";q=2;w=60`, `"login";r=0;t=30`, "30"},
			{"POST", "/login?x", "[2001:db8::1]:1", nil, 200, `"login";q=2;w=60`, `"login";r=1;t=30`, ""},
			{"POST", "/login", "[2001:db8::2]:1", nil, 200, `"login";q=2;w=60`, `"login";r=0;t=60`, ""},
			{"GET", "/api%2flogin", "192.0.2.7:1", nil, 400, "", "", ""},
			{"GET", "/api/x", "192.0.2.7:1", nil, 403, "", "", ""},
			{"GET", "/api/x", "192.0.2.7:1", api, 200, `q=3;w=3600`, `"api/gcra:1h";r=2;t=2400`, ""},
			{"GET", "/api/x", "192.0.2.8:1", api, 200, `q=5;w=86400`, `"api/gcra:1h";r=1;t=2400`, ""},
			{"GET", "/other?attr=7&q=a", "192.0.2.8:1", []string{"Cookie: s=b"}, 200, `"mine";q=1;w=3600`, `"mine";r=0`, ""},
			{"GET", "/other?attr=7&q=a", "192.0.2.8:1", []string{"Cookie: s=b"}, 429, `"mine";q=1;w=3600`, `"mine";r=0`, "3600"},
			{"GET", "/other?attr=7&q=b", "192.0.2.8:1", []string{"Cookie: s=a"}, 200, `"mine";q=1;w=3600`, `"mine";r=0`, ""},
		} {
			r := httptest.NewRequest(test.method, test.path, nil)
			r.RemoteAddr = test.peer
			for _, line := range test.headers {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			got := rec.Header()
			if rec.Code != test.want || !strings.Contains(got.Get("RateLimit-Policy"), test.policy) || !strings.Contains(got.Get("RateLimit"), test.rateLimit) ||
				got.Get("Retry-After") != test.retry || test.policy == "" && got.Get("RateLimit") != "" {
				t.Errorf("request %d, %s %s: %d, %v, %s", i, test.method, test.path, rec.Code, got, rec.Body)
			}
		}
	})
}

func noAttribute(*http.Request, string) (string, bool) { return "", false }

// TestPolicyHooks looks at what hooks are called with, shadows included.
func TestPolicyHooks(t *testing.T) {
	var seen []string
	p := policyOf(t, memstore.New(memstore.Options{}), someRules)
	h := ruled(t, p, httplimit.Options{Attribute: noAttribute, OnDecision: func(_ *http.Request, o httplimit.Outcome) {
		seen = append(seen, fmt.Sprint(o.Decision.Allowed, o.Violated, o.Rules.ShadowDenied, len(o.Rules.Rules)))
	}})
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	want := []string{"true [] false 2", "true [] true 2", "false [login] true 2"}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("hooks saw %q, want %q", seen, want)
	}
}

// TestPolicyReload swaps the rules under load: no request fails.
func TestPolicyReload(t *testing.T) {
	var current atomic.Pointer[policy.Policy]
	current.Store(policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "a", "key": ["ip"], "limits": ["1000000/s"]}]}`))
	g, err := httplimit.NewPolicyFunc(current.Load, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := g(status)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 300 {
				if rec := serve(h, "/200"); rec.Code != 200 {
					t.Error(rec.Code, rec.Body)
				}
			}
		})
	}
	for i := range 20 {
		next, err := current.Load().Reload(rules(t, fmt.Sprintf(`{"rules": [{"name": "a", "key": ["ip"], "limits": ["%d/s"]}]}`, 1000000+i)))
		if err != nil {
			t.Fatal(err)
		}
		current.Store(next)
	}
	all.Wait()
	if rec := serve(h, "/"); rec.Header().Get("RateLimit-Policy") != `"a";q=1000019;w=1` {
		t.Error(rec.Header())
	}
}

// TestPolicyRefund gives back under a policy.
func TestPolicyRefund(t *testing.T) {
	h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "a", "key": ["ip"], "limits": ["2/h"]}]}`),
		httplimit.Options{Refund: func(status int) bool { return status < 400 }})
	for i, test := range []struct {
		path string
		want int
	}{{"/200", 200}, {"/200", 200}, {"/200", 200}, {"/401", 401}, {"/200", 200}, {"/401", 401}, {"/200", 429}} {
		if rec := serve(h, test.path); rec.Code != test.want {
			t.Errorf("request %d: %d, want %d", i, rec.Code, test.want)
		}
	}
}

// TestPolicyQueue waits for as long as a queue says, and no longer.
func TestPolicyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "slow", "key": ["ip"], "limits": ["1/s burst 9 leaky_queue"]}]}`),
			httplimit.Options{MaxWait: 1500 * time.Millisecond})
		began := time.Now()
		for i, want := range []string{"200 0s ", "200 1s ", "429 0s 1", "429 0s 1"} {
			var all sync.WaitGroup
			all.Go(func() {
				rec := serve(h, "/200")
				if got := fmt.Sprint(rec.Code, " ", time.Since(began), " ", rec.Header().Get("Retry-After")); got != want {
					t.Errorf("request %d: %s, want %s", i, got, want)
				}
			})
			synctest.Wait()
			if i == 3 {
				all.Wait()
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestPolicyFailure answers by the rules' words when the store fails.
func TestPolicyFailure(t *testing.T) {
	for word, want := range map[string]int{"open": 200, "closed": 503, "local": 200} {
		var reported error
		p := policyOf(t, failingPolicy(errors.New("broken")), `{"rules": [{"name": "a", "key": ["ip"], "limits": ["2/h"], "on_store_failure": "`+word+`"}]}`)
		h := ruled(t, p, httplimit.Options{OnError: func(_ *http.Request, err error) { reported = err }})
		rec := serve(h, "/200")
		if rec.Code != want || reported == nil {
			t.Errorf("%s: %d, %v, reported %v", word, rec.Code, rec.Header(), reported)
		}
	}
}

func failingPolicy(err error) stint.Store { return failing{memstore.New(memstore.Options{}), err} }

// TestPolicyQueueLeaves lets a client give up: those behind it move up, by one
// place each, and the place at the end is free.
func TestPolicyQueueLeaves(t *testing.T) {
	const (
		mine  = `{"name": "mine", "key": ["ip"], "limits": ["1/s burst 9 leaky_queue"], "cost": {"header": "x-cost"}}`
		every = `, {"name": "every", "key": [], "limits": ["1/s burst 9 leaky_queue"], "cost": {"header": "x-cost"}}`
	)
	const slow = `, {"name": "slow", "key": [], "limits": ["1/2s burst 9 leaky_queue"]}`
	for name, test := range map[string]struct {
		rules string
		costs [4]int
		want  string
	}{
		"of one in both": {mine + slow, [4]int{1, 1, 1, 1}, "0s gave up 2s 4s"},

		"of one cost":   {mine, [4]int{1, 1, 1, 1}, "0s gave up 1s 2s"},
		"of its own":    {mine, [4]int{1, 2, 1, 1}, "0s gave up 1s 2s"},
		"of less cost":  {mine, [4]int{1, 1, 2, 1}, "0s gave up 1s 3s"},
		"of two queues": {mine + every, [4]int{1, 1, 1, 1}, "0s gave up 1s 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), `{"rules": [`+test.rules+`]}`), httplimit.Options{})
				began, started := time.Now(), make([]string, 4)
				leaves, leave := context.WithCancel(t.Context())
				var all sync.WaitGroup
				ask := func(i int, ctx context.Context) {
					all.Go(func() {
						r := request("192.0.2.7:1", fmt.Sprint("X-Cost: ", test.costs[i])).WithContext(ctx)
						rec := httptest.NewRecorder()
						h.ServeHTTP(rec, r)
						started[i] = time.Since(began).Round(time.Millisecond).String()
						if rec.Code != 200 {
							started[i] = "gave up"
						}
					})
					synctest.Wait()
				}
				ask(0, t.Context())
				ask(1, leaves)
				ask(2, t.Context())
				time.Sleep(500 * time.Millisecond)
				leave()
				synctest.Wait()
				ask(3, t.Context())
				all.Wait()
				if got := strings.Join(started, " "); got != test.want {
					t.Errorf("started at %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestPolicyQueueSpacing has clients come and give up at random: each request
// starts a second or more after the one before, and none waits while nothing is
// ahead.
func TestPolicyQueueSpacing(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			var started []time.Time
			g, err := httplimit.NewPolicy(policyOf(t, memstore.New(memstore.Options{}),
				`{"rules": [{"name": "slow", "key": [], "limits": ["1/s burst 8 leaky_queue"]}]}`), httplimit.ClientIP{}, httplimit.Options{})
			if err != nil {
				t.Fatal(err)
			}
			h := g(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				started = append(started, time.Now())
			}))
			var all sync.WaitGroup
			last := time.Now()
			for range 200 {
				ctx, leave := context.WithCancel(t.Context())
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), request("192.0.2.7:1").WithContext(ctx)) })
				all.Go(func() {
					time.Sleep(time.Duration(random.Int64N(int64(6 * time.Second))))
					leave()
				})
				synctest.Wait()
				last = time.Now()
				time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
			}
			all.Wait()
			for i := 1; i < len(started); i++ {
				if gap := started[i].Sub(started[i-1]); gap < time.Second || gap > 2*time.Second && started[i].Before(last) {
					t.Fatalf("seed %d: start %d came %v after the one before", seed, i, gap)
				}
			}
			if len(started) < 80 {
				t.Errorf("seed %d: only %d started", seed, len(started))
			}
		})
	}
}

// TestNotGiven reloads rules that look at what the middleware cannot give: they are refused
// at the start, and a request that they may hold is answered with 500, FailOpen or not.
func TestNotGiven(t *testing.T) {
	const claims = `{"attributes": ["jwt.sub"], "rules": [{"name": "a", "match": {"path": "/a"}, "key": ["jwt.sub"], "limits": ["1/h"]}]}`
	store := memstore.New(memstore.Options{})
	if _, err := httplimit.NewPolicy(policyOf(t, store, claims), behind(), httplimit.Options{}); err == nil || !strings.Contains(err.Error(), "package httplimit with Options.Attribute") {
		t.Errorf("at the start: %v", err)
	}
	current := policyOf(t, store, `{"rules": []}`)
	var failed error
	guard, err := httplimit.NewPolicyFunc(func() *policy.Policy { return current }, behind(),
		httplimit.Options{FailOpen: true, OnError: func(_ *http.Request, err error) { failed = err }})
	if err != nil {
		t.Fatal(err)
	}
	if current, err = current.Reload(rules(t, claims)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/a": http.StatusInternalServerError, "/b": http.StatusOK} {
		rec := httptest.NewRecorder()
		guard(status).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code != want || strings.Contains(rec.Body.String(), "jwt") {
			t.Errorf("%s: %d %s; want %d, and nothing about rules", path, rec.Code, rec.Body, want)
		}
	}
	var lacks *policy.NotGivenError
	if !errors.As(failed, &lacks) || lacks.Rule != "a" || lacks.Attribute != "jwt.sub" {
		t.Errorf("OnError: %v", failed)
	}
}
