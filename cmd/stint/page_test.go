package main_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/browser"
)

const pageRules = `rules:
  - name: orders
    key: [header.x-api-key]
    limits: [5 per hour]
  - name: logins
    match: {path: /login}
    key: [ip]
    limits: [100 per minute]
`

// TestPageOverview: on this machine and without tokens the page shows what
// passes and what is denied as it happens, and keys as hashes until one is asked
// for, which the audit has.
func TestPageOverview(t *testing.T) {
	chromium := browser.Start(t)
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", pageRules))
		tab := browser.Open(t, chromium, p.admin, "/ui/", browser.Look{})
		tab.Says("#who", "this machine, operator")
		tab.Says("#view", "No request was decided in the last hour", "No key was denied", "ready")
		p.requests("partner-1", 9)
		tab.Says("#view", "orders", "Reveal", "Point at a column")
		if text := browser.Eval[string](tab, "document.body.innerText"); strings.Contains(text, "partner-1") {
			t.Errorf("a key is shown: %s", text)
		}
		tab.JS("[...document.querySelectorAll('td button')][0].click()")
		tab.Says("#view", "partner-1")
		if _, out, _ := p.stint("audit"); !strings.Contains(out, "key reveal orders") || strings.Contains(out, "partner-1") {
			t.Errorf("the audit:\n%s", out)
		}
	})
}

// TestPageSession signs in and out by tokens of files: a cookie that scripts do
// not see, is no token, and is good below the page alone.
func TestPageSession(t *testing.T) {
	const viewer, operator = "viewer-0123456789", "operator-0123456789"
	dir := t.TempDir()
	s := launch(t, "serve", "serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "-c", writeFile(t, dir+"/stint.yaml", pageRules),
		"--token-file", writeFile(t, dir+"/askers", viewer+"\n"), "--operator-token-file", writeFile(t, dir+"/operators", operator+"\n"))
	s.listening()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	ask := func(method, path, body string, headers ...string) (int, string, *http.Response) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.admin+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text), resp
	}
	expect := func(what string, want int, contains, method, path, body string, headers ...string) *http.Response {
		t.Helper()
		status, text, resp := ask(method, path, body, headers...)
		if status != want || !strings.Contains(text, contains) {
			t.Errorf("%s: %d %.300s; want %d and %q", what, status, text, want, contains)
		}
		return resp
	}
	const override = "/ui/v1/override?rule=orders&key=partner-1"
	expect("a guest", 200, `"role":"viewer"`, "GET", "/ui/session", "")
	expect("a guest acts", 403, "for the role operator", "PUT", override, `{"limits":["9/h"]}`)
	expect("a wrong token", 401, "not known here", "POST", "/ui/session", `{"token":"operator-9876543210"}`)
	resp := expect("an operator signs in", 200, `"author":"operator token, line 1","role":"operator","signed_in":true`, "POST", "/ui/session", `{"token":"`+operator+`"}`)
	set := resp.Header.Get("Set-Cookie")
	if !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") || strings.Contains(set, operator) || strings.Contains(set, "Path=") {
		t.Errorf("the cookie: %s", set)
	}
	expect("acts", 200, `"limits":["9/h"]`, "PUT", override, `{"limits":["9/h"]}`, "Sec-Fetch-Site", "same-origin")
	for _, site := range []string{"cross-site", "same-site"} {
		expect("a page of "+site+" acts", 403, "another origin", "PUT", override, `{"limits":["8/h"]}`, "Sec-Fetch-Site", site)
		expect("a page of "+site+" reads", 403, "another origin", "GET", "/ui/v1/overrides", "", "Sec-Fetch-Site", site)
		expect("a page of "+site+" watches", 403, "another origin", "GET", "/ui/live", "", "Sec-Fetch-Site", site)
		expect("a page of "+site+" signs in", 403, "another origin", "POST", "/ui/session", `{"token":"`+operator+`"}`, "Sec-Fetch-Site", site)
	}
	expect("a page of an old browser", 403, "another origin", "PUT", override, `{"limits":["8/h"]}`, "Origin", "http://127.0.0.1:1")
	expect("the API has no cookies", 403, "for the role operator", "PUT", "/v1/override?rule=orders&key=partner-1", `{"limits":["8/h"]}`, "Cookie", set)
	_, list, _ := ask("GET", "/ui/v1/overrides", "")
	if strings.Contains(list, "partner-1") || !strings.Contains(list, `"key_hash"`) {
		t.Errorf("a list shows keys: %s", list)
	}
	if _, audit, _ := ask("GET", "/ui/v1/audit", ""); strings.Contains(audit, "partner-1") || !strings.Contains(audit, "operator token, line 1") {
		t.Errorf("the audit shows keys: %s", audit)
	}
	expect("signs out", 200, `"signed_in":false`, "DELETE", "/ui/session", "")
	expect("the cookie of before", 403, "for the role operator", "PUT", override, `{"limits":["8/h"]}`, "Cookie", strings.Split(set, ";")[0])
	if log := s.log(); strings.Contains(log, viewer) || strings.Contains(log, operator) || strings.Contains(log, strings.Split(set, ";")[0]) {
		t.Errorf("the log has a token or a session:\n%s", log)
	}
}
