package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// get plays a client and prints the answer.
func get(h http.Handler, method, path string, headers ...string) {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	reported := rec.Header().Get("RateLimit") + " " + rec.Header().Get("Retry-After")
	fmt.Println(strings.TrimSpace(fmt.Sprint(method, " ", path, " ", rec.Code, " ", reported)))
}

// A handler guarded by address.
func Example() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "web", stint.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	guard, err := httplimit.New(limiter, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	handler := guard(hello) // http.ListenAndServe(":8080", handler)
	for range 3 {
		get(handler, "GET", "/")
	}
	// Output:
	// GET / 200 "web";r=1;t=1800
	// GET / 200 "web";r=0;t=3600
	// GET / 429 "web";r=0;t=1800 1800
}

// A login is guarded against guessing: only failures count, so that people who
// know their password are never kept out by their own success.
func ExampleOptions_loginGuard() {
	limit, err := stint.Parse("2 per hour sliding_log")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "login", limit)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := httplimit.New(limiter, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{
		Settle: func(status int, _ http.Header, cost int64) int64 {
			if status == http.StatusUnauthorized {
				return cost // more for a failure that counts double
			}
			return 0
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	login := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "sesame" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"sesame", "sesame", "guess", "sesame", "guess", "sesame"} {
		get(login, "POST", "/?password="+password)
	}
	// Output:
	// POST /?password=sesame 200 "login";r=2;t=1
	// POST /?password=sesame 200 "login";r=2;t=1
	// POST /?password=guess 401 "login";r=1;t=3600
	// POST /?password=sesame 200 "login";r=1;t=3600
	// POST /?password=guess 401 "login";r=0;t=3600
	// POST /?password=sesame 429 "login";r=0;t=3600 3600
}

// API keys with tiers, from a rules file. A client without a key is refused.
func ExampleNewPolicy() {
	rules, err := policy.Parse([]byte(`{"attributes": ["plan"], "rules": [{
		"name": "api",
		"match": {"path": "/api/**"},
		"key": ["header.x-api-key"],
		"on_missing": "deny",
		"tiers": {
			"by": "plan",
			"default": "free",
			"plans": {"free": "1 per hour", "gold": "100 per hour"}
		}
	}]}`))
	if err != nil {
		log.Fatal(err)
	}
	p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	plans := map[string]string{"k-acme": "gold"}
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{
		Attribute: func(r *http.Request, name string) (string, bool) {
			plan, ok := plans[r.Header.Get("X-Api-Key")]
			return plan, ok && name == "plan"
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := guard(hello)
	get(handler, "GET", "/api/items", "X-Api-Key", "k-acme")
	get(handler, "GET", "/api/items", "X-Api-Key", "k-small")
	get(handler, "GET", "/api/items", "X-Api-Key", "k-small")
	get(handler, "GET", "/api/items")
	get(handler, "GET", "/health")
	// Output:
	// GET /api/items 200 "api";r=99;t=3564
	// GET /api/items 200 "api";r=0;t=3600
	// GET /api/items 429 "api";r=0;t=3600 3600
	// GET /api/items 403
	// GET /health 200
}

// Routes cost what they are worth: a report is ten ordinary requests.
func ExampleOptions_routeCosts() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "units", stint.PerHour(12))
	if err != nil {
		log.Fatal(err)
	}
	costs := map[string]int64{"GET /report": 10, "GET /health": 0}
	guard, err := httplimit.New(limiter, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{
		Cost: func(r *http.Request) int64 {
			if cost, ok := costs[r.Pattern]; ok {
				return cost
			}
			return 1
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /report", "GET /health", "GET /items"} {
		mux.Handle(pattern, guard(hello)) // inside of the mux, where the pattern is known
	}
	get(mux, "GET", "/report")
	get(mux, "GET", "/health")
	get(mux, "GET", "/items")
	get(mux, "GET", "/report")
	// Output:
	// GET /report 200 "units";r=2;t=3000
	// GET /health 200 "units";r=2;t=3000
	// GET /items 200 "units";r=1;t=3300
	// GET /report 429 "units";r=1;t=2700 2700
}

// A slow endpoint takes one request at a time: a few wait in line, and more are
// refused at once.
func ExampleNew_queue() {
	limit, err := stint.Parse("20/s burst 2 leaky_queue")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	everybody := func(*http.Request) (string, bool) { return "report", true }
	guard, err := httplimit.New(limiter, everybody, httplimit.Options{
		Dialect: httplimit.NoFields,
	})
	if err != nil {
		log.Fatal(err)
	}
	handler, began := guard(hello), time.Now()
	for range 3 {
		get(handler, "GET", "/report")
	}
	fmt.Println("at an even pace:", time.Since(began) >= 100*time.Millisecond)
	// Output:
	// GET /report 200
	// GET /report 200
	// GET /report 200
	// at an even pace: true
}

// A program that calls a paid API keeps to the limit that it has paid for, and to what the
// server says.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"paid";r=0;t=3600`) // nothing is left for an hour
	}))
	defer server.Close()
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", stint.PerSecond(5))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{
		Transport: &httplimit.Transport{Limiter: limiter},
		Timeout:   time.Second, // longer waits fail at once, before anything is sent
	}
	for range 2 {
		resp, err := client.Get(server.URL)
		var limited *httplimit.LimitedError
		switch {
		case errors.As(err, &limited):
			fmt.Println("not sent: retry after", limited.RetryAfter.Seconds(), errors.Is(err, context.DeadlineExceeded))
		case err != nil:
			log.Fatal(err)
		default:
			resp.Body.Close()
			fmt.Println(resp.Status)
		}
	}
	// Output:
	// 200 OK
	// not sent: retry after 3600 true
}
