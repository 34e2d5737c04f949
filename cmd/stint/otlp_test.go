package main_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestOTLP sends spans of sampled traces to a collector at the end.
func TestOTLP(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string][]byte)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = append(got[r.URL.Path], body...)
	}))
	defer collector.Close()
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", serveRules), "--http", "127.0.0.1:0", "--otlp", collector.URL)
	const sampled, not = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
	for _, parent := range []string{"00-" + sampled + "-b7ad6b7169203331-01", "00-" + not + "-b7ad6b7169203331-00", "", "nonsense"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/v1/check", strings.NewReader(`{"attributes":{"ip":"192.0.2.7"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if parent != "" {
			r.Header.Set("Traceparent", parent)
		}
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	s.stop("")
	mu.Lock()
	defer mu.Unlock()
	spans := got["/v1/traces"]
	for id, want := range map[string]int{sampled: 1, not: 0} {
		raw, _ := hex.DecodeString(id)
		if n := bytes.Count(spans, raw); n != want {
			t.Errorf("%d spans of trace %s, want %d", n, id, want)
		}
	}
	if bytes.Count(spans, []byte("stint.rate_limit")) == 0 || bytes.Contains(spans, []byte("192.0.2.7")) {
		t.Errorf("spans: %q", spans)
	}
}
