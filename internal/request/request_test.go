package request_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stint-dev/stint/internal/request"
)

// TestParse reads names as rules write them.
func TestParse(t *testing.T) {
	for _, c := range []struct{ name, want, reason, hint string }{
		{"path", "path", "", ""},
		{"header.X-Api-Key", "header.x-api-key", "", ""},
		{"cookie.Session", "cookie.Session", "", ""},
		{"body./model", "body./model", "", ""},
		{"jwt.sub", "jwt.sub", "", ""},
		{"descriptor.2", "descriptor.2", "", ""},
		{"", "", `"" is no name of an attribute`, "known are method, host, path, ip, header.NAME, query.NAME, cookie.NAME, body./POINTER; any other must be given by the caller"},
		{"a b", "", `"a b" is no name of an attribute`, "known are method"},
		{"header", "", `"header" lacks the name of the header`, "such as header.NAME"},
		{"header.a:b", "", `"a:b" is no name of a header`, ""},
		{"query.", "", `"query." lacks the name of the query`, "such as query.NAME"},
		{"body.model", "", `"body.model": a JSON pointer begins with a slash`, "such as body./model"},
		{"headers.x", "", `unknown attribute "headers.x"`, "did you mean header.x?"},
		{"ip.v4", "", `unknown attribute "ip.v4"`, "did you mean ip?"},
		{"PATH", "", `unknown attribute "PATH"`, "did you mean path?"},
		{"Cookie.a", "", `unknown attribute "Cookie.a"`, "did you mean cookie.a?"},
	} {
		a, reason, hint := request.Parse(c.name)
		if !strings.HasPrefix(reason, c.reason) || reason != "" && c.reason == "" || !strings.HasPrefix(hint, c.hint) || reason == "" && a.Name != c.want {
			t.Errorf("%q: %q, %q, %q; want %q, %q, %q", c.name, a.Name, reason, hint, c.want, c.reason, c.hint)
		}
	}
}

// TestHTTP reads an attribute of each kind that requests of HTTP have.
func TestHTTP(t *testing.T) {
	q := request.HTTP{
		Client:  func() (netip.Addr, string, bool) { return netip.Addr{}, "192.0.2.7", true },
		Pointer: func(p string) (string, bool) { return "at " + p, true },
		More:    func(name string) (string, bool) { return "anna", name == "jwt.sub" },
	}
	q.Reset("POST", "example.com", &url.URL{Path: "/a/b", RawPath: "/a%2fb"}, "q=1&q=2&%zz", http.Header{
		"Authorization": {"Bearer x"}, "X-Api-Key": {"one", "two"}, "Cookie": {"c=3"},
	})
	read := make(map[request.Kind]bool)
	for name, want := range map[string]string{
		"method": "POST", "host": "example.com", "header.host": "example.com", "path": "/a%2fb", "ip": "192.0.2.7",
		"header.authorization": "Bearer x", "header.x-api-key": "one", "header.X-API-KEY": "one", "query.q": "1", "cookie.c": "3",
		"body./model": "at /model", "jwt.sub": "anna",
	} {
		if got, ok := q.Attribute(name); got != want || !ok {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, want)
		}
		read[request.Of(name).Kind] = true
	}
	for k := range request.Kinds {
		if by := (request.Attribute{Kind: k}).Given(false, true); by&request.Whole != 0 && !read[k] {
			t.Errorf("%v can give %q, and no request here has it", by, k)
		}
	}
	q.Reset("", "", nil, "", nil)
	q.Client, q.Pointer, q.More = nil, nil, nil
	for _, name := range []string{"method", "host", "header.host", "path", "ip", "header.x", "query.q", "cookie.c", "body./model", "jwt.sub", "grpc.method"} {
		if got, ok := q.Attribute(name); got != "" || ok {
			t.Errorf("%s of an empty request: %q, %v", name, got, ok)
		}
	}
}

// TestHeaderNames finds each header under the name that net/http keeps it by, in any spelling.
func TestHeaderNames(t *testing.T) {
	read := func(name string) bool {
		q := request.HTTP{Header: http.Header{http.CanonicalHeaderKey(name): {"v"}}}
		_, ok := q.Attribute("header." + name)
		_, reason, _ := request.Parse("header." + name)
		return ok || reason != "" || strings.EqualFold(name, "host")
	}
	for _, name := range []string{"x-api-key", "X--a", "-", "a_b", "x1-2y", "é-x", "WWW-authenticate", strings.Repeat("long-", 40)} {
		if !read(name) {
			t.Errorf("%q is not found", name)
		}
	}
	if err := quick.Check(read, nil); err != nil {
		t.Error(err)
	}
}

// TestHTTPAllocates reads headers by names that net/http does not know without an
// allocation.
func TestHTTPAllocates(t *testing.T) {
	q := request.HTTP{Header: http.Header{"X-Api-Key": {"one"}}}
	if n := testing.AllocsPerRun(100, func() { q.Attribute("header.x-api-key") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
