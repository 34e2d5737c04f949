package proxy_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

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

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}
