package proxy_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
)

// behind is an upstream that answers with the request that it got.
func behind(t *testing.T) (target *url.URL) {
	t.Helper()
	server := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.RequestURI)
	})
	return server
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// raw sends the bytes of a request, and returns the status and the body of the
// answer, or the status alone where it is not 200.
func (f *front) raw(t testing.TB, request string) string {
	t.Helper()
	conn := f.dial(t)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // an answer that never comes is none
	fmt.Fprint(conn, request)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.StatusCode)
	}
	var text strings.Builder
	_, _ = bufio.NewReader(answer.Body).WriteTo(&text) // what came of it is compared
	return text.String()
}

const blocks = `
rules:
  - {name: admin, match: {host: admin.internal}, block: true}
  - {name: login, match: {path: /login}, block: true}
  - {name: post, match: {method: POST}, block: true}
`

// TestTargets sends targets and hosts that servers read in different ways: they
// are refused, or go on in the form that rules decided by.
func TestTargets(t *testing.T) {
	target := behind(t)
	plain := start(t, target, 0, yaml(t, blocks), httplimit.ClientIP{})
	app := *target
	app.Path = "/app"
	prefixed := start(t, &app, 0, yaml(t, "rules: [{name: admin, match: {host: admin.internal}, block: true}]"), httplimit.ClientIP{})
	for _, test := range []struct {
		front   *front
		request string // the line, and the Host where it is not h
		want    string
	}{
		{plain, "GET / HTTP/1.1", "GET h /"},
		{plain, "GET /a/b/?x=1;y=%zz HTTP/1.1", "GET h /a/b/?x=1;y=%zz"},
		{plain, "GET /login HTTP/1.1", "403"},
		{plain, "GET a:http://h/login HTTP/1.1", "400"},
		{plain, "GET a:b:/login HTTP/1.1", "400"},
		{plain, "GET a:/login HTTP/1.1", "400"},
		{plain, "GET http:login HTTP/1.1", "400"},
		{plain, "GET HTTP:h/login HTTP/1.1", "400"},
		{plain, "GET https:/login HTTP/1.1", "403"},
		{plain, "GET mailto:x HTTP/1.1", "400"},
		{plain, "GET a:http://admin.internal/x HTTP/1.1", "400"},
		{plain, "GET http://admin.internal/x HTTP/1.1", "403"},
		{plain, "GET http://other/x HTTP/1.1", "GET other /x"},
		{plain, "GET http://other HTTP/1.1", "GET other /"},
		{plain, "GET http://other//login HTTP/1.1", "403"},
		{plain, "GET ftp://other/x HTTP/1.1", "400"},
		{plain, "GET * HTTP/1.1", "400"},
		{plain, "OPTIONS * HTTP/1.1", "400"},
		{plain, "CONNECT h:80 HTTP/1.1", "400"},
		{plain, "GET //h/login HTTP/1.1", "GET h /h/login"},
		{plain, "GET //login HTTP/1.1", "403"},
		{plain, "GET /./x/../login HTTP/1.1", "403"},
		{plain, "GET /x/../../a//b/./ HTTP/1.1", "GET h /a/b/"},
		{plain, "GET /%6cogin HTTP/1.1", "403"},
		{plain, "GET /%61%2d%5B%c3%bc%20 HTTP/1.1", "GET h /a-%5B%C3%BC%20"},
		{plain, "GET /x/%2e%2e/login HTTP/1.1", "400"},
		{plain, "GET /x%2flogin HTTP/1.1", "400"},
		{plain, "GET /x%2flogin|\" HTTP/1.1", "400"},
		{plain, "GET /x|y/../%6c^\u00fc%c3%bc HTTP/1.1", "GET h /l%5E%C3%BC%C3%BC"},
		{plain, "GET /login#x HTTP/1.1", "400"},
		{plain, "GET /?a=1#x HTTP/1.1", "400"},
		{plain, "post / HTTP/1.1", "403"},
		{plain, "get / HTTP/1.1", "GET h /"},
		{plain, "GET / HTTP/1.1\r\nHost: admin.internal", "403"},
		{plain, "GET / HTTP/1.1\r\nHost: ADMIN.internal.:80", "403"},
		{plain, "GET / HTTP/1.1\r\nHost: admin.internal:80:80", "400"},
		{plain, "GET / HTTP/1.1\r\nHost: admin.internal..", "400"},
		{plain, "GET / HTTP/1.1\r\nHost: x@admin.internal", "400"},
		{plain, "GET / HTTP/1.1\r\nHost: admin.internal,h", "400"},
		{plain, "GET / HTTP/1.1\r\nHost:", "400"}, // the upstream would get its own name
		{plain, "GET / HTTP/1.1\r\nHost: Example.ORG.:8000", "GET example.org:8000 /"},
		{plain, "GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80", "GET [2001:db8::1]:80 /"},
		{plain, "GET / HTTP/1.1\r\nHost: 2001:db8::1", "400"},

		{prefixed, "GET /x HTTP/1.1", "GET h /app/x"},
		{prefixed, "GET /../login HTTP/1.1", "GET h /app/login"},
		{prefixed, "GET /a%2fb HTTP/1.1", "GET h /app/a%2fb"}, // no rule looks at the path
		{prefixed, "GET /a%2fb|c;{%41}`\xfc HTTP/1.1", "GET h /app/a%2fb%7Cc;%7B%41%7D%60%FC"},
		{prefixed, "GET /a/..%2flogin| HTTP/1.1", "400"},
		{prefixed, "GET /%2e%2e/login HTTP/1.1", "400"},
		{prefixed, "GET /..%2flogin HTTP/1.1", "400"},
		{prefixed, "GET /%252e%252e/login HTTP/1.1", "400"},
		{prefixed, "GET /x/..;/..;/login HTTP/1.1", "400"},
		{prefixed, "GET a:http://h/admin HTTP/1.1", "400"},
	} {
		request := test.request
		if !strings.Contains(request, "\r\nHost") {
			request += "\r\nHost: h"
		}
		if got := test.front.raw(t, request+"\r\nConnection: close\r\n\r\n"); got != test.want {
			t.Errorf("%q: %q, want %q", test.request, got, test.want)
		}
	}
}

// TestUpgradesAllowed looks at what the upstream gets of requests for an upgrade.
func TestUpgradesAllowed(t *testing.T) {
	var got http.Header
	for _, test := range []struct {
		upgrades []string
		asked    string
		want     string
	}{
		{nil, "websocket", "websocket"},
		{nil, "WebSocket", "WebSocket"},
		{nil, "h2c", ""},
		{nil, "websocket, h2c", ""},
		{nil, "tcp", ""},
		{[]string{"tcp"}, "tcp", "tcp"},
		{[]string{"tcp"}, "websocket", ""},
	} {
		h := handler(t, oneRule(t, "none", "10/s"), proxy.Options{Upgrades: test.upgrades, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r.Header
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {test.asked}, "Http2-Settings": {"AAMAAABkAAQAoAAAAAIAAAAA"}}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got.Get("Upgrade") != test.want || (got.Get("Connection") != "") != (test.want != "") || got["Http2-Settings"] != nil {
			t.Errorf("%s, with %q allowed: %v", test.asked, test.upgrades, got)
		}
	}
}

// TestUnderscores looks at which spellings of headers the upstream gets.
func TestUnderscores(t *testing.T) {
	const keyed = "rules: [{name: a, key: [header.x-api-key], on_missing: deny, limits: 1 per hour}]"
	for _, test := range []struct {
		allowed bool
		sent    []string
		status  int
		want    string // of the headers with X
	}{
		{false, []string{"X-Api_Key: b"}, 403, ""},
		{false, []string{"X-Api-Key: a", "X-Api_Key: b"}, 200, "X-Api-Key: a"},
		{false, []string{"X-Api-Key: a", "X-Api_Key: b", "Connection: X-Api-Key"}, 400, ""},
		{false, []string{"X-Api-Key: a", "Connection: close, x-api_key"}, 400, ""},
		{false, []string{"X-Api-Key: a", "X-Forwarded_For: 1", "X_Forwarded-For: 1", "X-Real_IP: 1", "X-Forwarded_Proto: 1", "X.Forwarded.For: 1"}, 200, "X-Api-Key: a"},
		{false, []string{"X-Api-Key: a", "X.Api.Key: b"}, 400, ""},
		{true, []string{"X-Api-Key: a", "X-Api_Key: b"}, 400, ""},
		{true, []string{"X-Api_Key: b"}, 400, ""},
		{true, []string{"X-Api-Key: a", "X-Other_: 1", "X-Forwarded_For: 1", "X_Real_IP: 1"}, 200, "X-Api-Key: a, X-Other_: 1"},
	} {
		var got []string
		h := handler(t, yaml(t, keyed), proxy.Options{Underscores: test.allowed, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			for name, lines := range r.Header {
				if strings.HasPrefix(name, "X") && name != "X-Forwarded-For" && name != "X-Forwarded-Host" && name != "X-Forwarded-Proto" && name != "X-Real-Ip" {
					got = append(got, name+": "+strings.Join(lines, ","))
				}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, line := range test.sent {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		slices.Sort(got)
		if w.Code != test.status || strings.Join(got, ", ") != test.want {
			t.Errorf("%q: %d, upstream %q; want %d, %q", test.sent, w.Code, got, test.status, test.want)
		}
	}
}
