package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

func limiter(t testing.TB, store stint.Store, texts ...string) *stint.Limiter {
	t.Helper()
	if store == nil {
		store = memstore.New(memstore.Options{})
	}
	var limits []stint.Limit
	for _, text := range texts {
		l, err := stint.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	l, err := stint.NewLimiter(store, limits[0].Name(), limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sound takes a guard that must be made without an error.
func sound(t testing.TB) func(g func(http.Handler) http.Handler, err error) func(http.Handler) http.Handler {
	return func(g func(http.Handler) http.Handler, err error) func(http.Handler) http.Handler {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
}

func guard(t testing.TB, l *stint.Limiter, o httplimit.Options) func(http.Handler) http.Handler {
	t.Helper()
	return sound(t)(httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), o))
}

// status answers with the status that the path says.
var status = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	var code int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &code); err == nil {
		w.WriteHeader(code)
	}
})

// back returns a Settle that gives back the charge of some statuses.
func back(refund func(status int) bool) func(int, http.Header, int64) int64 {
	if refund == nil {
		return nil
	}
	return func(status int, _ http.Header, cost int64) int64 {
		if refund(status) {
			return 0
		}
		return cost
	}
}

func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func serve(h http.Handler, path string) *httptest.ResponseRecorder {
	return recorded(h, httptest.NewRequest(http.MethodGet, path, nil))
}

// TestNewErrors makes guards of what cannot be guarded.
func TestNewErrors(t *testing.T) {
	store := memstore.New(memstore.Options{})
	l, key, none := limiter(t, store, "1/s"), httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{}
	refunds := httplimit.Options{Settle: back(func(int) bool { return true })}
	waits := httplimit.Options{Settle: refunds.Settle, MaxWait: time.Second}
	pair := func(l *stint.Limiter, key httplimit.Key) httplimit.Pair { return httplimit.Pair{Limiter: l, Key: key} }
	errorOf := func(g func(http.Handler) http.Handler, err error) error {
		if g != nil {
			t.Errorf("a guard beside %v", err)
		}
		return err
	}
	for name, err := range map[string]error{
		"limiter":           errorOf(httplimit.New(nil, key, none)),
		"unmade":            errorOf(httplimit.New(&stint.Limiter{}, key, none)),
		"key":               errorOf(httplimit.New(l, nil, none)),
		"dialect":           errorOf(httplimit.New(l, key, httplimit.Options{Dialect: 99})),
		"missing":           errorOf(httplimit.New(l, key, httplimit.Options{Missing: 99})),
		"refund and wait":   errorOf(httplimit.New(l, key, waits)),
		"refund and queue":  errorOf(httplimit.New(limiter(t, nil, "1/s burst 3 leaky_queue"), key, refunds)),
		"refund and places": errorOf(httplimit.New(limiter(t, nil, "2 in flight"), key, refunds)),
		"queue and places":  errorOf(httplimit.New(limiter(t, nil, "2 in flight", "2/s leaky_queue"), key, none)),
		"policy":            errorOf(httplimit.NewPolicy(nil, httplimit.ClientIP{}, none)),
		"policy func":       errorOf(httplimit.NewPolicyFunc(nil, httplimit.ClientIP{}, none)),
		"no pairs":          errorOf(httplimit.NewAll(none)),
		"pair's limiter":    errorOf(httplimit.NewAll(none, pair(nil, key))),
		"pair's key":        errorOf(httplimit.NewAll(none, pair(l, nil))),
		"one pair twice":    errorOf(httplimit.NewAll(none, pair(l, key), pair(l, key))),
		"two stores":        errorOf(httplimit.NewAll(none, pair(l, key), pair(limiter(t, nil, "1/s"), key))),
		"unmade pair":       errorOf(httplimit.NewAll(none, pair(&stint.Limiter{}, key))),
		"places of a pair":  errorOf(httplimit.NewAll(none, pair(l, key), pair(limiter(t, store, "1 in flight"), key))),
		"pairs' limits":     errorOf(httplimit.NewAll(httplimit.Options{Limits: func(*http.Request) []stint.Limit { return nil }}, pair(l, key))),
		"pairs' dialect":    errorOf(httplimit.NewAll(httplimit.Options{Dialect: 99}, pair(l, key))),
		"pairs that refund": errorOf(httplimit.NewAll(waits, pair(l, key))),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "httplimit: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHooks(t *testing.T) {
	var seen []string
	h := guard(t, limiter(t, nil, "1/h"), httplimit.Options{
		Skip: func(r *http.Request) bool { return r.URL.Path == "/skip" },
		Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path) - 1) },
		OnDecision: func(r *http.Request, o httplimit.Outcome) {
			seen = append(seen, fmt.Sprint(r.URL.Path, " ", o.Key, " ", o.Decision.Allowed, " ", o.Violated, " ", o.Shadow))
		},
		Denied: func(w http.ResponseWriter, r *http.Request, o httplimit.Outcome) {
			http.Error(w, "slow down: "+o.Decision.RetryAfter.String(), http.StatusTeapot)
		},
	})(status)
	for _, test := range []struct {
		path, retry string
		status      int
	}{
		{"/skip", "", 200}, {"/a", "", 200}, {"/", "", 200}, {"/bb", "", http.StatusTeapot},
	} {
		rec := serve(h, test.path)
		if rec.Code != test.status || rec.Header().Get("Retry-After") != test.retry {
			t.Errorf("%s: %d, %v", test.path, rec.Code, rec.Header())
		}
	}
	rec := serve(h, "/c")
	if rec.Code != http.StatusTeapot || rec.Header().Get("Retry-After") != "3600" || rec.Header().Get("RateLimit") != `"1/1h";r=0;t=3600` {
		t.Errorf("%d, %v", rec.Code, rec.Header())
	}
	want := []string{
		"/a 192.0.2.1 true [] false", "/ 192.0.2.1 true [] false",
		"/bb 192.0.2.1 false [1/1h] false", "/c 192.0.2.1 false [1/1h] false",
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("hooks saw %q, want %q", seen, want)
	}
}

// failing is a store whose decisions fail.
type failing struct {
	stint.Store
	err error
}

type failingBound struct {
	stint.Bound
	err error
}

func (f failing) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := f.Store.Bind(name, limits...)
	return failingBound{b, f.err}, err
}

func (f failingBound) Decide(context.Context, meter.Op, string, int64) (stint.Decision, error) {
	return stint.Decision{}, f.err
}

// TestFailOpenIsForStores: with FailOpen, requests pass if the store fails, but not if they cannot be decided
// although it answers, or clients could choose to send such requests.
func TestFailOpenIsForStores(t *testing.T) {
	broken := errors.New("the store is broken")
	unknown := func(r *http.Request) int64 { return r.ContentLength } // -1 for a chunked body
	for name, test := range map[string]struct {
		o          httplimit.Options
		want       error
		code, open int // without FailOpen, and with it
	}{
		"store":          {httplimit.Options{}, broken, 503, 204},
		"store, queued":  {httplimit.Options{MaxWait: time.Second}, broken, 503, 204},
		"layers":         {httplimit.Options{}, stint.ErrLayers, 503, 503},
		"cost":           {httplimit.Options{Cost: unknown}, stint.ErrCost, 400, 400},
		"cost, queued":   {httplimit.Options{Cost: unknown, MaxWait: time.Second}, stint.ErrCost, 400, 400},
		"cost, refunded": {httplimit.Options{Cost: unknown, Settle: back(func(int) bool { return true })}, stint.ErrCost, 400, 400},
	} {
		var reported error
		test.o.OnError = func(_ *http.Request, err error) { reported = err }
		store := stint.Store(memstore.New(memstore.Options{}))
		if test.want != stint.ErrCost {
			store = failing{store, test.want}
		}
		for open, want := range map[bool]int{false: test.code, true: test.open} {
			test.o.FailOpen = open
			handlers := map[string]http.Handler{"": guard(t, limiter(t, store, "1/s"), test.o)(status)}
			if test.want == stint.ErrCost {
				handlers[", by rules"] = ruled(t, policyOf(t, store, `{"rules":[{"name":"r","key":[],"limits":"1/s"}]}`), test.o)
			}
			for by, h := range handlers {
				r := httptest.NewRequest(http.MethodPost, "/204", http.NoBody)
				r.ContentLength = -1
				if rec := recorded(h, r); rec.Code != want || !errors.Is(reported, test.want) || rec.Header().Get("RateLimit") != "" {
					t.Errorf("%s%s, open %v: %d, %v, reported %v; want %d, %v", name, by, open, rec.Code, rec.Header(), reported, want, test.want)
				}
			}
		}
	}
}

// TestGone: a client that leaves while the store decides opens no guard, with FailOpen or
// without.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := false
		h := guard(t, limiter(t, nil, "1/h"), httplimit.Options{FailOpen: true, MaxWait: 2 * time.Hour})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
		serve(h, "/")
		reached = false
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for _, ctx := range []context.Context{ctx, ctx} {
			if rec := recorded(h, request("192.0.2.1:1").WithContext(ctx)); reached || rec.Code == 200 {
				t.Errorf("%d, reached %v", rec.Code, reached)
			}
		}
	})
}

// TestRefundAborted: of a handler that panics, as a reverse proxy does when its client has left, counts the
// status that it has sent, or 500. A flush that the server cannot do sends no status.
func TestRefundAborted(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter)
		want    int
	}{
		"panic":             {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, http.StatusInternalServerError},
		"panic after a 401": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized); panic(http.ErrAbortHandler) }, http.StatusUnauthorized},
		"flush in vain": {func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Flush returns %v", err)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}, http.StatusUnauthorized},
	} {
		saw := 0
		h := guard(t, limiter(t, nil, "1/h"), httplimit.Options{Settle: back(func(status int) bool { saw = status; return status != 401 })})
		func() {
			defer func() {
				if why := recover(); (why == http.ErrAbortHandler) != strings.Contains(name, "panic") {
					t.Errorf("%s: the panic becomes %v", name, why)
				}
			}()
			bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
			h(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.handler(w) })).ServeHTTP(bare, httptest.NewRequest(http.MethodGet, "/", nil))
		}()
		if saw != c.want {
			t.Errorf("%s: counts as %d", name, saw)
		}
		if later := serve(h(status), "/200").Code; (later == http.StatusTooManyRequests) != (c.want == 401) {
			t.Errorf("%s: later %d", name, later)
		}
	}
}

// TestQueue sends a burst of requests to a slow endpoint at once: they start at
// an even pace, and what the queue has no room for is denied at once.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guard(t, limiter(t, nil, "1/s burst 2 leaky_queue"), httplimit.Options{})(status)
		began := time.Now()
		var mu sync.Mutex
		got := make(map[string]int)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				rec := serve(h, "/200")
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(rec.Code, " ", time.Since(began), " ", rec.Header().Get("Retry-After"))]++
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		want := map[string]int{"200 0s ": 1, "200 1s ": 1, "200 2s ": 1, "429 3ms 1": 1, "429 4ms 1": 1}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestQueueMaxWaitNamesTheQueue: a request that would wait too long is denied at once, and
// told after how long it would not, and which of several limits made the wait too long.
func TestQueueMaxWaitNamesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guard(t, limiter(t, nil, "9/h", "1/s burst 9 leaky_queue"), httplimit.Options{MaxWait: 500 * time.Millisecond})(status)
		began := time.Now()
		serve(h, "/200")
		rec := serve(h, "/200")
		if rec.Code != 429 || rec.Header().Get("Retry-After") != "1" || time.Since(began) != 0 || !strings.Contains(rec.Body.String(), `["9/1h/leaky_queue:1s"]`) {
			t.Errorf("%d, %v, %s after %v", rec.Code, rec.Header(), rec.Body, time.Since(began))
		}
	})
}

func change(t *testing.T, l *stint.Limiter, texts ...string) {
	t.Helper()
	if err := l.SetLimits(limiter(t, nil, texts...).Limits()...); err != nil {
		t.Fatal(err)
	}
}

// TestGuardUnderChangedLimits changes the limits of a guard's limiter: the fields show the
// limits in force, and requests wait if one is a leaky_queue.
func TestGuardUnderChangedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, nil, "9/h")
		h := guard(t, l, httplimit.Options{})(status)
		for _, c := range []struct{ limits, policy, rate string }{
			{"", `"9/1h";q=9;w=3600`, `"9/1h";r=8;t=3200`},
			{"5/h", `"9/1h";q=5;w=3600`, `"9/1h";r=3;t=2160`},
			{"5/h; 2/24h", `"9/1h/gcra:1h";q=5;w=3600, "9/1h/gcra:24h";q=2;w=86400`, `"9/1h/gcra:24h";r=1;t=43200`},
			{"5/h; 1/s burst 9 leaky_queue", `"9/1h/gcra:1h";q=5;w=3600, "9/1h/leaky_queue:1s";q=10;w=10`, `"9/1h/gcra:1h";r=1;t=2880`},
			{"5/h", `"9/1h";q=5;w=3600`, `"9/1h";r=0;t=3600`},
		} {
			if c.limits != "" {
				change(t, l, strings.Split(c.limits, "; ")...)
			}
			f := serve(h, "/200").Header()
			if got, rate := f.Get("RateLimit-Policy"), f.Get("RateLimit"); got != c.policy || rate != c.rate {
				t.Errorf("%s:\n got %s and %s\nwant %s and %s", c.limits, got, rate, c.policy, c.rate)
			}
		}
		change(t, l, "1/s burst 9 leaky_queue")
		time.Sleep(24 * time.Hour)
		began := time.Now()
		for range 3 {
			serve(h, "/200")
		}
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("three start within %v at one a second", waited)
		}
	})
}

// A goneWriter is the writer of a client that has gone. A plainWriter around it hides its
// further methods behind Unwrap.
type goneWriter struct{ *httptest.ResponseRecorder }

var errGone = errors.New("the client has gone")

func (goneWriter) FlushError() error                            { return errGone }
func (goneWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errGone }
func (goneWriter) SetReadDeadline(time.Time) error              { return errGone }
func (goneWriter) SetWriteDeadline(time.Time) error             { return errGone }
func (goneWriter) EnableFullDuplex() error                      { return errGone }
func (goneWriter) ReadFrom(io.Reader) (int64, error)            { return 0, errGone }

// A plainWriter has the methods that every writer has, and Unwrap.
type plainWriter struct {
	http.ResponseWriter
	in http.ResponseWriter
}

func (w plainWriter) Unwrap() http.ResponseWriter { return w.in }

// TestWriterErrors: if a write, flush or hijack fails, the handler gets the error, with
// Settle as without. Without Settle, the writer is the server's own.
func TestWriterErrors(t *testing.T) {
	for _, refund := range []func(int) bool{nil, func(int) bool { return false }} {
		for _, wrapped := range []bool{false, true} {
			gone := goneWriter{httptest.NewRecorder()}
			var writer http.ResponseWriter = gone
			if wrapped {
				writer = plainWriter{httptest.NewRecorder(), gone}
			}
			h := guard(t, limiter(t, nil, "100/s"), httplimit.Options{Settle: back(refund)})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if refund == nil && w != writer {
					t.Error("the writer was wrapped")
				}
				control := http.NewResponseController(w)
				_, _, hijack := control.Hijack()
				for name, err := range map[string]error{
					"Flush": control.Flush(), "Hijack": hijack, "EnableFullDuplex": control.EnableFullDuplex(),
					"SetReadDeadline": control.SetReadDeadline(time.Time{}), "SetWriteDeadline": control.SetWriteDeadline(time.Time{}),
				} {
					if !errors.Is(err, errGone) {
						t.Errorf("refund %t, wrapped %t: %s returns %v, want %v", refund != nil, wrapped, name, err, errGone)
					}
				}
				if !wrapped {
					if _, err := w.(io.ReaderFrom).ReadFrom(io.LimitReader(strings.NewReader("a"), 1)); !errors.Is(err, errGone) {
						t.Errorf("refund %t: ReadFrom returns %v", refund != nil, err)
					}
				}
			}))
			h.ServeHTTP(writer, httptest.NewRequest(http.MethodGet, "/", nil))
		}
	}
}

// TestStaleHeaders: a denial drops the headers that described the answer it replaces.
func TestStaleHeaders(t *testing.T) {
	h := guard(t, limiter(t, nil, "1/h"), httplimit.Options{})(status)
	serve(h, "/")
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Encoding", "gzip")
	rec.Header().Set("Content-Length", "7")
	rec.Header().Set("Etag", `"x"`)
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 429 x\r\nContent-Length: "+rec.Header().Get("Content-Length")+"\r\n\r\n"+rec.Body.String())), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || len(body) != rec.Body.Len() || rec.Header().Get("Content-Encoding") != "" || rec.Header().Get("Etag") != "" {
		t.Errorf("%v, %v", rec.Header(), err)
	}
}
