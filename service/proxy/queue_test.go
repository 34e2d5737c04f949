package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// source binds rules to a store of their own.
func source(t testing.TB, f *rules.File) *rules.Source {
	t.Helper()
	return sourceOn(t, memstore.New(memstore.Options{}), f)
}

func sourceOn(t testing.TB, store stint.Store, f *rules.File) *rules.Source {
	t.Helper()
	t.Cleanup(func() { _ = store.Close() })
	s, err := rules.Open(store, "", f, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oneRule returns the rules that flags describe.
func oneRule(t testing.TB, key string, limits ...string) *rules.File {
	t.Helper()
	f, err := proxy.OneRule("proxy", key, limits)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// yaml returns the rules of a file.
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
