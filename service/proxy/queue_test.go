package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// source binds rules to a store of their own.
func source(t testing.TB, f *rules.File) *rules.Source {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	s, err := rules.Open(store, "", f, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oneRule is the rules of flags.
func oneRule(t testing.TB, key string, limits ...string) *rules.File {
	t.Helper()
	f, err := proxy.OneRule("proxy", key, limits)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// yaml is the rules of a file.
func yaml(t testing.TB, text string) *rules.File {
	t.Helper()
	f, err := rules.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// observer counts, and logs nothing.
func observer(t testing.TB) *observe.Observer {
	o := observe.New(observe.Options{})
	t.Cleanup(o.Close)
	return o
}

// handler returns a Handler with what o leaves out filled in.
func handler(t testing.TB, f *rules.File, o proxy.Options) *proxy.Handler {
	t.Helper()
	if o.Upstream == nil {
		o.Upstream = &url.URL{Scheme: "http", Host: "upstream"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Source, o.Observer = source(t, f), observer(t)
	h, err := proxy.NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// An upstream without a network, which notes when each path was asked for.
type upstream struct {
	begin time.Time
	mu    sync.Mutex
	asked []string
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, fmt.Sprintf("%s%s at %v", r.URL.Path, body, time.Since(u.begin)))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// bubble is a handler in front of an upstream, both on the virtual clock of
// package synctest.
func bubble(t *testing.T, limits ...string) (*proxy.Handler, *upstream) {
	u := &upstream{begin: time.Now()}
	return handler(t, oneRule(t, "ip", limits...), proxy.Options{Transport: u}), u
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestRetryAfterIsTight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := bubble(t, "2 per 3s burst 1", "1000/h")
		if w := get(h, "/"); w.Code != http.StatusOK {
			t.Fatalf("the first is answered %d", w.Code)
		}
		w := get(h, "/")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" {
			t.Errorf("denied with %d, Retry-After %q, want 429 and 2: 1.5s rounded up", w.Code, w.Header().Get("Retry-After"))
		}
		want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"title":"Quota Exceeded","status":429,"violated-policies":["proxy/gcra:3s"]}` + "\n"
		if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("body %s (%s), want %s", got, w.Header().Get("Content-Type"), want)
		}
		time.Sleep(2 * time.Second)
		if w := get(h, "/"); w.Code != http.StatusOK {
			t.Errorf("after Retry-After: %d", w.Code)
		}
	})
}

func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, u := bubble(t, "1/s burst 2 leaky_queue")
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { get(h, fmt.Sprintf("/%d", i)) })
			synctest.Wait()
		}
		if w := get(h, "/3"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("a full queue answers %d, Retry-After %q, want 429 and 1", w.Code, w.Header().Get("Retry-After"))
		}
		wg.Wait()
		want := []string{"/0 at 0s", "/1 at 1s", "/2 at 2s"}
		if !slices.Equal(u.asked, want) {
			t.Errorf("started %q, want %q", u.asked, want)
		}
		if passed, denied := h.Counts(); passed != 3 || denied != 1 {
			t.Errorf("%d passed, %d denied", passed, denied)
		}
	})
}

func TestQueueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, u := bubble(t, "1/s burst 2 leaky_queue")
		ctx, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{t.Context(), ctx, t.Context()} {
			wg.Go(func() {
				body := bytes.NewBufferString(" with a body")
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("/%d", i), body)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		hangUp()
		synctest.Wait()
		wg.Go(func() { get(h, "/3") }) // the place that became free
		wg.Wait()
		want := []string{"/0 with a body at 0s", "/2 with a body at 1s", "/3 at 2s"}
		if !slices.Equal(u.asked, want) {
			t.Errorf("started %q, want %q", u.asked, want)
		}
		if passed, denied := h.Counts(); passed != 3 || denied != 0 {
			t.Errorf("%d passed, %d denied", passed, denied)
		}
	})
}

func TestQueueBodyBroken(t *testing.T) {
	h, u := bubble(t, "1/s burst 2 leaky_queue")
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("half"), broken{}))
	r.ContentLength = 8
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || len(u.asked) != 0 {
		t.Errorf("answered %d, the upstream was asked for %q", w.Code, u.asked)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestStoreClosed(t *testing.T) {
	store := memstore.New(memstore.Options{})
	src, err := rules.Open(store, "", oneRule(t, "ip", "1/s"), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := proxy.NewHandler(proxy.Options{
		Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Source: src,
		Observer: observer(t), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if w := get(h, "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a decision: %d, want 503", w.Code)
	}
}
