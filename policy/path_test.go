package policy_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func TestCleanPath(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"", "/"},
		{"/", "/"},
		{"*", "/"},
		{"/login", "/login"},
		{"/login/", "/login"},
		{"//login", "/login"},
		{"/./login/.", "/login"},
		{"/a/../login", "/login"},
		{"/../../login", "/login"},
		{"/a/b/..", "/a"},
		{"/..", "/"},
		{"/...", "/..."},
		{"/.well-known/x", "/.well-known/x"},
		{"/login?next=/a;b%2F", "/login"},
		{"?x", "/"},
		{"/%6Cogin", "/login"},
		{"/a%20b", "/a b"},
		{"/100%25", "/100%"},
		{"/caf%C3%A9", "/café"},
		{"/café", "/café"},
		{"/a%2eb", "/a.b"},

		{"login", "!must begin with a slash"},
		{"/a%2Flogin", "!encoded slash"},
		{"/a%5Clogin", "!encoded slash or backslash"},
		{`/a\login`, "!backslash"},
		{"/login%00", "!control"},
		{"/login\x00", "!control"},
		{"/login\r\nX: y", "!control"},
		{"/login%7f", "!control"},
		{"/login%C2%85", "!control"},
		{"/login;x=1", "!semicolon"},
		{"/login%3Bx", "!semicolon"},
		{"/login#x", "!#"},
		{"/%2e%2e/login", "!dot segment"},
		{"/.%2E/login", "!dot segment"},
		{"/%252e%252e/login", "!twice"},
		{"/a%25%32%66b", "!twice"},
		{"/%", "!hexadecimal"},
		{"/%4", "!hexadecimal"},
		{"/%zz", "!hexadecimal"},
		{"/%u002f", "!hexadecimal"},
		{"/a%C0%AFb", "!UTF-8"},
		{"/a\xff", "!UTF-8"},
		{"/" + strings.Repeat("a", 9000), "!longer"},
	} {
		got, err := policy.CleanPath(c.raw)
		if reason, bad := strings.CutPrefix(c.want, "!"); bad {
			var re *policy.RequestError
			if !errors.As(err, &re) || !errors.Is(err, policy.ErrRequest) || re.Attribute != "path" || !strings.Contains(re.Reason, reason) {
				t.Errorf("%q: %q, %v; want an error about %q", c.raw, got, err, reason)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.raw, got, err, c.want)
		}
	}
}

// FuzzCleanPath: cleaning once is enough. A cleaned path stays the same however it is encoded
// and cleaned again.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%6Cogin//x/.", "/a%252f", "/caf%C3%A9", "*", "/a?b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		clean, err := policy.CleanPath(raw)
		if err != nil {
			if !errors.Is(err, policy.ErrRequest) {
				t.Fatal(err)
			}
			return
		}
		again, err := policy.CleanPath((&url.URL{Path: clean}).EscapedPath())
		if err != nil || again != clean {
			t.Fatalf("%q: %q, then %q, %v", raw, clean, again, err)
		}
		if clean[0] != '/' || clean != "/" && strings.HasSuffix(clean, "/") || strings.Contains(clean, "//") ||
			strings.ContainsAny(clean, "\\;\x00") {
			t.Fatalf("%q: %q", raw, clean)
		}
		for _, seg := range strings.Split(clean, "/") {
			if seg == "." || seg == ".." {
				t.Fatalf("%q: %q", raw, clean)
			}
		}
	})
}

// TestMatch tries one condition at a time: the attribute, the value in the rule, the value in
// the request.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		match string
		attrs policy.Map
		want  bool
	}{
		{`{"path": "/login"}`, policy.Map{"path": "/login"}, true},
		{`{"path": "/login/"}`, policy.Map{"path": "/login"}, true},
		{`{"path": "/login"}`, policy.Map{"path": "//x/..//%6Cogin?a"}, true},
		{`{"path": "/login"}`, policy.Map{"path": "/Login"}, false},
		{`{"path": "/login"}`, policy.Map{"path": "/login/x"}, false},
		{`{"path": "/login"}`, policy.Map{}, false},
		{`{"path": "/"}`, policy.Map{"path": "/"}, true},
		{`{"path": "/"}`, policy.Map{"path": "/a"}, false},
		{`{"path": "/**"}`, policy.Map{"path": "/"}, true},
		{`{"path": "/api/**"}`, policy.Map{"path": "/api"}, true},
		{`{"path": "/api/**"}`, policy.Map{"path": "/apis"}, false},
		{`{"path": "/api/*"}`, policy.Map{"path": "/api/a"}, true},
		{`{"path": "/api/*"}`, policy.Map{"path": "/api"}, false},
		{`{"path": "/api/*"}`, policy.Map{"path": "/api/a/b"}, false},
		{`{"path": "/users/{id}/posts"}`, policy.Map{"path": "/users/7/posts"}, true},
		{`{"path": "/users/{id}/posts"}`, policy.Map{"path": "/users/7/likes"}, false},
		{`{"path": "/{rest...}"}`, policy.Map{"path": "/a/b/c"}, true},
		{`{"path": "/{*rest}"}`, policy.Map{"path": "/a/b/c"}, true},
		{`{"path": "/**/edit"}`, policy.Map{"path": "/a/b/edit"}, true},
		{`{"path": "/**/edit"}`, policy.Map{"path": "/edit"}, true},
		{`{"path": "/**/edit"}`, policy.Map{"path": "/edit/a"}, false},
		{`{"path": "/**/a/**/b"}`, policy.Map{"path": "/x/a/a/y/b/b"}, true},
		{`{"path": "/files/*.png"}`, policy.Map{"path": "/files/a.png"}, true},
		{`{"path": "/files/*.png"}`, policy.Map{"path": "/files/a.jpg"}, false},
		{`{"path": "/v*/x"}`, policy.Map{"path": "/v2/x"}, true},
		{`{"path": ["/a", "/b/*"]}`, policy.Map{"path": "/b/c"}, true},
		{`{"path": true}`, policy.Map{"path": "/b/c"}, true},

		{`{"method": "POST"}`, policy.Map{"method": "POST"}, true},
		{`{"method": "post"}`, policy.Map{"method": "POST"}, true},
		{`{"method": "POST"}`, policy.Map{"method": "post"}, true},
		{`{"method": "GET"}`, policy.Map{"method": "HEAD"}, true},
		{`{"method": "HEAD"}`, policy.Map{"method": "GET"}, false},
		{`{"method": ["PUT", "PATCH"]}`, policy.Map{"method": "POST"}, false},
		{`{"method": "*"}`, policy.Map{"method": "BREW"}, true},

		{`{"host": "api.example.com"}`, policy.Map{"host": "API.Example.com.:8080"}, true},
		{`{"host": "*.example.com"}`, policy.Map{"host": "a.b.example.com"}, true},
		{`{"host": "*.example.com"}`, policy.Map{"host": "example.com"}, false},
		{`{"host": "*.example.com"}`, policy.Map{"host": "evilexample.com"}, false},
		{`{"host": "::1"}`, policy.Map{"host": "[::1]:80"}, true},

		{`{"ip": "10.0.0.0/8"}`, policy.Map{"ip": "10.1.2.3"}, true},
		{`{"ip": "10.0.0.0/8"}`, policy.Map{"ip": "::ffff:10.1.2.3"}, true},
		{`{"ip": "10.0.0.0/8"}`, policy.Map{"ip": "11.1.2.3"}, false},
		{`{"ip": "10.0.0.0/8"}`, policy.Map{"ip": "10.1.2.3:80"}, true},
		{`{"ip": "10.0.0.0/8"}`, policy.Map{"ip": "010.1.2.3"}, false},
		{`{"ip": "2001:db8::/32"}`, policy.Map{"ip": "[2001:db8::7%eth0]:80"}, true},
		{`{"ip": ["192.0.2.7", "2001:db8::1"]}`, policy.Map{"ip": "2001:DB8:0::1"}, true},
		{`{"ip": false}`, policy.Map{"ip": "nonsense"}, true},
		{`{"ip": "0.0.0.0/0"}`, policy.Map{"ip": "2001:db8::1"}, false},

		{`{"header.X-Plan": "pro"}`, policy.Map{"header.x-plan": "pro"}, true},
		{`{"header.x-plan": "pro"}`, policy.Map{"header.x-plan": "Pro"}, false},
		{`{"header.x-plan": "pro-*"}`, policy.Map{"header.x-plan": "pro-1"}, true},
		{`{"header.x-plan": "*-pro"}`, policy.Map{"header.x-plan": "a-pro"}, true},
		{`{"header.x-plan": "a*b*c"}`, policy.Map{"header.x-plan": "a--b--c"}, true},
		{`{"header.x-plan": "a*b*c"}`, policy.Map{"header.x-plan": "a--c--b"}, false},
		{`{"header.x-plan": "aa*aa"}`, policy.Map{"header.x-plan": "aaa"}, false},
		{`{"header.x-plan": "\\*"}`, policy.Map{"header.x-plan": "*"}, true},
		{`{"header.x-plan": "\\*"}`, policy.Map{"header.x-plan": "x"}, false},
		{`{"header.x-plan": "*"}`, policy.Map{"header.x-plan": ""}, true},
		{`{"header.x-plan": "*"}`, policy.Map{}, false},
		{`{"header.x-plan": true}`, policy.Map{"header.x-plan": "x"}, true},
		{`{"header.x-plan": true}`, policy.Map{"header.x-plan": ""}, false},
		{`{"header.x-plan": false}`, policy.Map{}, true},
		{`{"header.x-version": 2}`, policy.Map{"header.x-version": "2"}, true},
		{`{"query.Page": "1", "cookie.S": "x"}`, policy.Map{"query.Page": "1", "cookie.S": "x"}, true},
		{`{"query.Page": "1", "cookie.S": "x"}`, policy.Map{"query.Page": "1"}, false},
		{`[{"query.a": "1"}, {"query.b": "1"}]`, policy.Map{"query.b": "1"}, true},
		{`[{"query.a": "1"}, {"query.b": "1"}]`, policy.Map{"query.c": "1"}, false},
	} {
		// The condition is met by the index, by trying every rule, and as an exception.
		for _, field := range []string{"match", "unless"} {
			p := newPolicy(t, `{"name": "r", "`+field+`": `+c.match+`, "key": [], "limits": ["1/s"]}`)
			want := c.want == (field == "match")
			if got := decide(t, p, c.attrs).Matched; got != want {
				t.Errorf("%s %s, %v: %v", field, c.match, c.attrs, got)
			}
			e, err := p.Explain(c.attrs)
			if err != nil || e.Rules[0].Applies != want {
				t.Errorf("explain %s %s, %v: %v %v", field, c.match, c.attrs, e, err)
			}
		}
	}
}

// TestRefused: a path or a host that servers read in different ways is refused where a rule
// looks at it.
func TestRefused(t *testing.T) {
	var r policy.Result
	for _, attrs := range []policy.Map{{"path": "/x%2f..%2flogin"}, {"host": "a:80:80"}} {
		for match, want := range map[string]error{`{"path": "/login"}`: policy.ErrRequest, `{"host": "a"}`: policy.ErrRequest, `{"method": "GET"}`: nil} {
			if _, looks := attrs[match[2:6]]; !looks {
				want = nil
			}
			p := newPolicy(t, `{"name": "r", "match": `+match+`, "key": ["ip"], "limits": ["1/s"]}`)
			if err := p.Decide(t.Context(), attrs, 1, &r); !errors.Is(err, want) {
				t.Errorf("%v under %s: %v", attrs, match, err)
			}
		}
	}
}

func TestCleanHost(t *testing.T) {
	for _, test := range []struct{ raw, want string }{
		{"", ""},
		{"Example.COM", "example.com"},
		{"example.com.", "example.com"},
		{"example.com.:8080", "example.com"},
		{"example.com:", "example.com"}, // RFC 3986, 3.2.3
		{"a_b-c.d:80", "a_b-c.d"},
		{"192.0.2.7:80", "192.0.2.7"},
		{"[2001:DB8::1]:443", "2001:db8::1"},
		{"[::1]", "::1"},
		{"::1", "::1"},
	} {
		if got, err := policy.CleanHost(test.raw); got != test.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", test.raw, got, err, test.want)
		}
	}
	for _, raw := range []string{
		"admin.internal:80:80", "a:b", "a:-1", "a:65536", "a:+80", ":80", ".", "..", ".a", "a..", "a..b", "a b", " a", "a\t",
		"a,b", "a;b", "user@a", "a/b", "a%2eb", "a\\b", "\u00fc.example", "a\x00", "[::1", "[::1]80", "[::1%eth0]", "[a]", "[1.2.3.4]", "1:2:3",
		strings.Repeat("a", 254),
	} {
		if got, err := policy.CleanHost(raw); !errors.Is(err, policy.ErrRequest) {
			t.Errorf("%q is read as %q, %v", raw, got, err)
		}
	}
}

func TestAttributes(t *testing.T) {
	rules := made.Rules(t, `{"rules": [{"name": "a", "match": {"path": "/x", "header.X-A": true}, "unless": {"cookie.b": "c"},
		"key": ["ip", "query.d"], "limits": "1/s", "cost": {"header": "x-cost"},
		"tiers": {"by": "jwt.plan", "plans": {"pro": "2/s"}}, "overrides": [{"when": {"host": "h"}, "unlimited": true}]}]}`)
	want := []string{"cookie.b", "header.x-a", "header.x-cost", "host", "ip", "jwt.plan", "path", "query.d"}
	if got := rules.Attributes(); !slices.Equal(got, want) {
		t.Errorf("rules look at %q, want %q", got, want)
	}
}

// TestIgnorePathCase asks about paths in upper and lower case, where the file ignores
// it and where it does not, in each place that a path has in rules.
func TestIgnorePathCase(t *testing.T) {
	const text = `{"rules": [
		{"name": "login", "match": {"path": ["/Login", "/sign-IN/*.HTML"]}, "unless": {"path": "/SIGN-in/x.html"}, "key": ["path"], "limits": "5/m",
			"overrides": [{"name": "slow", "when": {"path": "/LOGIN"}, "limits": "2/m"}]},
		{"name": "cafe", "match": {"path": "/CAFÉ/{Name}"}, "key": [], "limits": "5/m"}
	]%s}`
	for _, test := range []struct {
		path string
		key  string // the key of rule login where case is ignored; "" if the rule does not match
		cafe bool
		as   bool // whether the same rules match where case is not ignored
	}{
		{"/Login", "/login", false, true},
		{"/login", "/login", false, false},
		{"/LOGIN/", "/login", false, false},
		{"/%4cogin", "/login", false, true}, // which is /Login
		{"/login.", "/login", false, false}, // as Caddy's matchers have it
		{"/login%20%2e", "/login", false, false},
		{"/login/...", "/login", false, false},
		{"/log.in", "", false, true},
		{"/lo\u0260in", "", false, true},
		{"/sign-IN/A.HTML", "/sign-in/a.html", false, true},
		{"/Sign-In/A.html", "/sign-in/a.html", false, false},
		{"/sign-in/X.HTML", "", false, true},
		{"/CAFÉ/x", "", true, true},
		{"/café/X", "", true, false},
		{"/cafe/x", "", false, true},
	} {
		for _, ignored := range []bool{true, false} {
			rules := made.Rules(t, string(fmt.Appendf(nil, text, map[bool]string{true: `, "ignore_path_case": true`}[ignored])))
			p := made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{})
			attrs, matched := policy.Map{"path": test.path}, map[string]string{}
			r := decide(t, p, attrs)
			for i := range r.Rules {
				matched[r.Rules[i].Rule] = r.Key(i)
			}
			_, login := matched["login"]
			_, cafe := matched["cafe"]
			same := login == (test.key != "") && cafe == test.cafe
			if ignored && (!same || matched["login"] != test.key) || !ignored && same != test.as {
				t.Errorf("%s, case ignored %t: rules by key %q", test.path, ignored, matched)
			}
			e, err := rules.Explain(attrs)
			if err != nil || e.Rules[0].Applies != login || e.Rules[1].Applies != cafe {
				t.Errorf("%s, case ignored %t: explained as %v, %v", test.path, ignored, e, err)
			}
			if ignored && login {
				if key, err := rules.KeyOf("login", attrs, nil); err != nil || key != test.key {
					t.Errorf("%s: key %q, %v", test.path, key, err)
				}
				if slow := test.key == "/login"; slow != (r.Rules[0].Variant == "override slow") {
					t.Errorf("%s: limits by %q", test.path, r.Rules[0].Variant)
				}
			}
		}
	}
}

// TestIgnorePathCaseLetters: no letter beyond ASCII is folded to one of ASCII. Some servers
// do so: a path with such a letter is refused, in a rule too.
func TestIgnorePathCaseLetters(t *testing.T) {
	rules := made.Rules(t, `{"ignore_path_case": true, "rules": [{"name": "a", "key": ["path"], "limits": "1000/s"}]}`)
	key := func(text string) string {
		k, err := rules.KeyOf("a", policy.Map{"path": (&url.URL{Path: "/" + text}).EscapedPath()}, nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return k
	}
	for _, same := range []string{"aA", "zZ", "éÉ", "σΣς", "жЖ", "ǆǅǄ", "\U00010428\U00010400"} {
		for _, c := range same {
			if got, want := key(string(c)), key(string([]rune(same)[0])); got != want {
				t.Errorf("%q has key %q, want %q", c, got, want)
			}
		}
	}
	for _, apart := range []string{"s\u017f", "i\u0131", "a\u00e4", "@`", "[{", "/0"} {
		seen := make(map[string]rune)
		for _, c := range apart {
			k := key("x" + string(c) + "x")
			if was, ok := seen[k]; ok {
				t.Errorf("%q and %q have one key %q", was, c, k)
			}
			seen[k] = c
		}
	}
	for c := rune(utf8.RuneSelf); c < 0x3000; c++ {
		path := "/x" + string(c)
		_, err := rules.KeyOf("a", policy.Map{"path": (&url.URL{Path: path}).EscapedPath()}, nil)
		if folded := unicode.ToLower(c) < utf8.RuneSelf; folded != strings.Contains(fmt.Sprint(err), "Kelvin sign") {
			t.Errorf("%q: %v", path, err)
		} else if folded {
			_, err := policy.Parse(fmt.Appendf(nil, `{"ignore_path_case": true, "rules": [{"name": "a", "match": {"path": %q}, "key": [], "limits": "1/s"}]}`, path))
			if err == nil {
				t.Errorf("a rule for %q is taken", path)
			}
		}
	}
}

// TestIgnorePathCaseChanges: Compare says which rules a change of ignore_path_case concerns.
func TestIgnorePathCaseChanges(t *testing.T) {
	parse := func(field string) *policy.Rules {
		return made.Rules(t, `{`+field+`"rules": [{"name": "a", "match": {"path": "/a"}, "key": [], "limits": "1/s"}, {"name": "b", "key": ["ip"], "limits": "1/s"}]}`)
	}
	plain, ignores := parse(""), parse(`"ignore_path_case": true, `)
	if got := ignores.Compare(plain); len(got) != 1 || got[0].String() != "rule a: ignore_path_case becomes true" || got[0].Fresh {
		t.Errorf("%v", got)
	}
	if got := ignores.Compare(ignores); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
