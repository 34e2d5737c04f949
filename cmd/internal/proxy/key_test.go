package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/proxy"
)

func TestByAddress(t *testing.T) {
	for _, test := range []struct{ remote, want string }{
		{"192.0.2.1:4711", "192.0.2.1"},
		{"192.0.2.2:4711", "192.0.2.2"},
		{"[::ffff:192.0.2.1]:4711", "192.0.2.1"},
		{"[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"},
		{"[2001:db8:1:2::1]:80", "2001:db8:1:2::/64"},
		{"[2001:db8:1:3::1]:80", "2001:db8:1:3::/64"},
		{"[fe80::1%eth0]:80", "fe80::/64"},
		{"@", ""},
		{"", ""},
	} {
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{
			"X-Forwarded-For": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}, "X-Real-Ip": {"203.0.113.9"},
		}}
		if got := proxy.ByAddress(r); got != test.want {
			t.Errorf("%s: key %q, want %q", test.remote, got, test.want)
		}
	}
}

func TestParseKey(t *testing.T) {
	r := &http.Request{
		RemoteAddr: "192.0.2.1:80",
		Host:       "Example.org",
		Header:     http.Header{"X-Api-Key": {"k1"}, "X-Twice": {"k1", "k2"}},
	}
	for _, test := range []struct{ text, want string }{
		{"ip", "192.0.2.1"},
		{"none", ""},
		{"header.X-Api-Key", "k1"},
		{"header.x-api-key", "k1"},
		{"header.x-missing", ""},
		{"header.x-twice", ""},
		{"header.host", "example.org"},
	} {
		key, err := proxy.ParseKey(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		} else if got := key(r); got != test.want {
			t.Errorf("%s: key %q, want %q", test.text, got, test.want)
		}
	}
	for _, text := range []string{"", "IP", "header", "header.", "header.a b", "header.ü", "cookie.sid"} {
		if _, err := proxy.ParseKey(text); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}

func TestRedact(t *testing.T) {
	for _, text := range []string{
		"http: panic serving 192.0.2.1:4711: boom",
		"http: panic serving [2001:db8::1]:4711: boom",
		"http: panic serving [fe80::1%eth0]:4711: boom",
		"http: panic serving [::1]:4711: boom",
		"http: panic serving 2001:db8::1: boom",
	} {
		if got := proxy.Redact(text); got != "http: panic serving [address]: boom" {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"12:30:01 suppressing panic", "EOF", "a[0]: 1.2.3"} {
		if got := proxy.Redact(text); got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := proxy.Redact("read tcp 127.0.0.1:8000->192.0.2.1:99: reset"); strings.Contains(got, "192") {
		t.Error(got)
	}
}
