package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/cmd/internal/service/proxy"
)

// TestForwardHeaders looks at what the upstream hears of the client: the word of
// this connection and of trusted proxies, never the client's own.
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
		{"headers that Connection names", httplimit.ClientIP{}, "192.0.2.7:1",
			[]string{"Connection: X-Forwarded-For, X-Real-Ip, X-Secret", "X-Forwarded-For: 10.0.0.1", "X-Secret: 1"},
			[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 192.0.2.7"}},
		{"IPv6", httplimit.ClientIP{}, "[2001:db8::7%eth0]:1", nil,
			[]string{"X-Forwarded-For: 2001:db8::7", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Real-Ip: 2001:db8::7"}},
		{"a Unix socket", httplimit.ClientIP{}, "@", []string{"X-Forwarded-For: 10.0.0.1", "X-Real-Ip: 10.0.0.1"},
			[]string{"X-Forwarded-Host: example.com", "X-Forwarded-Proto: http"}},
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
			got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "User-Agent") })
			if !slices.Equal(got, test.want) {
				t.Errorf("the upstream hears\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
