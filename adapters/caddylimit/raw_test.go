package caddylimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rawRules have a rule for each handler of rawSite, of the handler's name.
const rawRules = `ignore_path_case: true
rules:
  - {name: health, match: {path: /health}, key: [], limits: [1000000/s], final: true}
  - {name: login, match: {path: /login}, key: [], limits: [1000000/s], final: true}
  - {name: kiosk, match: {path: /kiosk}, key: [], limits: [1000000/s], final: true}
  - {name: files, match: {path: "/files/**"}, key: [], limits: [1000000/s], final: true}
  - {name: user, match: {path: "/users/{id}/posts"}, key: [], limits: [1000000/s], final: true}
  - {name: rest, match: {path: "/**"}, key: [], limits: [1000000/s]}
`

const rawSite = `stint site {
rules %
}
handle /health {
respond health
}
handle /login {
respond login
}
handle /kiosk {
respond kiosk
}
handle /files/* {
respond files
}
handle /users/*/posts {
respond user
}
handle {
respond rest
}`

// rawTargets are ways to write targets that some server reads as another. A slash, a dot
// or a blank at the end is left out: these rules make no difference there, and Caddy does.
var rawTargets = []string{
	"/", "/login", "/files/a", "/users/7/posts", "/health", "/kiosk", "/other",
	"/LOGIN", "/FILES/A", "/Users/7/Posts", "/%E2%84%AAiosk", "/\xe2\x84\xaaiosk", "/log%C4%B0n", "/log\xc4\xb0n", "/log%C4%B1n", "/u%C5%BFers/7/posts", "/file%C5%BF/a",
	"/login//", "//login", "//", "/files/", "/files//login", "/users//posts", "/users/7//posts",
	"http://a.example/login", "http://b.example/files/../login", "HTTP://b.example/login", "//b.example/login", "http://b.example", "http://b.example?x",
	"a:/login", "http:/login", "http:login", "login", "?/login", "#x", "%2flogin", "../login", "http://x@b.example/login", "http://b.example//login",
	"/files/../login", "/files/../health", "/files/..", "/./login", "/../login", "/login/.", "/login/../x", "/users/./posts", "/users/../posts", "/x/../files/a",
	"/files/%2e%2e/login", "/files/.%2e/health", "/%2e/login", "/files/%252e%252e/login", "/files/..%2flogin", "/files/..;/login", "/files/a|b/%2e%2e/login",
	"/files%2fa", "/files/a%2fb", "/login%2f", "/x%2flogin", "/x%2f..%2flogin", "/x%252flogin", "/users/7%2fposts", "/users/a|b%2Fposts", "/users/%2f/posts",
	"/%6cogin", "/%4cogin", "/x|%68ealth", "/%66iles/a", "/users%2F7/posts", "/users/caf%c3%a9/posts", "/users/\xff/posts", "/users/%ff/posts",
	"/login%", "/login%zz", "/login%c0%af", `/files\a`, `\login`, `/x\..\login`, "/files/%5c..%5clogin", "/login;x=1", "/login%3bx", "/;/login",
	"/login#x", "/login#/../health", "/login%23x", "/login?x#y", "/login?/../health", "/login%3fx",
	"/login\x00", "/login%00", "/login\t", "/login%0a", "/login\x7f", "/login x", " /login",
}

// raw sends bytes on a connection of their own, and returns the answer; nil if there
// was none that is HTTP.
func (s *server) raw(sent string) *http.Response {
	s.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, sent); err != nil {
		s.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.Fatal(err)
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer
}

// TestRawTargets sends each target to Caddy. Whatever it is, a request that reaches a
// handler was decided by the rule of this handler.
func TestRawTargets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(rawRules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, strings.Replace(rawSite, "%", file, 1))
	reached := make(map[string]int)
	for _, target := range rawTargets {
		for _, method := range []string{"GET ", "OPTIONS ", "CONNECT "} {
			for _, protocol := range []string{" HTTP/1.1", " HTTP/1.0"} {
				answer := s.raw(method + target + protocol + "\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.1\r\nConnection: close\r\n\r\n")
				if answer == nil || answer.StatusCode != http.StatusOK {
					reached["refused"]++
					continue
				}
				body, _ := io.ReadAll(answer.Body)
				handler, decided := string(body), strings.Join(answer.Header["Ratelimit-Policy"], ",")
				if !strings.Contains(decided, `"`+handler+`"`) {
					t.Errorf("%q: reached the handler of %s, decided by %s", method+target+protocol, handler, decided)
				}
				reached[handler]++
			}
		}
	}
	for _, handler := range []string{"refused", "health", "login", "kiosk", "files", "user", "rest"} {
		if reached[handler] == 0 {
			t.Errorf("no request reached %s: %v", handler, reached)
		}
	}
}

// TestRawKeys spends the limit of a key, and asks again in each way that Caddy or a
// server behind it takes for the same key, or that gives it a second value.
func TestRawKeys(t *testing.T) {
	s := start(t, "respond hello")
	for n, c := range []struct {
		key   string
		tries []string // a target, and header fields behind a blank; the first spends the limit
	}{
		{"{header.X-Api-Key}", []string{
			"/ X-Api-Key: good", "/ x-API-key: \tgood", "/ X-Api-Key: junk\r\nX-Api-Key: good", "/ X-Api-Key: good\r\nX-Api-Key: junk",
			"/ X-Api-Key: junk\r\nConnection: X-Api-Key",
		}},
		{"{cookie.session}", []string{
			"/ Cookie: session=good", "/ Cookie: Session=junk; session=good", "/ Cookie: session=junk; session=good", "/ Cookie: session=\"good\"",
			"/ Cookie: session=good\r\nCookie: session=junk",
		}},
		{"{query.action}", []string{
			"/?action=good", "/?action=junk&action=good", "/?%61ction=good", "/?action=junk&%61ction=good", "/?action=junk;action=good", "/?action[]=good&action=junk",
		}},
		{"{path}", []string{
			"/login", "/LOGIN", "//login", "/./login", "/x/../login", "/%6cogin", "/log%C4%B0n", "http://b.example/login", "a:/login", "/login?x",
		}},
		{"{path.1}", []string{"/of/a", "/of//a", "//of/a", "/of/./a", "/of/%61"}},
		{"{host}", []string{"/ Host: a.example", "/ Host: A.example", "/ Host: a.example.", "/ Host: a.example:80", "/ Host: a.example:80:80", "http://a.example/ Host: b.example"}},
		{"{method} x", []string{"/", "/?x"}},
		{"{client_ip} {header.A}", []string{"/ X-Forwarded-For: 2001:db8::1\r\nA: x", "/ X-Forwarded-For: 2001:db8::2\r\nA: x"}},
	} {
		if err := s.load(fmt.Sprintf("stint key%d 1/h {\nkey %s\n}\nrespond hello", n, c.key)); err != nil {
			t.Fatal(err)
		}
		for i, one := range c.tries {
			target, head, _ := strings.Cut(one, " ")
			if !strings.Contains(head, "Host:") {
				head += "\r\nHost: a.example"
			}
			answer := s.raw("GET " + target + " HTTP/1.1\r\n" + strings.TrimPrefix(head, "\r\n") + "\r\nConnection: close\r\n\r\n")
			if passed := answer != nil && answer.StatusCode == http.StatusOK; passed != (i == 0) {
				t.Errorf("key %s: %q: %+v", c.key, one, answer)
			}
		}
	}
}

// TestKeysRefused loads keys that a client could spell in several ways.
func TestKeysRefused(t *testing.T) {
	s := start(t, "respond hello")
	const rules = `{"rules": [{"name": "a", "key": ["%s"], "limits": "1/h"}]}`
	for site, want := range map[string]string{
		"stint a 1/h {\nkey x {header.A}y\n}": "key: part 2: text around {http.request.header.A}",
		"stint a 1/h {\nkey {host}{path}\n}":  "key: part 1: text around {http.request.host}",
	} {
		if err := s.load(site); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", site, err, want)
		}
	}
	for attribute, want := range map[string]string{
		"http.request.header.X-A": "write header.X-A", "http.request.cookie.a": "write cookie.a", "http.request.uri.query.a": "write query.a",
		"http.request.uri.path": "write path", "http.vars.client_ip": "write ip",
	} {
		file := filepath.Join(t.TempDir(), "rules.json")
		if err := os.WriteFile(file, []byte(strings.Replace(rules, "%s", attribute, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.load("stint a {\nrules " + file + "\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", attribute, err, want)
		}
	}
}
