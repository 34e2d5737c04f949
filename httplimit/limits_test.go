package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestLimits holds requests to limits from Options.Limits: a key keeps what it has used, and
// limits that cannot be held leave the limiter's own in force, with an error.
func TestLimits(t *testing.T) {
	plans := map[string][]stint.Limit{
		"/pro": {stint.PerHour(5)}, "/day": {stint.PerHour(5), stint.New(1, 24*time.Hour)}, "/wrong": {stint.PerHour(0)},
	}
	var reported error
	h := guard(t, limiter(t, nil, "2/h"), httplimit.Options{
		Limits:  func(r *http.Request) []stint.Limit { return plans[r.URL.Path] },
		OnError: func(_ *http.Request, err error) { reported = err },
	})(status)
	for i, test := range []struct {
		path, fields string
		status       int
	}{
		{"/free", `"2/1h";r=1;t=1800`, 200},
		{"/pro", `"2/1h";r=3;t=2160`, 200}, // the period is the same: one unit is used already
		{"/pro", `"2/1h";r=2;t=2160`, 200},
		{"/free", `"2/1h";r=0;t=1440`, 429},
		{"/day", `"2/1h/gcra:24h";r=0;t=86400`, 200},
		{"/day", `"2/1h/gcra:24h";r=0;t=86400`, 429},
		{"/wrong", `"2/1h";r=0;t=2160`, 429},
	} {
		rec := serve(h, test.path)
		if got := rec.Header().Get("RateLimit"); rec.Code != test.status || got != test.fields {
			t.Errorf("%d %s: %d %s, want %d %s", i, test.path, rec.Code, got, test.status, test.fields)
		}
		if (reported != nil) != (test.path == "/wrong") {
			t.Errorf("%s: %v", test.path, reported)
		}
	}
	rules := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules":[{"name":"r","key":[],"limits":"1/s"}]}`), policy.Options{})
	if _, err := httplimit.NewPolicy(rules, httplimit.ClientIP{}, httplimit.Options{Limits: func(*http.Request) []stint.Limit { return nil }}); err == nil {
		t.Error("Limits under a policy: no error")
	}
}

// TestLimitsBounded: limits that clients choose take only a part of the store's room. After
// that the guard's own limits decide.
func TestLimitsBounded(t *testing.T) {
	store := memstore.New(memstore.Options{MaxKeys: 64 * 4 * 250})
	refused := 0
	n := int64(0)
	h := guard(t, limiter(t, store, "2/h"), httplimit.Options{
		Limits: func(*http.Request) []stint.Limit { n++; return []stint.Limit{stint.New(1, time.Hour+time.Duration(n))} },
		OnError: func(_ *http.Request, err error) {
			if refused++; !errors.Is(err, stint.ErrFull) {
				t.Error(err)
			}
		},
	})(status)
	passed := 0
	for range 2000 {
		if serve(h, "/").Code == 200 {
			passed++
		}
	}
	if passed > 260 || refused < 1740 {
		t.Errorf("%d passed, %d had no room", passed, refused)
	}
}

// Each customer is held to the limit of their plan, which the code in front has read from a
// verified token. Without a plan, the limiter's own limit applies.
func ExampleOptions_plans() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", stint.PerHour(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	plans := map[string][]stint.Limit{"pro": {stint.PerHour(1000)}}
	guard, err := httplimit.New(limiter, httplimit.HeaderKey("X-Customer"), httplimit.Options{
		Limits: func(r *http.Request) []stint.Limit { return plans[r.Header.Get("X-Plan")] },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := guard(hello)
	get(handler, "GET", "/items", "X-Customer", "acme", "X-Plan", "pro")
	get(handler, "GET", "/items", "X-Customer", "small")
	// Output:
	// GET /items 200 "api";r=999;t=3597
	// GET /items 200 "api";r=99;t=3564
}
