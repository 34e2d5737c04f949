package main_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesdb/dbtest"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// must runs a command of stint, and returns what it prints.
func must(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := main.Run(t.Context(), args, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("stint %s: exit %d %s", strings.Join(args, " "), status, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// clickThrough begins at the overview, goes to a client who is denied, raises its
// limits, and takes that back. becomes waits until a request of the client passes,
// or does not.
func clickThrough(tab *browser.Tab, becomes func(passes bool)) {
	tab.Helper()
	tab.Until("document.querySelector('td button') !== null")
	tab.JS("document.querySelector('td button').click()")
	tab.Click("#view", "partner-1")
	tab.Says("#view", "Denied now.", "5 of 5 used, 0 left")
	tab.Click("[aria-label='Rule orders']", "Raise…")
	tab.Set("dialog [name=limits]", "100/h")
	tab.Set("dialog [name=reason]", "ticket 4711")
	tab.Click("dialog", "Confirm")
	tab.Says("#view", "Has 100/h of its own", "ticket 4711", "override set")
	becomes(true)
	undo := "[...document.querySelectorAll('#view button')].find((b) => b.textContent === 'Undo')"
	tab.Until("%s !== undefined", undo)
	tab.JS("%s.click()", undo)
	tab.Click("dialog", "Confirm")
	tab.Says("#view", "Denied now.", "undo of act")
	becomes(false)
}

// signIn shows a token on the page. On this machine no sign-in is needed.
func signIn(tab *browser.Tab, token, who string) {
	tab.Helper()
	tab.Until("document.querySelector('#token') !== null || !document.getElementById('sign').hidden")
	if browser.Eval[bool](tab, "document.querySelector('#token') === null") {
		tab.Click("header", "Sign in")
	}
	tab.Set("#token", token)
	tab.Click("#view", "Sign in")
	tab.Says("#who", who)
}

// TestPageRedis uses the page where limits are in a Redis that two processes share:
// what one page does holds for both.
func TestPageRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	store := "redis://" + startRedis(t, "").address
	chromium := browser.Start(t)
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		rules := writeFile(t, t.TempDir()+"/stint.yaml", pageRules)
		p := start("-c", rules, "--store", store, "--store-prefix", t.Name())
		p.requests("partner-1", 7)
		tab := browser.Open(t, chromium, p.admin, "/ui/", browser.Look{})
		tab.Says("#view", "redis://", "memory")
		clickThrough(tab, func(passes bool) {
			await.Until(t, fmt.Sprint("a request passes: ", passes), func() bool { return (p.requests("partner-1", 1) == 1) == passes })
		})
		other := start("-c", rules, "--state", "none", "--store", store, "--store-prefix", t.Name())
		if n := other.requests("partner-1", 1); n != 0 {
			t.Error("the client passes at the other process")
		}
		tab.Click("[aria-label='Rule orders']", "Reset…")
		tab.Set("dialog [name=reason]", "our fault")
		tab.Click("dialog", "Confirm")
		tab.Says("#view", "Passes")
		await.Until(t, "a request passes at the other", func() bool { return other.requests("partner-1", 1) == 1 })
	})
}

// TestPagePostgres uses the page where rules and tokens are in a PostgreSQL that two
// nodes read: what one page does holds on both, and a viewer may not.
func TestPagePostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	database := dbtest.Postgres(t).URL
	must(t, "rules", "migrate", "--rules", database)
	must(t, "rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", pageRules), "--rules", database)
	operator := must(t, "token", "make", "otto", "--role", "operator", "--rules", database)
	viewer := must(t, "token", "make", "vera", "--role", "viewer", "--rules", database)
	node := func(name string) *running {
		p := launch(t, "serve", "serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--rules", database, "--node", name, "--rules-copy", "none")
		p.listening()
		return p
	}
	a, b := node("a"), node("b")
	a.requests("partner-1", 7)
	b.requests("partner-1", 7)
	chromium := browser.Start(t)
	tab := browser.Open(t, chromium, a.admin, "/ui/", browser.Look{})
	signIn(tab, operator, "otto, operator")
	clickThrough(tab, func(passes bool) {
		for _, p := range []*running{a, b} {
			await.Until(t, fmt.Sprint("a request passes: ", passes), func() bool { return (p.requests("partner-1", 1) == 1) == passes })
		}
	})
	tab.JS("location.hash = '#/nodes'")
	tab.Says("#view", "a", "b", "ok")
	tab.JS("location.hash = '#/audit'")
	tab.Says("#view", "otto", "override set", "ticket 4711")
	other := browser.Open(t, browser.Start(t), b.admin, "/ui/", browser.Look{Refused: []string{"403"}})
	signIn(other, viewer, "vera, viewer")
	other.Says("#view", "orders")
	if status := browser.Eval[int](other, "fetch('v1/override?rule=orders&key=partner-1', {method: 'PUT', body: '{\"unlimited\":true}'}).then((r) => r.status)"); status != http.StatusForbidden {
		t.Errorf("a viewer acts: %d", status)
	}
}

// TestPageTLS: an address that others reach is https, where a database has the
// tokens too. Without one nothing is to be seen, plain http is refused, and the
// cookie of a session goes over https alone.
func TestPageTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	database := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "migrate", "--rules", database)
	must(t, "rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", pageRules), "--rules", database)
	operator := must(t, "token", "make", "otto", "--role", "operator", "--rules", database)
	cert, key := certificate(t)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "behind") }))
	defer behind.Close()
	for name, flags := range map[string][]string{
		"serve": {"--http", "127.0.0.1:0"}, "proxy": {"--listen", "127.0.0.1:0", "--upstream", behind.URL},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, name, append([]string{name, "--admin", "0.0.0.0:0", "--rules", database, "--tls-cert", cert, "--tls-key", key}, flags...)...)
			p.listening()
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, cert)}}}
			defer client.CloseIdleConnections()
			admin := "https://127.0.0.1" + p.admin[strings.LastIndexByte(p.admin, ':'):]
			front := strings.Replace(p.front, "http://", "https://", 1)
			ask := func(method, url, body, token string) *http.Response {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Api-Key", "partner-1")
				r.Header.Set("Content-Type", "application/json")
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp
			}
			passes := func() bool {
				if name == "proxy" {
					return ask("GET", front+"/", "", "").StatusCode == http.StatusOK
				}
				return ask("POST", front+"/v1/check", `{"attributes":{"method":"GET","path":"/","header.x-api-key":"partner-1"}}`, "").StatusCode == http.StatusOK
			}
			for range 7 {
				passes()
			}
			if resp, err := http.Get(strings.Replace(admin, "https", "http", 1) + "/v1/rules"); err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("plain http is answered %d", resp.StatusCode)
				}
			}
			for _, one := range []struct {
				path, token string
				want        int
			}{
				{"/livez", "", 200}, {"/v1/rules", "", 401}, {"/v1/top", "", 401}, {"/v1/rules", "made-up-0123456789", 401}, {"/v1/rules", operator, 200}, {"/ui/v1/top", "", 401}, {"/ui/live", "", 401}, {"/lab/", "", 404},
			} {
				if got := ask("GET", admin+one.path, "", one.token).StatusCode; got != one.want {
					t.Errorf("%s: %d, want %d", one.path, got, one.want)
				}
			}
			if set := ask("POST", admin+"/ui/session", fmt.Sprintf(`{"token":%q}`, operator), "").Header.Get("Set-Cookie"); !strings.Contains(set, "; Secure") || !strings.Contains(set, "HttpOnly") {
				t.Errorf("the cookie: %s", set)
			}
			tab := browser.Open(t, browser.Start(t), admin, "/ui/", browser.Look{AnyCertificate: true})
			signIn(tab, operator, "otto, operator")
			clickThrough(tab, func(want bool) {
				await.Until(t, fmt.Sprint("a request passes: ", want), func() bool { return passes() == want })
			})
			if strings.Contains(p.log(), operator) {
				t.Error("the log has a token")
			}
		})
	}
}

// pool has one certificate.
func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return p
}

// TestPageRevoked: a token that is revoked ends the streams of its sessions, after
// a few events at most.
func TestPageRevoked(t *testing.T) {
	database := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "migrate", "--rules", database)
	must(t, "rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", pageRules), "--rules", database)
	token := must(t, "token", "make", "vera", "--role", "viewer", "--rules", database)
	p := launch(t, "serve", "serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--rules", database)
	p.listening()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.admin+"/ui/session", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, p.admin+"/ui/live", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		r.AddCookie(c)
	}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	events, more := bufio.NewScanner(stream.Body), 0
	events.Buffer(nil, 1<<20)
	for revoked := false; events.Scan(); {
		switch {
		case events.Text() != "event: now":
		case !revoked:
			must(t, "token", "revoke", "vera", "--rules", database)
			revoked = true
		default:
			if more++; more > 8 {
				t.Fatal("the stream of a revoked token goes on")
			}
		}
	}
	if err := events.Err(); err != nil {
		t.Errorf("the stream is cut off: %v", err)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
