package server_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/server"
)

// auth is a request to /auth of a trusted proxy, with these headers beside its own.
func auth(more http.Header) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/auth", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	r.Header = http.Header{"X-Original-Method": {"GET"}, "X-Original-Uri": {"/x"}, "X-Original-Host": {"a"}, "X-Forwarded-For": {"192.0.2.1"}}
	maps.Copy(r.Header, more)
	return r
}

func served(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// FuzzAuth asks as a trusted proxy whose client says what it likes: there is an
// answer, no field has a line break, and of a denial nothing makes a 2xx.
func FuzzAuth(f *testing.F) {
	f.Add("POST", "/login?x=1", "example.com", "192.0.2.7", "k", "a=b", "deny_status=403")
	f.Add("\r\nX: y", "/%2f..;/\r\nSet-Cookie: a=b", "[::1]:80", "unknown, 1.2.3.4:99", "\x00", "user=%zz", "")
	f.Add("", "*", "", ",,,", "", "&&&", "deny_status=200")
	rules := strings.ReplaceAll(someRules, `["5 per minute sliding_log"]`, `["1_000_000 per minute"]`) + `
  - name: all
    key: []
    limits: ["every 1000h"]
`
	h := server.NewHandler(newOptions(f, rules))
	send := func(method, uri, host, xff, key, cookie, query string) *httptest.ResponseRecorder {
		r := auth(http.Header{
			"X-Original-Method": {method}, "X-Original-Uri": {uri}, "X-Original-Host": {host},
			"X-Forwarded-For": {xff}, "X-Api-Key": {key}, "Cookie": {cookie}, "Content-Type": {key},
		})
		r.URL = &url.URL{Path: "/auth", RawQuery: query}
		return served(h, r)
	}
	if w := send("GET", "/", "h", "192.0.2.1", "", "", ""); w.Code != http.StatusOK {
		f.Fatalf("the first: %d %s", w.Code, w.Body)
	}
	f.Fuzz(func(t *testing.T, method, uri, host, xff, key, cookie, query string) {
		w := send(method, uri, host, xff, key, cookie, query)
		if !slices.Contains([]int{400, 401, 403, 429}, w.Code) {
			t.Errorf("status %d for what is used up: %s", w.Code, w.Body)
		}
		for name, values := range w.Header() {
			for _, v := range append(values, name) {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Errorf("%s: %q", name, v)
				}
			}
		}
	})
}

// TestAuthRefused asks as a proxy that the rules file does not list, and as one
// that says nothing of the request: the log says why, without the address.
func TestAuthRefused(t *testing.T) {
	for _, one := range []struct {
		peer string
		want int
		why  string
	}{
		{"192.0.2.77:4711", 403, "trusted_proxies"},
		{"127.0.0.1:4711", 400, "X-Forwarded-Method"},
	} {
		var log bytes.Buffer
		o := newOptions(t, "trusted_proxies: [127.0.0.1]\nrules: [{name: a, key: [ip], limits: 1/m}]\n")
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		h := server.NewHandler(o)
		for range 100 {
			r := auth(nil)
			r.RemoteAddr, r.Header = one.peer, http.Header{}
			if w := served(h, r); w.Code != one.want {
				t.Fatalf("%s: status %d", one.peer, w.Code)
			}
		}
		text := log.String()
		if n := strings.Count(text, "\n"); n == 0 || n > 50 || !strings.Contains(text, one.why) || strings.Contains(text, "192.0.2.77") {
			t.Errorf("%s: the log has\n%s", one.peer, text)
		}
	}
}

// TestAuthAttributes asks for rules that look at the host, cookies and query of
// the original request, and not at those of the question.
func TestAuthAttributes(t *testing.T) {
	o := newOptions(t, `
trusted_proxies: [127.0.0.1]
rules:
  - {name: host, match: {host: a.example}, block: true}
  - {name: cookie, match: {cookie.session: bad}, block: true}
  - {name: query, match: {query.q: bad}, block: true}
  - {name: method, match: {method: DELETE}, block: true}
  - {name: net, match: {ip: 198.51.100.0/24}, block: true}
  - {name: header, match: {header.user-agent: bad}, block: true}
`)
	h := server.NewHandler(o)
	for _, one := range []struct {
		header, value string
		want          int
	}{
		{"Accept", "*/*", 200},
		{"X-Forwarded-Host", "A.example:443", 403},
		{"Cookie", "a=b; session=bad", 403},
		{"X-Forwarded-Uri", "/x?a=b&q=bad", 403},
		{"X-Forwarded-Method", "DELETE", 403},
		{"X-Forwarded-For", "198.51.100.9", 403},
		{"User-Agent", "bad", 403},
	} {
		r := auth(nil)
		r.Host = "a.example"
		r.Header = http.Header{
			"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/x"}, "X-Forwarded-Host": {"b.example"}, "X-Forwarded-For": {"192.0.2.1"},
		}
		r.Header.Set(one.header, one.value)
		if w := served(h, r); w.Code != one.want {
			t.Errorf("%s: status %d, want %d: %s", one.header, w.Code, one.want, w.Body)
		}
	}
}

// TestAuthClaims asks about requests with tokens.
func TestAuthClaims(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	jwks, b64 := filepath.Join(t.TempDir(), "jwks.json"), base64.RawURLEncoding
	if err == nil {
		err = os.WriteFile(jwks, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, b64.EncodeToString(public)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	token := func(payload string) string {
		text := b64.EncodeToString([]byte(`{"alg":"EdDSA"}`)) + "." + b64.EncodeToString([]byte(payload))
		return "Bearer " + text + "." + b64.EncodeToString(ed25519.Sign(key, []byte(text)))
	}
	const text = `
jwt: {jwks: JWKS}
trusted_proxies: [127.0.0.1]
rules:
  - {name: banned, match: {path: /x, jwt.sub: mallory}, block: true, on_store_failure: closed}
`
	ask := func(h http.Handler, authorization ...string) int {
		return served(h, auth(http.Header{"Authorization": authorization})).Code
	}
	mallory, ann := token(`{"sub":"mallory"}`), token(`{"sub":"ann"}`)
	for file, want := range map[string][5]int{jwks: {403, 200, 200, 200, 400}, jwks + ".gone": {503, 503, 503, 200, 400}} {
		o := newOptions(t, strings.Replace(text, "JWKS", file, 1))
		o.Claims = claims.New(claims.Options{})
		o.Claims.Use(o.Source.File().Rules.File().JWT())
		h := server.NewHandler(o)
		got := [5]int{ask(h, mallory), ask(h, ann), ask(h, mallory+"A"), ask(h), ask(h, mallory, ann)}
		if got != want {
			t.Errorf("keys in %s: %v, want %v", filepath.Base(file), got, want)
		}
	}
}

// TestAuthAmbiguous asks about requests that the server behind may read in
// another way than the rules.
func TestAuthAmbiguous(t *testing.T) {
	h := server.NewHandler(newOptions(t, `
trusted_proxies: [127.0.0.1]
rules:
  - {name: key, key: [header.x-api-key], limits: [1_000/s]}
  - {name: session, key: [cookie.session], limits: [1_000/s]}
  - {name: action, match: {query.action: login, host: a, path: /x}, key: [], limits: [1_000/s]}
`))
	for _, one := range []struct {
		headers http.Header
		want    int
	}{
		{http.Header{"X-Api-Key": {"a"}, "Cookie": {"a=b; session=c"}}, 200},
		{http.Header{"X-Api-Key": {"junk", "good"}}, 400},
		{http.Header{"X-Api-Key": {"junk"}, "X-Api_key": {"good"}}, 400},
		{http.Header{"X-Api-Key": {"junk"}, "Connection": {"X-Api-Key"}}, 400},
		{http.Header{"X-Api-Key": {"good "}}, 400},
		{http.Header{"X-Api-Key": {"good\xa0"}}, 400},
		{http.Header{"X-Other": {"good\xa0 "}}, 200},
		{http.Header{"X-Original-Uri": {"/x?action=login HTTP/1.0"}}, 400},
		{http.Header{"X-Original-Uri": {"/x y"}}, 400},
		{http.Header{"Cookie": {`session="\147ood"`}}, 400},
		{http.Header{"X-Original-Uri": {"/?x=1;action=login"}}, 400},
		{http.Header{"X-Original-Uri": {"/?action=a&action=login"}}, 400},
		{http.Header{"X-Original-Host": {"a:80:80"}}, 400},
		{http.Header{"X-Original-Uri": {"/x/?to=/a/../b//c"}}, 200},
		{http.Header{"X-Forwarded-Host": {"A:443"}}, 200},
		{http.Header{"X-Forwarded-Host": {"b"}}, 400},
		{http.Header{"Forwarded": {"for=192.0.2.1;host=b"}}, 400},
		{http.Header{"X-Original-Url": {"http://a/x"}}, 200}, // as ingress-nginx has it
		{http.Header{"X-Original-Url": {"/y"}}, 400},
		{http.Header{"X-Rewrite_url": {"/y"}}, 400},
		{http.Header{"X-Http-Method-Override": {"DELETE"}}, 200}, // no rule looks at the method
		{http.Header{"X-Original-Uri": {"/files/../x"}}, 400},
		{http.Header{"X-Original-Uri": {"/./x"}}, 400},
		{http.Header{"X-Original-Uri": {"//x"}}, 400},
		{http.Header{"X-Original-Uri": {"/%78"}}, 400},
	} {
		if w := served(h, auth(one.headers)); w.Code != one.want {
			t.Errorf("%v: status %d, want %d: %s", one.headers, w.Code, one.want, w.Body)
		}
	}
}

// TestAuthNotGiven asks at /auth by rules for claims, which callers of /v1 give: who may be
// held by one is refused there, and counted.
func TestAuthNotGiven(t *testing.T) {
	o := newOptions(t, `
trusted_proxies: [127.0.0.1]
attributes: [jwt.sub]
rules:
  - {name: user, match: {path: /api/**}, key: [jwt.sub], limits: 1/h}
  - {name: address, key: [ip], limits: 9/h}
`)
	h := server.NewHandler(o)
	for uri, want := range map[string]int{"/api/x": http.StatusInternalServerError, "/": http.StatusOK} {
		if w := served(h, auth(http.Header{"X-Original-Uri": {uri}})); w.Code != want {
			t.Errorf("%s: %d %s; want %d", uri, w.Code, w.Body, want)
		}
	}
	if w := post(h, "/v1/check", `{"attributes": {"path": "/api/x", "jwt.sub": "anna"}}`); w.Code != http.StatusOK {
		t.Errorf("/v1: %d %s", w.Code, w.Body)
	}
	if w := served(o.Admin, httptest.NewRequest(http.MethodGet, "/metrics", nil)); !strings.Contains(w.Body.String(), `interface="auth",reason="attribute"} 1`) {
		t.Errorf("not counted: %s", w.Body)
	}
}

// TestAuthWaiting: the requests of one client that wait are a part of those that may, whatever their
// keys and whichever status denies, so that another client's may wait as well.
func TestAuthWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOptions(t, "trusted_proxies: [127.0.0.1]\nrules: [{name: q, key: [header.x-key], limits: 1/s burst 4 leaky_queue}]")
		o.MaxWaiting = 100
		h := server.NewHandler(o)
		answers := make(chan *httptest.ResponseRecorder, 500)
		ask := func(path, client string, key int) {
			r := auth(http.Header{"X-Forwarded-For": {client}, "X-Key": {fmt.Sprint(key)}})
			r.URL.Path = path
			go func() { answers <- served(h, r) }()
			synctest.Wait()
		}
		for range 2 { // again when all have been answered
			for i := range 50 {
				ask("/auth", "192.0.2.1", i)
				ask([]string{"/auth", "/auth/403"}[i%2], "192.0.2.1", i)
			}
			refused := 0
			for range len(answers) {
				w := <-answers
				if w.Code == http.StatusOK {
					continue
				}
				if refused++; w.Header().Get("X-Ratelimit-Status") != "503" || w.Header().Get("Retry-After") != "1" {
					t.Fatalf("%d %v", w.Code, w.Header())
				}
			}
			if refused != 100-2*20 { // of 20 keys, one request starts at once and one waits
				t.Errorf("%d are refused", refused)
			}
			ask("/auth", "198.51.100.1", 1000)
			ask("/auth", "198.51.100.1", 1000)
			if time.Sleep(time.Minute); len(answers) != 20+2 {
				t.Errorf("%d are answered", len(answers))
			}
			for range len(answers) {
				if w := <-answers; w.Code != http.StatusOK {
					t.Errorf("%d after a wait", w.Code)
				}
			}
		}
	})
}

// TestAuthNamesNoClient: where the proxy does not say who its client is, the log does.
func TestAuthNamesNoClient(t *testing.T) {
	for _, addresses := range []string{"192.0.2.7", "", "unknown", "127.0.0.1"} {
		var log bytes.Buffer
		o := newOptions(t, someRules)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		served(server.NewHandler(o), auth(http.Header{"X-Original-Method": {"POST"}, "X-Original-Uri": {"/login"}, "X-Forwarded-For": {addresses}}))
		if got := strings.Contains(log.String(), "named no client"); got != (addresses != "192.0.2.7") {
			t.Errorf("%q: %s", addresses, log.String())
		}
	}
}

// TestStrangeAttributes: a check for which no rule holds, with an attribute that no rule looks at, is in the log.
func TestStrangeAttributes(t *testing.T) {
	for body, want := range map[string]string{
		`{"attributes":{"Path":"/login","ip":"192.0.2.7"}}`:                 `did you mean path?`,
		`{"attributes":{"path":"/other","remote_addr":"192.0.2.7"}}`:        `remote_addr`,
		`{"attributes":{"path":"/other","ip":"192.0.2.7"}}`:                 "",
		`{"attributes":{"method":"POST","path":"/login","ip":"192.0.2.7"}}`: "",
	} {
		var log bytes.Buffer
		o := newOptions(t, someRules)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		post(server.NewHandler(o), "/v1/check", body)
		if got := log.String(); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %s", body, got)
		}
	}
}
