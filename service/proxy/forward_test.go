package proxy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
)

// TestForwardHeaders looks at what the upstream learns about a client: what this connection and
// trusted proxies say, never what the client says.
func TestForwardHeaders(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48")}
	for _, test := range []struct {
		name   string
		client httplimit.ClientIP
		peer   string
		sent   []string
		want   []string
	}{
		{"a client", httplimit.ClientIP{Trusted: trusted}, "192.0.2.7:1", nil,
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"a client that claims", httplimit.ClientIP{Trusted: trusted}, "192.0.2.7:1",
			[]string{"X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: a", "X-Forwarded-Proto: https", "X-Real-Ip: 10.0.0.1", "Forwarded: for=10.0.0.1",
				"X_Forwarded_For: 10.0.0.1", "X_Real_IP: 10.0.0.1"},
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"a client that claims in other words", httplimit.ClientIP{Trusted: trusted}, "192.0.2.7:1",
			[]string{"X-Forwarded-Ssl: on", "X-Forwarded-Scheme: https", "X-Forwarded-Port: 443", "X-Forwarded-Prefix: /a", "X-Forwarded-Server: a", "X-Forwarded-Client-Cert: a",
				"True-Client-IP: 10.0.0.1", "CF-Connecting-IP: 10.0.0.1", "X-Client-IP: 10.0.0.1", "X-Cluster-Client-IP: 10.0.0.1", "X-Original-URL: /admin", "X-Rewrite-URL: /admin", "Front-End-Https: on", "X-Forwarded_Ssl: on",
				"X-Forwarded: 10.0.0.1", "Forwarded-For: 10.0.0.1", "X-Real-Client-IP: 10.0.0.1", "X-Host: a", "X-HTTP-Host-Override: a", "Proxy: http://10.0.0.1"},
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"behind a proxy that says more", httplimit.ClientIP{Trusted: trusted}, "10.0.0.1:1",
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Port: 443", "True-Client-IP: 192.0.2.7"},
			[]string{"True-Client-Ip: 192.0.2.7", "X-Forwarded-For: 192.0.2.7, 10.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Port: 443", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"headers that Connection names", httplimit.ClientIP{}, "192.0.2.7:1",
			[]string{"Connection: X-Forwarded-For, X-Real-Ip, X-Secret", "X-Forwarded-For: 10.0.0.1", "X-Secret: 1"},
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"IPv6", httplimit.ClientIP{}, "[2001:db8::7%eth0]:1", nil,
			[]string{"X-Forwarded-For: 2001:db8::7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 2001:db8::7"}},
		{"a Unix socket", httplimit.ClientIP{}, "@", []string{"X-Forwarded-For: 10.0.0.1", "X-Real-Ip: 10.0.0.1"},
			[]string{"X-Forwarded-Host: example.com", "X-Forwarded-Proto: http"}},
		{"a Unix socket with a proxy", httplimit.ClientIP{TrustUnix: true, Trusted: trusted}, "@",
			[]string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2", "X-Forwarded-Host: www.example.org", "X-Forwarded-Proto: https", "X-Real-Ip: 6.6.6.6", "True-Client-IP: 192.0.2.7"},
			[]string{"True-Client-Ip: 192.0.2.7", "X-Forwarded-For: 192.0.2.7, 10.0.0.2", "X-Forwarded-Host: www.example.org", "X-Forwarded-Proto: https", "X-Real-Ip: 192.0.2.7"}},
		{"a Unix socket with a proxy that has a header of its own", httplimit.ClientIP{TrustUnix: true, Header: "X-Real-Ip"}, "@",
			[]string{"X-Forwarded-For: 6.6.6.6", "X-Real-Ip: 192.0.2.7"},
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"behind a proxy", httplimit.ClientIP{Trusted: trusted}, "10.0.0.1:1",
			[]string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 192.0.2.7, 10.0.0.2", "X-Forwarded-Host: www.example.org", "X-Forwarded-Proto: https"},
			[]string{"X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.2, 10.0.0.1", "X-Forwarded-Host: www.example.org", "X-Forwarded-Proto: https", "X-Real-Ip: 192.0.2.7"}},
		{"behind one by IPv6 that says nothing", httplimit.ClientIP{Trusted: trusted}, "[2001:db8:f::1]:1", nil,
			[]string{"X-Forwarded-For: 2001:db8:f::1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 2001:db8:f::1"}},
		{"behind one whose range is mapped", httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}, "10.0.0.1:1",
			[]string{"X-Forwarded-For: 192.0.2.7"},
			[]string{"X-Forwarded-For: 192.0.2.7, 10.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"behind one that says two protocols", httplimit.ClientIP{Trusted: trusted}, "10.0.0.1:1",
			[]string{"X-Forwarded-Proto: https", "X-Forwarded-Proto: http"},
			[]string{"X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 10.0.0.1"}},
		{"behind one with a header of its own", httplimit.ClientIP{Trusted: trusted, Header: "X-Real-Ip"}, "10.0.0.1:1",
			[]string{"X-Forwarded-For: 6.6.6.6", "X-Real-Ip: 192.0.2.7"}, // the list is what the client sent
			[]string{"X-Forwarded-For: 192.0.2.7, 10.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			h := handler(t, oneRule(t, "none", "10/s"), proxy.Options{
				Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Client: test.client,
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					for name, lines := range r.Header {
						for _, line := range lines {
							got = append(got, name+": "+line)
						}
					}
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}),
			})
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = test.peer
			for _, line := range test.sent {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			slices.Sort(got)
			got = slices.DeleteFunc(got, func(line string) bool {
				return strings.HasPrefix(line, "User-Agent") || strings.HasPrefix(line, "Cdn-Loop: stint-")
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("the upstream hears\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestOtherHost asks for one host, and in a header for a blocked host. A trusted proxy's request is
// refused if a rule reads the header; the header of anybody else reaches neither rules nor upstream.
func TestOtherHost(t *testing.T) {
	for _, test := range []struct {
		rules, sent string
		trusted     int // what a trusted proxy is answered
	}{
		{"match: {host: b.example}, block: true", "X-Forwarded-Host: b.example", 400},
		{"match: {host: b.example}, block: true", "X-Forwarded-Host: EXAMPLE.com:80", 200},
		{"match: {host: b.example}, block: true", "Forwarded: host=b.example", 400},
		{"match: {path: /secret}, block: true", "X-Original-Url: /secret", 400},
		{"match: {path: /secret}, block: true", "X-Forwarded-Host: b.example", 200},
		{"match: {path: /secret}, block: true", "Script_name: /x", 200}, // whose spelling no proxy has: it is dropped
		{"match: {header.x-forwarded-host: b.example}, block: true", "X-Forwarded-Host: b.example", 403},
	} {
		for peer, want := range map[string]int{"10.0.0.1:1": test.trusted, "192.0.2.7:1": 200} {
			name, value, _ := strings.Cut(test.sent, ": ")
			h := handler(t, yaml(t, "rules:\n  - {name: one, "+test.rules+"}\n"), proxy.Options{
				Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Underscores: true,
				Client: httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					if line := r.Header.Get(name); peer == "192.0.2.7:1" && line != "" && line != "example.com" {
						t.Errorf("the upstream hears %s: %s", name, line)
					}
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}),
			})
			r := httptest.NewRequest(http.MethodGet, "/x/secret", nil)
			r.RemoteAddr, r.Header[name] = peer, []string{value}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("{%s}, %s, from %s: %d %s, want %d", test.rules, test.sent, peer, w.Code, w.Body, want)
			}
		}
	}
}

// TestLoop points a proxy at itself, and two proxies at each other: a request comes back only once.
func TestLoop(t *testing.T) {
	var front [2]*proxy.Handler
	asked := 0
	for i := range front {
		front[i] = handler(t, oneRule(t, "none", "10/s"), proxy.Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if asked++; asked > 10 {
				t.Fatal("it goes around and around")
			}
			w := httptest.NewRecorder()
			r.RemoteAddr = "192.0.2.1:1"
			front[1-i].ServeHTTP(w, r)
			return w.Result(), nil
		})})
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Cdn-Loop"] = []string{"other; a=b", "stint-other"} // which have a say about themselves alone
	w := httptest.NewRecorder()
	front[0].ServeHTTP(w, r)
	if w.Code != http.StatusLoopDetected || asked != 2 || !strings.Contains(w.Body.String(), "before") {
		t.Errorf("answered %d after %d rounds: %s", w.Code, asked, w.Body)
	}
}

// TestUnlistedProxy: the log warns once of a proxy that is not listed, and of 16 proxies at most. A
// peer on a public network may be a client, and is not in the log.
func TestUnlistedProxy(t *testing.T) {
	var log bytes.Buffer
	h := handler(t, oneRule(t, "ip", "1000/s"), proxy.Options{
		Client: httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Transport: empty,
	})
	ask := func(peer string, n int, says bool) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer + ":1"
		if says {
			r.Header.Set("X-Forwarded-For", "192.0.2.9")
		}
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if got := strings.Count(log.String(), "trusted_proxies"); got != n {
			t.Errorf("after %s: %d warnings, want %d", peer, got, n)
		}
	}
	ask("10.0.0.4", 0, false)
	ask("10.1.0.5", 0, true)
	ask("192.0.2.1", 0, true)
	for i := range 20 {
		ask(fmt.Sprintf("10.0.0.%d", i), min(i+1, 16), true)
	}
	if !strings.Contains(log.String(), "peer=10.0.0.5") || strings.Contains(log.String(), "192.0.2") {
		t.Error(log.String())
	}
}
