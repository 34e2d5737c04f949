package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-dev/stint/service/proxy"
)

// TestOneRule asks twice: the second is denied if both have one key.
func TestOneRule(t *testing.T) {
	type peer struct{ remote, host, key string }
	for _, test := range []struct {
		key    string
		a, b   peer
		shared bool
	}{
		{"ip", peer{remote: "192.0.2.1:4711"}, peer{remote: "192.0.2.1:99"}, true},
		{"ip", peer{remote: "192.0.2.1:4711"}, peer{remote: "192.0.2.2:4711"}, false},
		{"ip", peer{remote: "[2001:db8:1:2:3:4:5:6]:1"}, peer{remote: "[2001:db8:1:2::1]:80"}, true},
		{"ip", peer{remote: "@"}, peer{remote: ""}, true},
		{"none", peer{remote: "192.0.2.1:1"}, peer{remote: "192.0.2.2:1", key: "k"}, true},
		{"header.X-Api-Key", peer{key: "a"}, peer{key: "a"}, true},
		{"header.x-api-key", peer{key: "a"}, peer{key: "b"}, false},
		{"header.x-api-key", peer{}, peer{}, true},
		{"header.host", peer{host: "Example.org"}, peer{host: "example.ORG:8000"}, true},
		{"header.host", peer{host: "example.org"}, peer{host: "example.net"}, false},
	} {
		h := handler(t, oneRule(t, test.key, "1/h"), proxy.Options{Transport: empty})
		var codes []int
		for _, p := range []peer{test.a, test.b} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = p.remote
			// What a client claims about its address changes nothing.
			r.Header = http.Header{"X-Forwarded-For": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}, "X-Real-Ip": {"203.0.113.9"}}
			if p.host != "" {
				r.Host = p.host
			}
			if p.key != "" {
				r.Header.Set("X-Api-Key", p.key)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			codes = append(codes, w.Code)
		}
		want := http.StatusOK
		if test.shared {
			want = http.StatusTooManyRequests
		}
		if codes[0] != http.StatusOK || codes[1] != want {
			t.Errorf("%s: %+v, %+v: answered %v, want 200 and %d", test.key, test.a, test.b, codes, want)
		}
	}
	for _, text := range []string{"", "IP", "header", "header.", "header.a b", "header.ü", "cookie.sid"} {
		if _, err := proxy.OneRule("proxy", text, []string{"1/h"}); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}
