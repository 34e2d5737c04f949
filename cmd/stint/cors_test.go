package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/planner/testkit/browser"
)

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
	rules := writeFile(t, t.TempDir()+"/stint.yaml", `
denied: {body: '{"rule": "{rule}", "retry_after": {retry_after}}'}
cors: true
rules:
  - {name: items, match: {path: /items}, key: [ip], limits: [1/h]}
  - {name: login, match: {path: /login}, key: [ip], limits: [1/h], cors: [`+page.URL+`]}
`)
	p := launch(t, "proxy", "proxy", "-c", rules, "--upstream", api.URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	p.listening()
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
