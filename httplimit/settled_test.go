package httplimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

// answers is a handler that answers as its path says: /STATUS, or /STATUS/COST with the cost in
// a header.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	status, cost, _ := strings.Cut(r.URL.Path[1:], "/")
	if cost != "" {
		w.Header().Set("X-Cost", cost)
	}
	code, _ := strconv.Atoi(status)
	if code == 0 { // a gRPC call that failed
		w.Header().Set("Grpc-Status", "3")
		code = 200
	}
	w.WriteHeader(code)
})

func stopped() int64 { return int64(time.Hour) }

// frozen is a memory whose clock stands still.
func frozen(t *testing.T) *memstore.Store {
	t.Helper()
	store := memstore.New(memstore.Options{Now: stopped})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// failures settles a login: a failure costs what was reserved, a success nothing; 303 forgets
// the failures, and 403 is one more.
func failures(status int, _ http.Header, cost int64) int64 {
	switch status {
	case 401:
		return cost
	case 303:
		return httplimit.Forget
	case 403:
		return 2 * cost
	}
	return 0
}

// TestFieldsAreSettled: what an answer says remains is what remains after its own settlement.
func TestFieldsAreSettled(t *testing.T) {
	byRules := func(rules string, o httplimit.Options) func(http.Handler) http.Handler {
		g := sound(t)(httplimit.NewPolicy(policyOf(t, frozen(t), rules), httplimit.ClientIP{}, o))
		return g
	}
	all := func() func(http.Handler) http.Handler {
		store := frozen(t)
		g, err := httplimit.NewAll(httplimit.Options{Settle: failures},
			httplimit.Pair{Limiter: limiter(t, store, "9/h"), Key: everybody}, httplimit.Pair{Limiter: limiter(t, store, "5/h"), Key: httplimit.IPKey(httplimit.ClientIP{})})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	settle := httplimit.Options{Settle: failures}
	const counted, cost = `"count": {"status": [401]}`, `"cost": {"response": "header.X-Cost", "reserve": 10}`
	for _, c := range []struct {
		about string
		guard func(http.Handler) http.Handler
		paths []string
		want  string // of the last answer
	}{
		{"back", guard(t, limiter(t, frozen(t), "3/h"), settle), []string{"/401", "/401", "/200"}, `"3/1h";q=3;w=3600 | "3/1h";r=1;t=2400`},
		{"kept", guard(t, limiter(t, frozen(t), "3/h"), settle), []string{"/401", "/401"}, `"3/1h";q=3;w=3600 | "3/1h";r=1;t=2400`},
		{"forgotten", guard(t, limiter(t, frozen(t), "3/h"), settle), []string{"/401", "/401", "/303"}, `"3/1h";q=3;w=3600 | "3/1h";r=3;t=3600`},
		{"more", guard(t, limiter(t, frozen(t), "3/h"), settle), []string{"/403"}, `"3/1h";q=3;w=3600 | "3/1h";r=1;t=2400`},
		{"several limits", guard(t, limiter(t, frozen(t), "3/h", "9/day"), settle), []string{"/401", "/200"}, `"3/1h/gcra:1h";q=3;w=3600, "3/1h/gcra:24h";q=9;w=86400 | "3/1h/gcra:1h";r=2;t=3600`},
		{"draft 06", guard(t, limiter(t, frozen(t), "3/h"), httplimit.Options{Settle: failures, Dialect: httplimit.Draft06}), []string{"/401", "/401", "/200"}, `3;w=3600 | 3 | 1 | 2400`},
		{"older", guard(t, limiter(t, frozen(t), "3/h"), httplimit.Options{Settle: failures, Dialect: httplimit.XRateLimit}), []string{"/401", "/401", "/200"}, `3 | 1`},
		{"none", guard(t, limiter(t, frozen(t), "3/h"), httplimit.Options{Settle: failures, Dialect: httplimit.NoFields}), []string{"/200"}, ``},
		{"shadow", guard(t, limiter(t, frozen(t), "3/h"), httplimit.Options{Settle: failures, Shadow: true}), []string{"/200"}, ``},
		{"NewAll", all(), []string{"/401", "/401", "/200"}, `"9/1h";q=9;w=3600, "5/1h";q=5;w=3600 | "5/1h";r=3;t=2160`},
		{"NewAll, forgotten", all(), []string{"/401", "/401", "/303"}, `"9/1h";q=9;w=3600, "5/1h";q=5;w=3600 | "5/1h";r=5;t=3600`},

		{"count", byRules(`{"rules":[{"name":"r","key":["ip"],"limits":"3/h",`+counted+`}]}`, httplimit.Options{}), []string{"/401", "/401", "/200"}, `"r";q=3;w=3600 | "r";r=1;t=2400`},
		{"below the reservation", byRules(`{"rules":[{"name":"r","key":["ip"],"limits":"10/h",`+cost+`}]}`, httplimit.Options{}), []string{"/200/1"}, `"r";q=10;w=3600 | "r";r=9;t=3240`},
		{"above it", byRules(`{"rules":[{"name":"r","key":["ip"],"limits":"30/h",`+cost+`}]}`, httplimit.Options{}), []string{"/200/25"}, `"r";q=30;w=3600 | "r";r=5;t=3000`},
		{"into debt", byRules(`{"rules":[{"name":"r","key":["ip"],"limits":"10/h debt 100",`+cost+`}]}`, httplimit.Options{}), []string{"/200/25"}, `"r";q=10;w=3600 | "r";r=0;t=9000`},
		{"two rules, the other is tighter now", byRules(`{"rules":[{"name":"a","key":["ip"],"limits":"2/h"},{"name":"b","key":["ip"],"limits":"1/h",`+counted+`}]}`, httplimit.Options{}), []string{"/200"},
			`"a";q=2;w=3600, "b";q=1;w=3600 | "a";r=1;t=1800`},
		{"two rules of two limits, this one is tighter now", byRules(`{"rules":[{"name":"a","key":["ip"],"limits":["20/h","90/day"]},{"name":"b","key":["ip"],"limits":["99/day","50/h"],`+cost+`}]}`, httplimit.Options{}), []string{"/200/45"},
			`"a/gcra:1h";q=20;w=3600, "a/gcra:24h";q=90;w=86400, "b/gcra:24h";q=99;w=86400, "b/gcra:1h";q=50;w=3600 | "b/gcra:1h";r=5;t=3240`},
		{"Settle under rules", byRules(`{"rules":[{"name":"a","key":["ip"],"limits":"2/h"},{"name":"b","key":["ip"],"limits":"9/h"}]}`, settle), []string{"/401", "/200"},
			`"a";q=2;w=3600, "b";q=9;w=3600 | "a";r=1;t=1800`},
		{"a rule in shadow", byRules(`{"rules":[{"name":"a","key":["ip"],"limits":"2/h"},{"name":"b","key":["ip"],"limits":"1/h","shadow":true,`+counted+`}]}`, httplimit.Options{}), []string{"/200"},
			`"a";q=2;w=3600 | "a";r=1;t=1800`},
		{"a hidden rule", byRules(`{"rules":[{"name":"a","key":["ip"],"limits":"5/h","fields":"hide"},{"name":"b","key":["ip"],"limits":"9/h",`+counted+`}]}`, httplimit.Options{}), []string{"/200"},
			`"b";q=9;w=3600 | "b";r=9;t=3600`},
	} {
		h, got := c.guard(answers), ""
		for _, path := range c.paths {
			got = fields(serve(h, path).Header())
		}
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.about, got, c.want)
		}
	}
}

// TestLeaversAreCharged: who leaves before the status, or whose body breaks off, is charged as one that
// fails, by a limiter and by rules, whatever the handler then answers.
func TestLeaversAreCharged(t *testing.T) {
	for path, want := range map[string][2]int{"/0": {1, 0}, "/499": {1, 1}, "/502": {1, 1}, "/200": {0, 0}, "/400": {0, 1}, "/401": {1, 1}, "/grpc": {1, 1}} {
		for i, broken := range []bool{false, true} {
			rules := sound(t)(httplimit.NewPolicy(policyOf(t, frozen(t), `{"rules":[{"name":"r","key":["ip"],"limits":"9/h","count":{"status":[401]}}]}`), httplimit.ClientIP{}, httplimit.Options{}))
			for by, guard := range map[string]func(http.Handler) http.Handler{"limiter": guard(t, limiter(t, frozen(t), "9/h"), httplimit.Options{Settle: failures}), "rules": rules} {
				ctx, leave := context.WithCancel(t.Context())
				h := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if broken {
						_, _ = io.Copy(io.Discard, r.Body)
					} else {
						leave()
					}
					if path != "/0" { // which answers nothing: 200, if its client is there
						answers(w, r)
					}
				}))
				body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path, body))
				leave()
				used := 9
				for serve(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })), "/").Code == http.StatusUnauthorized {
					used--
				}
				if used != want[i] {
					t.Errorf("%s, broken %v, by %s: %d used, want %d", path, broken, by, used, want[i])
				}
			}
		}
	}
}

// TestDeadlinesAreCharged: a gRPC call whose server ends it at its client's deadline is charged as one that
// fails, though its client is still there.
func TestDeadlinesAreCharged(t *testing.T) {
	for timeout, want := range map[string]int{"1m": 9, "1H": 0, "": 0} {
		h := guard(t, limiter(t, frozen(t), "9/h"), httplimit.Options{Settle: failures})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(2 * time.Millisecond)
			w.WriteHeader(http.StatusBadGateway)
		}))
		for range 9 {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			if timeout != "" {
				r.Header.Set("Grpc-Timeout", timeout)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if got := serve(h, "/").Code == http.StatusTooManyRequests; got != (want == 9) {
			t.Errorf("timeout %q: denied %v, want %d used", timeout, got, want)
		}
	}
}

// TestNestedAreSettled: each of several guards replaces what itself has said, and the tightest
// of all is shown, whoever is settled.
func TestNestedAreSettled(t *testing.T) {
	for _, dialect := range []httplimit.Dialect{httplimit.Draft11, httplimit.Draft06, httplimit.XRateLimit} {
		for _, c := range []struct {
			outer, middle, inner string
			settles              string // which of them settle
			path                 string
			want                 string // the limit and what remains
		}{
			{"3/h", "9/h", "8/h", "o", "/200", "3 3"},
			{"3/h", "3/h", "8/h", "o", "/200", "3 2"}, // the outer one has 3
			{"9/h", "8/h", "2/h", "i", "/200", "2 2"},
			{"3/h", "8/h", "2/h", "omi", "/200", "2 2"},
			{"9/h", "5/h", "5/h", "i", "/200", "5 4"}, // the middle one's
			{"5/h", "9/h", "5/h", "o", "/200", "5 4"}, // the inner one's
			{"9/h", "3/h", "4/h", "m", "/200", "3 3"},
			{"9/h", "4/h", "3/h", "omi", "/403", "3 1"},
			{"9/h", "4/h", "3/h", "o", "/403", "3 2"},
		} {
			h := http.Handler(answers)
			for i, text := range []string{c.inner, c.middle, c.outer} {
				o := httplimit.Options{Dialect: dialect}
				if strings.Contains(c.settles, "imo"[i:i+1]) {
					o.Settle = failures
				}
				h = guard(t, limiter(t, frozen(t), text), o)(h)
			}
			if got := remaining(dialect, serve(h, c.path).Header()); got != c.want {
				t.Errorf("%v, %+v: %s", dialect, c, got)
			}
		}
	}
}

// remaining returns the limit and what remains of it, as the fields of a dialect say it.
func remaining(d httplimit.Dialect, h http.Header) string {
	switch d {
	case httplimit.Draft11:
		name, rest, _ := strings.Cut(h.Get("RateLimit"), "/1h\";r=")
		left, _, _ := strings.Cut(rest, ";")
		return name[1:] + " " + left
	case httplimit.Draft06:
		return h.Get("RateLimit-Limit") + " " + h.Get("RateLimit-Remaining")
	}
	return h.Get("X-RateLimit-Limit") + " " + h.Get("X-RateLimit-Remaining")
}

// TestDenialStands: what the outer guard gives back does not change what the inner one has
// denied by.
func TestDenialStands(t *testing.T) {
	store := frozen(t)
	o := httplimit.Options{Settle: func(int, http.Header, int64) int64 { return 0 }}
	h := guard(t, limiter(t, store, "1/h"), o)(guard(t, limiter(t, store, "1/day"), httplimit.Options{})(answers))
	serve(h, "/200")
	const want = `"1/1h";q=1;w=3600, "1/24h";q=1;w=86400 | "1/24h";r=0;t=86400 | 86400`
	if got := fields(serve(h, "/200").Header()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestBehindAreSettled: the fields that a server behind adds to a guard's stay, and the guard's
// are settled.
func TestBehindAreSettled(t *testing.T) {
	for _, c := range []struct {
		dialect httplimit.Dialect
		adds    string
		want    string
	}{
		{httplimit.Draft11, `"up";r=7;t=9`, `"3/1h";q=3;w=3600 | "3/1h";r=3;t=3600 AND "up";r=7;t=9`},
		{httplimit.Draft06, "7", `3;w=3600 | 3 AND 7 | 3 AND 7 | 0 AND 7`},
	} {
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.dialect == httplimit.Draft11 {
				w.Header().Set("RateLimit", c.adds)
				return
			}
			for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
				w.Header().Set(name, c.adds)
			}
		}))
		to, err := url.Parse(behind.URL)
		if err != nil {
			t.Fatal(err)
		}
		h := guard(t, limiter(t, frozen(t), "3/h sliding_log"), httplimit.Options{Settle: failures, Dialect: c.dialect})(httputil.NewSingleHostReverseProxy(to))
		got := fields(serve(h, "/").Header())
		behind.Close()
		if want := strings.ReplaceAll(c.want, `r=3;t=3600`, `r=3;t=1`); strings.ReplaceAll(got, " sliding_log", "") != want {
			t.Errorf("%v: %s, want %s", c.dialect, got, want)
		}
	}
}

// An owing store takes reservations, and settles them later.
type owing struct{ stint.Store }

func (o owing) Settle(context.Context, stint.ReservationID, int64) (stint.Decision, error) {
	return stint.Decision{Allowed: true, Tightest: -1}, nil
}

// TestOwedSettlement: a settlement that does not say what remains leaves the fields as they are.
func TestOwedSettlement(t *testing.T) {
	h := guard(t, limiter(t, owing{frozen(t)}, "3/h"), httplimit.Options{Settle: failures})(answers)
	if got := fields(serve(h, "/200").Header()); got != `"3/1h";q=3;w=3600 | "3/1h";r=2;t=2400` {
		t.Error(got)
	}
}
