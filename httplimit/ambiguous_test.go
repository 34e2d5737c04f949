package httplimit_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

const looksAt = `{"rules": [{"name": "a", "key": ["header.x-api-key", "cookie.session", "cookie.user_id", "query.action", "query.api_key", "query.user[id]"], "limits": "1000000/s"}]}`

// TestAmbiguous sends what rules look at in ways that servers read differently.
func TestAmbiguous(t *testing.T) {
	rules := made.Rules(t, looksAt)
	p := made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{})
	guard := sound(t)(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{Dialect: httplimit.NoFields}))
	h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		header []string
		query  string
		detail string // "" for a request that all servers read alike
	}{
		{nil, "", ""},
		{[]string{"X-Api-Key: a", "X-Other: 1", "X-Other: 2", "X_other: 3", "Connection: keep-alive, X-Other"}, "", ""},
		{[]string{"X-Api-Key: a", "X-Api-Key: b"}, "", "header.x-api-key"},
		{[]string{"X-Api-Key: a", "X-Api_Key: b"}, "", "header.x-api-key"},
		{[]string{"X_Api_Key: b"}, "", "header.x-api-key"},
		{[]string{"X.Api-Key: b"}, "", "header.x-api-key"},
		{[]string{"X-Api-Key: a", "Connection: close, x-api-key"}, "", "header.x-api-key"},
		{[]string{"Connection: Cookie"}, "", "cookie.session"},

		{[]string{"Cookie: a=b; session=good; c=\"d\"; e={\"f\": [1, 2]}"}, "", ""},
		{[]string{`Cookie: c="d"; session=good`}, "", ""},
		{[]string{"Cookie: session="}, "", ""},
		{[]string{"Cookie: mysession=1;session=a%3Ab;session2=3; a=/x?session=4"}, "", ""},
		{[]string{"Cookie: user.name=1; userid=2; user-id=4"}, "", ""},
		{[]string{"Cookie: Session=good"}, "", "cookie.session"}, // nginx and Caddy ignore the case of a cookie's name
		{[]string{"Cookie: user.id=good"}, "", "cookie.user_id"},
		{[]string{"Cookie: a=b; user id=good"}, "", "cookie.user_id"},
		{[]string{"Cookie: user[id=good"}, "", "cookie.user_id"},
		{[]string{"Cookie: user_id=x; user.id[]=good"}, "", "cookie.user_id"},
		{[]string{"Cookie: session[a]=good"}, "", "cookie.session"},
		{[]string{"Cookie: s%65ssion=good"}, "", "cookie.session"},
		{[]string{`Cookie: session="good"`}, "", "cookie.session"},
		{[]string{`Cookie: session="\147ood"`}, "", "cookie.session"},
		{[]string{"Cookie: session = good"}, "", "cookie.session"},
		{[]string{"Cookie: session =good"}, "", "cookie.session"},
		{[]string{"Cookie: x=1, session=good"}, "", "cookie.session"},
		{[]string{"Cookie: x=1 session=good"}, "", "cookie.session"},
		{[]string{"Cookie: session=a; session=b"}, "", "cookie.session"},
		{[]string{"Cookie: session; session=good"}, "", "cookie.session"}, // Go reads the first as an empty cookie
		{[]string{"Cookie: session=good; session"}, "", "cookie.session"},
		{[]string{"Cookie: a=b;\tsession=good"}, "", "cookie.session"}, // a tab is no blank for nginx
		{[]string{"Cookie: session=good ;a=b"}, "", "cookie.session"},  // nginx takes the next cookie for a part of this one
		{[]string{"Cookie: session=a b"}, "", "cookie.session"},
		{[]string{"Cookie: session=%67ood"}, "", "cookie.session"},
		{[]string{"Cookie: session=j:%22good%22"}, "", "cookie.session"}, // Express reads JSON in this and the next values
		{[]string{"Cookie: session=j%3A%22good%22"}, "", "cookie.session"},
		{[]string{"Cookie: a=j:1; session=s%3Aj:1"}, "", ""},
		{[]string{"Cookie: session=j"}, "", ""},
		{[]string{"Cookie: session=a%7Eb"}, "", "cookie.session"},
		{[]string{"Cookie: user%5Fid=a"}, "", "cookie.user_id"},
		{[]string{"Cookie: session=good%00x"}, "", "cookie.session"},
		{[]string{`Cookie: x="a; session=good; y=b"`}, "", "cookie.session"},
		{[]string{`Cookie: x="a\"; session=good; y="`}, "", "cookie.session"},
		{[]string{"Cookie: session=a", "Cookie: b=c"}, "", "cookie.session"},
		{[]string{"Cookie: " + strings.Repeat("a;", 1000) + "session=a"}, "", "cookie.session"},

		{nil, "x=1&action=login&y=%zz", ""},
		{nil, "faction=1&action=%6cogin+x", ""},
		{nil, "x=1;action=login", "query.action"},
		{nil, "action=login?", "query.action"}, // HAProxy ends the value at the ?
		{nil, "action=login?x=1", "query.action"},
		{nil, "x=1?action=login", "query.action"},
		{nil, "x=1?y?Action=login", "query.action"},
		{nil, "x=/a?b=/a?action.x=1", ""},
		{nil, "action=login%3F&x=1?", ""},
		{nil, "action=login&action=b", "query.action"},
		{nil, "action=login&%61ction=b", "query.action"},
		{nil, "%61ction=login", ""},
		{nil, "a[action]=b&[b]action=c&inaction=1&action_=2&actions[]=3", ""},
		{nil, "api%5Fkey=a", ""},
		{nil, "action[]=login", "query.action"},
		{nil, "[action]=login", "query.action"},
		{nil, "[action=login", "query.action"},
		{nil, "]action=login", "query.action"},
		{nil, "action]=login", "query.action"},
		{nil, "%5Baction%5D=login", "query.action"},
		{nil, "action[a%zz]=login", "query.action"},
		{nil, "?action=login", "query.action"},
		{nil, "Action=login", "query.action"}, // ASP.NET ignores case
		{nil, "api.key=a", "query.api_key"},
		{nil, "api%20key=a", "query.api_key"},
		{nil, "+api%2Ekey=a", "query.api_key"},
		{nil, "api[key=a", "query.api_key"},
		{nil, "api_key%00x=a", "query.api_key"},
		{nil, "user[id]=a&user[x]=a&user[idx]=a&id=a&user=a&x[user][id]=a", ""},
		{nil, "user%5Bid%5D=a", ""},
		{nil, "user[id]x=a", "query.user[id]"},
		{nil, "user[id]]=a", "query.user[id]"},
		{nil, "user%5Bid].y=a", "query.user[id]"},
		{nil, "user][id]=a", "query.user[id]"},
		{nil, "[user[id]=a", "query.user[id]"},
		{nil, "user[id][]=a", "query.user[id]"},
		{nil, "api-key=a&api[key]=a&key=a", ""},
		{nil, "+action=login", "query.action"},
		{nil, "action%00=login", "query.action"},
		{nil, "action=login%zz", "query.action"},
		{nil, "action=%ff", "query.action"},
		{nil, "action=a#b", "query.action"},
		{nil, "action=login%00x", "query.action"},
		{[]string{"Content-Type: text/plain; charset=utf-7"}, "action=%2BAGw-ogin", "query.action"}, // Django decodes this and the next by the charset
		{[]string{"Content-Type: text/plain; charset=unicode_escape"}, "%5Cx61ction=login", "query.action"},
		{[]string{"Content-Type: x", "Content-Type: x; Charset=\"UTF-7\""}, "action=%2BAGw-ogin", "query.action"},
		{[]string{"Content-Type: x; charset=utf-8; charset=utf-7"}, "x=1", "query.action"},
		{[]string{"Content-Type: x; charset=utf-7"}, "", ""},
		{[]string{"Content-Type: x; charset=ISO-8859-1"}, "action=caf%C3%A9", "query.action"},
		{[]string{"Content-Type: x; charset=windows-1252"}, "%e9&action=x", "query.action"},
		{[]string{"Content-Type: x; charset=US-ASCII"}, "action=caf%c3%a9", "query.action"},
		{[]string{"Content-Type: x; charset=ISO-8859-1"}, "action=login%7e&x=%zz%25e9", ""},
		{[]string{"Content-Type: application/json; charset=UTF-8"}, "action=caf%C3%A9", ""},
		{nil, strings.Repeat("a&", 1000) + "action=login", "query.action"},
	} {
		r := request("192.0.2.1:1", test.header...)
		r.URL.RawQuery = test.query
		var a httplimit.Ambiguous
		var fault *policy.RequestError
		errors.As(a.Check(rules, r), &fault)
		w := recorded(h, r)
		switch {
		case test.detail == "" && (fault != nil || w.Code != http.StatusOK):
			t.Errorf("%q, %q: refused: %v, %d", test.header, test.query, fault, w.Code)
		case test.detail != "" && (fault == nil || fault.Attribute != test.detail):
			t.Errorf("%.100q, %.100q: %v, want a fault of %s", test.header, test.query, fault, test.detail)
		case test.detail != "" && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), test.detail+": ")):
			t.Errorf("%.100q, %.100q: answered %d %s", test.header, test.query, w.Code, w.Body)
		}
	}
}

// sent is GET / with a header and a query.
func sent(header http.Header, query string) *http.Request {
	return &http.Request{Method: http.MethodGet, Host: "a.example", URL: &url.URL{Path: "/", RawQuery: query}, Header: header}
}

// TestShadowRefusesNothing: a request in which servers read differently what only rules in
// shadow look at passes, whole. What a rule in force looks at is still refused.
func TestShadowRefusesNothing(t *testing.T) {
	const inShadow = `{"rules": [{"name": "a", "match": {"body./k": "victim", "header.x-k": "*"}, "block": true, "shadow": true},
		{"name": "b", "match": {"body./k": "victim"}, "block": true, "shadow": true},
		{"name": "c", "match": {"path": "/admin/**", "host": "a.example"}, "block": true, "shadow": true},
		{"name": "d", "key": ["query.q", "cookie.c", "header.x-k", "method"], "limits": "1000/s", "shadow": true},
		{"name": "e", "key": ["jwt.sub"], "limits": "1000/s", "shadow": true},
		{"name": "f", "key": ["query.in_force"], "limits": "100/s"}], "attributes": ["jwt.sub"]}`
	denied := 0
	h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), inShadow), httplimit.Options{
		Attribute:  func(*http.Request, string) (string, bool) { return "", false },
		OnDecision: func(_ *http.Request, o httplimit.Outcome) { denied += map[bool]int{true: 1}[o.Rules.ShadowDenied] },
	})
	for _, test := range []struct {
		target, body, kind string
		header             http.Header
		want, denied       int
	}{
		{"/?q=1", `{"k": "victim"}`, "application/json", nil, 200, 1},
		{"/", "k=victim", "application/x-www-form-urlencoded", nil, 200, 0},
		{"/", `{"k": "vic`, "application/json", nil, 200, 0},
		{"/", `{"k": "victim", "k": 1}`, "application/json", nil, 200, 0},
		{"/", strings.Repeat("x", 12<<17), "application/octet-stream", nil, 200, 0},
		{"/?q=1&q=2", "", "", nil, 200, 0},
		{"/?q[]=1", "", "", nil, 200, 0},
		{"/", "", "", http.Header{"Cookie": {`c="x"`}}, 200, 0},
		{"/", "", "", http.Header{"X-K": {"a", "b"}}, 200, 0},
		{"/", "", "", http.Header{"X-K": {" \x01\xff"}}, 200, 0},
		{"/", "", "", http.Header{"X-Http-Method-Override": {"PUT"}, "X-Forwarded-Host": {"b.example"}, "X-Original-Url": {"/x"}}, 200, 0},
		{"/admin%2fx", "", "", nil, 200, 0},
		{"/x/../admin/x", "", "", nil, 200, 1}, // the rule reads the host as a.example
		{"/?in_force=1&in_force=2", "", "", nil, 400, 0},
	} {
		r := httptest.NewRequest(http.MethodPost, test.target, strings.NewReader(test.body))
		r.Host = "a.example"
		if test.kind != "" {
			r.Header.Set("Content-Type", test.kind)
		}
		maps.Copy(r.Header, test.header)
		denied = 0
		if w := recorded(h, r); w.Code != test.want || denied != test.denied {
			t.Errorf("%s %.20s %v: %d %s, %d times denied in shadow, want %d and %d", test.target, test.body, test.header, w.Code, w.Body, denied, test.want, test.denied)
		}
	}
	r := request("192.0.2.1:1")
	r.Host = "a..b"
	if w := recorded(h, r); w.Code != http.StatusOK {
		t.Errorf("a host that is none: %d %s", w.Code, w.Body)
	}
}

// TestAmbiguousPath sends paths that routers take for others than rules do.
func TestAmbiguousPath(t *testing.T) {
	looks := made.Rules(t, `{"rules": [{"name": "a", "match": {"path": "/login"}, "key": [], "limits": "1000000/s"}]}`)
	looksNot := made.Rules(t, looksAt)
	h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "a", "match": {"path": "/login"}, "key": [], "limits": "1000000/s"}]}`), httplimit.Options{})
	for _, test := range []struct {
		path   string
		detail string // "" for a path that all routers read alike
	}{
		{"", ""},
		{"/", ""},
		{"/login", ""},
		{"/login/", ""},
		{"/login?next=/../x//y%6c", ""},
		{"/...", ""},
		{"/.well-known/a..b/.c", ""},
		{"/caf%C3%A9/a%20b/a%40b/100%25", ""},
		{"/users/@me/a:b,c", ""},

		{"*", "slash"},
		{"login", "slash"},
		{"/..", "dot segment"},
		{"/.", "dot segment"},
		{"/files/../login", "dot segment"},
		{"/files/..", "dot segment"},
		{"/./login", "dot segment"},
		{"/login/.", "dot segment"},
		{"//login", "empty segment"},
		{"//", "empty segment"},
		{"/files//login", "empty segment"},
		{"/login//", "empty segment"},
		{"/%6cogin", "encoding"},
		{"/%4cogin", "encoding"},
		{"/logi%6E", "encoding"},
		{"/a%20%7Euser", "encoding"},
		{"/a%2Db", "encoding"},
		{"/a%5fb", "encoding"},
		{"/a%2eb", "encoding"},
		{"/%31", "encoding"},
		{"/%2e%2e/login", "encod"},
	} {
		var a httplimit.Ambiguous
		if err := a.CheckPath(looksNot, test.path); err != nil {
			t.Errorf("%q, where no rule looks at the path: %v", test.path, err)
		}
		var fault *policy.RequestError
		errors.As(a.CheckPath(looks, test.path), &fault)
		if got := fault != nil; got != (test.detail != "") || got && (fault.Attribute != "path" || !strings.Contains(fault.Reason, test.detail)) {
			t.Errorf("%q: %v, want %q", test.path, fault, test.detail)
		}
		if !strings.HasPrefix(test.path, "/") {
			continue // httptest needs a path that begins with a slash
		}
		want := http.StatusOK
		if test.detail != "" {
			want = http.StatusBadRequest
		}
		if w := serve(h, test.path); w.Code != want {
			t.Errorf("%q: answered %d %s, want %d", test.path, w.Code, w.Body, want)
		}
	}
}

// TestCookieBlanks: servers in Python and JavaScript drop blanks beside a cookie's name, not
// only those of ASCII.
func TestCookieBlanks(t *testing.T) {
	rules := made.Rules(t, looksAt)
	blanks := []string{"\u0085", "\u00a0", "\u1680", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "\u200b", " \xa0", "\xa0 ", "\xa0\xa0"}
	for c := '\u2000'; c <= '\u200a'; c++ {
		blanks = append(blanks, string(c))
	}
	for c := 0x7f; c <= 0xff; c++ {
		blanks = append(blanks, string([]byte{byte(c)}))
	}
	var a httplimit.Ambiguous
	for _, b := range blanks {
		for _, line := range []string{b + "user_id=good", "a=b;" + b + "user_id=good", "a=b; " + b + "user_id=good", "user_id" + b + "=good", b + "user_id" + b + "=good", "a=" + b + "user_id=good", b + "User.id=good", "user_id" + b} {
			if a.Check(rules, sent(http.Header{"Cookie": {line}}, "")) == nil {
				t.Errorf("%q is read in one way", line)
			}
		}
	}
	for _, line := range []string{"x=caf\u00e9 au lait; user_id=good", "user_id=good; na\u00efve_id=x; y=\u00a0"} {
		if err := a.Check(rules, sent(http.Header{"Cookie": {line}}, "")); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestRawPath: the path is decided by as it was sent, even if it has characters that would be
// encoded anew, since some routers find a handler by it.
func TestRawPath(t *testing.T) {
	h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "a", "match": {"path": "/login"}, "key": [], "limits": "1000000/s"}]}`), httplimit.Options{})
	for path, want := range map[string]int{"/a|b": 200, "/a|b%2Fc": 400, "/a|b/%2e%2e/c": 400, "/a|%6cogin": 400} {
		if w := serve(h, path); w.Code != want {
			t.Errorf("%q: answered %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.URL.Opaque, r.URL.Path = "http://h/login", "" // no path
	if w := recorded(h, r); w.Code != http.StatusBadRequest {
		t.Errorf("an opaque target: %d", w.Code)
	}
	r = httptest.NewRequest(http.MethodGet, "/a%2Fb", nil)
	r.URL.Path = "/login" // as a handler may do that leaves RawPath as it was
	if w := recorded(h, r); w.Code != http.StatusOK || w.Header().Get("RateLimit") == "" {
		t.Errorf("a path that was changed: %d %v", w.Code, w.Header())
	}
}

// TestServeMux: a mux redirects to the clean path, as without a guard, and the request counts
// under the rules of the clean path. A CONNECT is not redirected.
func TestServeMux(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/files/", func(http.ResponseWriter, *http.Request) {})
	guard := sound(t)(httplimit.NewPolicy(policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "login", "match": {"path": "/login"}, "key": [], "limits": "2/h"}]}`), httplimit.ClientIP{}, httplimit.Options{}))
	h := guard(mux)
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/files//../login", http.StatusTemporaryRedirect}, {"GET", "/%6cogin", http.StatusOK}, {"GET", "/login", http.StatusTooManyRequests},
		{"GET", "//login", http.StatusTooManyRequests}, {"CONNECT", "/files/../login", http.StatusBadRequest}, {"GET", "/files/%2e%2e/login", http.StatusBadRequest},
	} {
		r := httptest.NewRequest(http.MethodGet, test.path, nil)
		r.Method = test.method
		if w := recorded(h, r); w.Code != test.want {
			t.Errorf("%s %s: %d %s, want %d", test.method, test.path, w.Code, w.Body, test.want)
		}
	}
}

// TestAmbiguousByRules sends the same requests under rules that look at none of their faults.
func TestAmbiguousByRules(t *testing.T) {
	rules := made.Rules(t, `{"rules": [{"name": "a", "key": ["ip"], "limits": "1/s"}]}`)
	var a httplimit.Ambiguous
	header := http.Header{"X-Api-Key": {"a", "b"}, "Cookie": {"session=a", "session=b"}, "Connection": {"X-Api-Key, Cookie"}}
	if err := a.Check(rules, sent(header, "action=1;action=2")); err != nil {
		t.Error(err)
	}
	r := sent(header, "")
	if n := testing.AllocsPerRun(100, func() { _ = a.Check(rules, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	rules = made.Rules(t, looksAt)
	header = http.Header{"X-Api-Key": {"a"}, "Cookie": {"a=b; session=c"}, "Connection": {"keep-alive"}, "User-Agent": {"x"}}
	r = sent(header, "x=1&action=login")
	if n := testing.AllocsPerRun(100, func() { _ = a.Check(rules, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
