package main_test

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// TestProxy runs stint proxy with a rules file and an admin address: what is
// denied, the trusted proxy's client, the metrics, and a stop.
func TestProxy(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Real-Ip"))
	}))
	defer behind.Close()
	p := startStint(t, "proxy", "-c", disk.Write(t, t.TempDir()+"/stint.yaml", serveRules), "--upstream", behind.URL,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--trusted-proxy", "127.0.0.0/8")
	for i, test := range []struct {
		forwarded string
		status    int
		body      string
	}{
		{"192.0.2.7", 200, "192.0.2.7"},
		{"6.6.6.6, 192.0.2.7", 200, "192.0.2.7"},
		{"6.6.6.7, 192.0.2.7", 429, ""},
		{"192.0.2.8", 200, "192.0.2.8"},
	} {
		status, body := p.call(http.MethodGet, p.front, "", map[string]string{"X-Forwarded-For": test.forwarded})
		if status != test.status || test.body != "" && body != test.body {
			t.Errorf("request %d: %d %q, want %d %q", i, status, body, test.status, test.body)
		}
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/": "/lab/", "/lab/": "<title>stint lab</title>",
		"/metrics": `stint_decisions_total{decision="denied",interface="proxy",rule="pages"} 1`,
	} {
		if status, body := p.call(http.MethodGet, p.admin+path, "", nil); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if log := p.log(); !strings.Contains(log, "msg=stopped passed=3 denied=1") || strings.Contains(log, "192.0.2") {
		t.Errorf("log:\n%s", log)
	}
}

// TestOddUpstream has a server behind that answers with a status that there is not, and
// with more than it announced: clients get 502, and the log has a line of its own form,
// without what the server sent.
func TestOddUpstream(t *testing.T) {
	ln := freeport.Listen(t)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				conn.Close()
				continue
			}
			answer := "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"
			if r.URL.Path == "/more" {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nSet-Cookie: session=secret\r\n\r\n"
			}
			_, _ = io.WriteString(conn, answer) // the proxy may have closed it
		}
	}()
	p := startStint(t, "proxy", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "http://"+ln.Addr().String(), "--limit", "1000/s")
	for path, want := range map[string]int{"/odd": http.StatusBadGateway, "/more": http.StatusOK} {
		if got := statusOf(t, from("127.0.0.1"), p.front+path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	p.waitFor("Unsolicited response")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(p.log()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "secret") || strings.Contains(line, "panic") {
			t.Errorf("the log has %s", line)
		}
	}
}

// TestClaims blocks a claim in the proxy and at /auth: by keys that are fetched, by the
// last ones after a restart, and no more once the rules want another issuer.
func TestClaims(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding
	var down atomic.Bool
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, b64.EncodeToString(public))
	}))
	defer issuer.Close()
	text := b64.EncodeToString([]byte(`{"alg":"EdDSA"}`)) + "." + b64.EncodeToString([]byte(`{"iss":"us","sub":"mallory"}`))
	token := "Bearer " + text + "." + b64.EncodeToString(ed25519.Sign(key, []byte(text)))
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		down.Store(false)
		file := t.TempDir() + "/stint.yaml"
		rules := `
trusted_proxies: [127.0.0.1]
jwt: {jwks: "` + issuer.URL + `", issuer: us}
rules:
  - {name: banned, match: {jwt.sub: mallory}, block: true}
`
		disk.Write(t, file, rules)
		p := start("-c", file)
		ask := func() int {
			path, headers := "/", map[string]string{"Authorization": token}
			if p.name == "serve" {
				path = "/auth"
				headers["X-Original-Method"], headers["X-Original-Uri"], headers["X-Original-Host"] = "GET", "/", "a"
			}
			status, _ := p.call(http.MethodGet, p.front+path, "", headers)
			return status
		}
		await.Until(t, "the keys are there", func() bool { return ask() == http.StatusForbidden })
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		down.Store(true)
		p = start("-c", file)
		if status := ask(); status != http.StatusForbidden {
			t.Errorf("after a restart without the issuer: %d", status)
		}
		if _, metrics := p.call(http.MethodGet, p.admin+"/metrics", "", nil); !strings.Contains(metrics, `stint_jwt_tokens_total{outcome="valid"}`) {
			t.Errorf("no metric of tokens: %s", metrics)
		}
		disk.Write(t, file, strings.Replace(rules, "issuer: us", "issuer: them", 1))
		await.Until(t, "the rules want another issuer", func() bool { return ask() == http.StatusOK })
	})
}

// TestOtherOrigin has pages in a browser call an API behind the proxy on another origin:
// with a preflight, without, and with cookies. They read the denial as they read what
// passes.
func TestOtherOrigin(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Allow-Methods", "PUT")
		h.Set("Access-Control-Allow-Headers", "Content-Type")
		fmt.Fprint(w, "passed")
	}))
	defer api.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><link rel=icon href=data:,><title>page</title>")
	}))
	defer page.Close()
	rules := disk.Write(t, t.TempDir()+"/stint.yaml", `
denied: {body: '{"rule": "{rule}", "retry_after": {retry_after}}'}
cors: true
rules:
  - {name: items, match: {path: /items}, key: [ip], limits: [1/h]}
  - {name: login, match: {path: /login}, key: [ip], limits: [1/h], cors: [`+page.URL+`]}
`)
	p := startStint(t, "proxy", "-c", rules, "--upstream", api.URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	tab := browser.Open(t, browser.Start(t), page.URL, "/", browser.Look{Refused: []string{"429"}, Elsewhere: []string{p.front}})
	ask := func(path, options string) string {
		return browser.Eval[string](tab, fmt.Sprintf(`fetch(%q, %s).then(async (r) => [r.status, r.headers.get("Retry-After"), r.headers.get("RateLimit-Policy"), await r.text()].join(" "), (e) => "unreadable")`, p.front+path, options))
	}
	seconds := regexp.MustCompile(`\b\d{4}\b`) // less than 3600 by how long the browser takes
	for _, c := range []struct{ path, options, first, then string }{
		{"/items", `{method: "PUT", headers: {"Content-Type": "application/json"}, body: "{}"}`, `200   passed`, `429 3600 "items";q=1;w=3600 {"rule": "items", "retry_after": 3600}`},
		{"/items", `{}`, `429 3600 "items";q=1;w=3600 {"rule": "items", "retry_after": 3600}`, `429 3600 "items";q=1;w=3600 {"rule": "items", "retry_after": 3600}`},
		{"/login", `{credentials: "include"}`, `200   passed`, `429 3600 "login";q=1;w=3600 {"rule": "login", "retry_after": 3600}`},
	} {
		for _, want := range []string{c.first, c.then} {
			got := seconds.ReplaceAllString(ask(c.path, c.options), "3600")
			if got != want {
				t.Errorf("%s: %s, want %s", c.path, got, want)
			}
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
