package main_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/testkit/browser"
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

// TestPageSession signs in and out by tokens of files: a cookie that scripts do
// not see, is no token, and is good below the page alone.
func TestPageSession(t *testing.T) {
	const viewer, operator = "viewer-0123456789", "operator-0123456789"
	dir := t.TempDir()
	s := operated(t, "-c", disk.Write(t, dir+"/stint.yaml", pageRules),
		"--token-file", disk.Write(t, dir+"/askers", viewer+"\n"), "--operator-token-file", disk.Write(t, dir+"/operators", operator+"\n"))
	s.client.Jar, _ = cookiejar.New(nil) // which never fails
	expect := func(what string, want int, contains, method, path, body string, header ...string) *http.Response {
		t.Helper()
		headers := map[string]string{}
		if len(header) > 0 {
			headers[header[0]] = header[1]
		}
		resp, text := s.do(method, s.admin+path, body, headers)
		if resp.StatusCode != want || !strings.Contains(text, contains) {
			t.Errorf("%s: %d %.300s; want %d and %q", what, resp.StatusCode, text, want, contains)
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
	if _, list := s.call("GET", s.admin+"/ui/v1/overrides", "", nil); strings.Contains(list, "partner-1") || !strings.Contains(list, `"key_hash"`) {
		t.Errorf("a list shows keys: %s", list)
	}
	if _, audit := s.call("GET", s.admin+"/ui/v1/audit", "", nil); strings.Contains(audit, "partner-1") || !strings.Contains(audit, "operator token, line 1") {
		t.Errorf("the audit shows keys: %s", audit)
	}
	expect("signs out", 200, `"signed_in":false`, "DELETE", "/ui/session", "")
	expect("the cookie of before", 403, "for the role operator", "PUT", override, `{"limits":["8/h"]}`, "Cookie", strings.Split(set, ";")[0])
	if log := s.log(); strings.Contains(log, viewer) || strings.Contains(log, operator) || strings.Contains(log, strings.Split(set, ";")[0]) {
		t.Errorf("the log has a token or a session:\n%s", log)
	}
}

// TestPageClient: on this machine and without tokens the page shows what passes and what
// is denied as it happens, and keys as hashes until one is asked for, which the audit
// has. A client is denied; the page says why, raises its limits for an hour, and takes
// that back.
func TestPageClient(t *testing.T) {
	chromium := browser.Start(t)
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
		tab := browser.Open(t, chromium, p.admin, "/ui/", browser.Look{Refused: []string{"422"}})
		tab.Says("#who", "this machine, operator")
		tab.Says("#view", "No request was decided in this time", "No key was denied", "ready")
		p.requests("partner-1", 7)
		tab.Says("#view", "orders", "Reveal", "Point at one")
		if text := browser.Eval[string](tab, "document.body.innerText"); strings.Contains(text, "partner-1") {
			t.Errorf("a key is shown: %s", text)
		}
		tab.JS("document.querySelector('td button').click()")
		tab.Click("#view", "partner-1")
		tab.Says("#view", "Denied now by rule orders.", "5 of 5 used, 0 left", "Denied 2 times in the last ten minutes")
		tab.Click("[aria-label='Rule orders']", "Raise…")
		tab.Says("dialog", "Other limits for this client")
		tab.Set("dialog [name=limits]", "ten")
		tab.Set("dialog [name=reason]", "ticket 4711")
		tab.Click("dialog", "Confirm")
		tab.Says("dialog [role=alert]", "ten")
		tab.Set("dialog [name=limits]", "1,000/h")
		tab.Click("dialog", "Confirm")
		tab.Says("#view", "Passes", "Has 1,000/h of its own", "ticket 4711", "override set")
		if n := p.requests("partner-1", 1); n != 1 {
			t.Error("the client is denied still")
		}
		tab.Click("#view", "Undo act 2")
		tab.Click("dialog", "Confirm")
		tab.Says("#view", "Denied now by rule", "undo of act 2")
		if n := p.requests("partner-1", 1); n != 0 {
			t.Error("the client passes still")
		}
		tab.Click("[aria-label='Rule orders']", "Block…")
		tab.Set("dialog [name=reason]", "abuse")
		tab.Click("dialog", "Confirm")
		tab.Says("#view", "Blocked, by this machine", "Everything is denied by a block")
		tab.JS("location.hash = '#/overrides'")
		tab.Says("#view", "abuse", "block")
		if text := browser.Eval[string](tab, "document.querySelector('#view').innerText"); !strings.Contains(text, "partner-1") {
			t.Errorf("a key that was revealed is hidden again: %s", text)
		}
		tab.JS("location.hash = '#/audit'")
		tab.Says("#view", "key reveal", "override set", "ticket 4711", "abuse")
		for range 48 {
			if resp, text := p.do("PUT", p.admin+"/v1/override?rule=orders&key=partner-2", `{"limits":["9/h"]}`, nil); resp.StatusCode != http.StatusOK {
				t.Fatal(text)
			}
		}
		tab.JS("location.hash = '#/nodes'")
		tab.Says("#view", "ok", "none")
		tab.JS("location.hash = '#/audit'")
		tab.Says("#view", "undo of act 2")
		tab.Click("#view", "Next")
		tab.Says("#view", "ticket 4711")
		if text := browser.Eval[string](tab, "document.querySelector('#view').innerHTML"); strings.Contains(text, "undo of act 2") || strings.Contains(text, "Undo act") {
			t.Errorf("the second page offers to take back what the first has taken back: %s", text)
		}
		tab.JS("location.hash = '#/nodes'")
		tab.Says("#view", "ok", "none")
	})
}

// TestPageRules edits rules in a database as an admin: what is wrong stands at its
// line; then they are rehearsed, published, and rolled back. Meanwhile a viewer in
// another browser sees it, and may not.
func TestPageRules(t *testing.T) {
	dir := t.TempDir()
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", disk.Write(t, dir+"/stint.yaml", pageRules), "--rules", database, "--comment", "the first")
	admin := must(t, "token", "make", "anna", "--role", "admin", "--rules", database)
	viewer := must(t, "token", "make", "vera", "--role", "viewer", "--rules", database)
	p := operated(t, "--rules", database)
	for i := range 4 {
		p.requests(fmt.Sprint("partner-", i), 5)
	}
	tab := browser.Open(t, browser.Start(t), p.admin, "/ui/", browser.Look{Refused: []string{"412"}})
	other := browser.Open(t, browser.Start(t), p.admin, "/ui/#/rules", browser.Look{Refused: []string{"401", "403"}})
	other.Says("#view", "Sign in")
	other.Set("#token", "no-such-token-here")
	other.Click("#view", "Sign in")
	other.Says("#view", "not known here")
	other.Set("#token", viewer)
	other.Click("#view", "Sign in")
	other.Says("#who", "vera, viewer")
	other.Says("#view", "orders", "logins", "2 rules")

	tab.Click("header", "Sign in")
	tab.Set("#token", admin)
	tab.Click("#view", "Sign in")
	tab.Says("#who", "anna, admin")
	tab.Click("#view", "orders")
	tab.Says("#view", "Holds every request.", "Each header.x-api-key is counted apart", "5/1h: 5 at once, and one comes back each 12m", "limits: [5 per hour]", "let 20 pass", "revision 1")
	tab.Click("#view", "Edit…")
	tab.Until("document.getElementById('document')?.value.includes('5 per hour')")
	tab.Says("#verdict", "Good: 2 rules")
	text := "document.getElementById('document').value"
	tab.Set("#document", strings.Replace(pageRules, "limits: [5 per hour]", "limit: [5 per hour]", 1))
	tab.Says(".faults", "line 4", "limits")
	tab.Until("document.querySelector('.gutter .wrong')?.textContent.trim() === '4'")
	tab.Until("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Publish…').disabled")
	tab.Click(".faults", "line 4")
	tab.Until("document.activeElement.id === 'document' && document.activeElement.selectionStart === %d", strings.Index(pageRules, "limits"))
	tab.Set("#document", strings.Replace(pageRules, "5 per hour", "2 per hour", 1))
	tab.Says("#verdict", "Good")
	tab.JS("const a = document.getElementById('document'); a.focus(); a.setSelectionRange(0, 0); a.setSelectionRange(%s.indexOf('limits') + 2, %s.indexOf('limits') + 2)", text, text)
	tab.Says(".help", "rules › limits")
	tab.Click("#view", "Compare")
	tab.Says("#diff", "-    limits: [5 per hour]", "+    limits: [2 per hour]")
	tab.Click("#view", "Rehearse")
	tab.Says("#rehearsed", "20 requests", "newly denied (60 %)", "12", "orders")
	tab.Click("#view", "Show keys")
	tab.Says("#rehearsed", "partner-2")
	tab.Click("#view", "Publish…")
	tab.Set("dialog [name=comment]", "two an hour")
	tab.Click("dialog", "Confirm")
	tab.Says("#published", "Revision 2 is in force")
	other.JS("location.hash = '#/history'")
	other.Says("#view", "2, in force", "two an hour", "anna")
	late := 0 // each try is of another client, as the former may have taken five
	await.Until(t, "late ones have two", func() bool { late++; return p.requests(fmt.Sprint("late-", late), 5) == 2 })

	tab.JS("location.hash = '#/history'")
	tab.Click("#view", "Show revision 2")
	tab.Says("#diff", "+    limits: [2 per hour]")
	tab.Click("#view", "Roll back to revision 1")
	tab.Click("dialog", "Confirm")
	tab.Says("#view", "3, in force", "back to revision 1")
	tab.JS("location.hash = '#/edit'")
	tab.Says("#base", "from revision 3")
	must(t, "rules", "push", disk.Write(t, dir+"/stint.yaml", pageRules+"# of somebody else\n"), "--rules", database)
	tab.Set("#document", pageRules+"# of anna\n")
	tab.Click("#view", "Publish…")
	tab.Set("dialog [name=comment]", "too late")
	tab.Click("dialog", "Confirm")
	tab.Says("dialog [role=alert]", "Somebody else has published meanwhile")
	other.JS("location.hash = '#/edit'")
	other.Says("#verdict", "Good")
	for _, name := range []string{"Publish…", "Show keys", "Overrides", "Audit"} {
		if browser.Eval[bool](other, fmt.Sprintf("[...document.querySelectorAll('button, a')].some((b) => b.textContent === %q)", name)) {
			t.Errorf("a viewer is offered %s", name)
		}
	}
	for _, path := range []string{"v1/overrides", "v1/audit", "v1/tokens"} {
		if status := browser.Eval[int](tab, "fetch('"+path+"').then((r) => r.status)"); status != 200 {
			t.Errorf("an admin is answered %d for %s", status, path)
		}
		if status := browser.Eval[int](other, "fetch('"+path+"').then((r) => r.status)"); status != 403 {
			t.Errorf("a viewer is answered %d for %s", status, path)
		}
	}
	if _, out, _ := p.stint("audit", "--token-file", disk.Write(t, dir+"/token", admin)); !strings.Contains(out, "anna  key reveal rehearsal") {
		t.Errorf("the audit:\n%s", out)
	}
}

// axe is the accessibility checker, for browsers.
const axe = "../../planner/lab/testdata/axe/axe-4.14.1.min.js.gz"

// TestPageLooks goes through all views, light on a desk and dark on a phone: axe
// finds nothing, and nothing is wider than the phone.
func TestPageLooks(t *testing.T) {
	chromium := browser.Start(t)
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
	for i := range 3 {
		p.requests(fmt.Sprint("partner-", i), 7)
	}
	if status, _, errs := p.stint("block", "partner-1", "--rule", "orders", "--for", "1h", "--reason", "abuse"); status != 0 {
		t.Fatal(errs)
	}
	for _, look := range []browser.Look{{}, {Width: 360, Height: 780, Dark: true}} {
		name := map[bool]string{false: "desk", true: "phone"}[look.Dark]
		t.Run(name, func(t *testing.T) {
			tab := browser.Open(t, chromium, p.admin, "/ui/", look)
			for _, view := range []struct{ hash, says, do string }{
				{"", "Reveal", ""},
				{"client", "Write what you know", ""},
				{"client?header.x-api-key=partner-1", "Everything is denied by a block", "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Unblock…').click()"},
				{"rules", "logins", ""},
				{"rule?name=orders", "counted apart", ""},
				{"edit", "Good", "const a = document.getElementById('document'); a.value += 'nonsense: 1'; a.dispatchEvent(new Event('input'))"},
				{"history", "in force", ""},
				{"overrides", "abuse", ""},
				{"audit", "override set", ""},
				{"nodes", "none", ""},
				{"nodes", "", "document.getElementById('sign').click()"},
			} {
				tab.JS("document.querySelector('dialog')?.close(); location.hash = '#/%s'", view.hash)
				tab.Says("#view", view.says)
				if view.do != "" {
					tab.JS("%s", view.do)
				}
				if view.hash == "edit" {
					tab.Says(".faults", "nonsense")
				}
				tab.Accessible(axe, view.hash)
				if look.Width > 0 && browser.Eval[int](tab, "document.documentElement.scrollWidth") > 360 {
					t.Errorf("%s is wider than a phone: %v", view.hash, browser.Eval[[]string](tab, "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest('.scroll, pre')).map((e) => e.tagName + '.' + e.className).slice(0, 10)"))
				}
			}
		})
	}
}

// longRules have long names, keys and limits, and a rule that counts all together.
const longRules = `rules:
  - name: partner-orders-per-api-key-and-calendar-day
    key: [header.x-api-key]
    limits: [5 per hour, 100 per day in Europe/Paris, 400 per week in Europe/Paris, 900 per month in Europe/Paris, 50 per second burst 100]
  - {name: everyone, key: [], hash_key: true, limits: [6 per hour]}
  - {name: named, match: {header.x-partner: SECRET-a}, key: [ip], limits: [5/h]}
`

// TestPageFits: at the width of a desk and of a phone no table is cut off or has to
// be scrolled, however long its texts are. Two lines of these are shown, and the
// rest by keyboard. A rule that counts all together has no key to reveal.
func TestPageFits(t *testing.T) {
	chromium := browser.Start(t)
	dir := t.TempDir()
	p := operated(t, "-c", disk.Write(t, dir+"/stint.yaml", longRules), "--secret-file", disk.Write(t, dir+"/secret", strings.Repeat("secret", 8)))
	client := strings.Repeat("partner-0", 7)[:60]
	p.requests(client, 12)
	long := strings.Repeat("because of ticket 4711, ", 17)[:400]
	for _, key := range []string{"header.x-api-key=" + client, "header.x-api-key=b"} {
		for _, limits := range []string{"1000/h", "50/s,200/m,5000/h,70_000 per day in Europe/Paris,300_000 per week in Europe/Paris"} {
			if status, _, errs := p.stint("override", "set", "--attribute", key, "partner-orders-per-api-key-and-calendar-day", limits, "--reason", long); status != 0 {
				t.Fatal(errs)
			}
		}
	}
	for _, args := range [][]string{{"override", "set", "everyone", "", "90/h", "--reason", strings.Repeat("x", 400)}, {"block", "c", "--rule", "partner-orders-per-api-key-and-calendar-day", "--reason", long}, {"override", "set", "partner-orders-per-api-key-and-calendar-day", "d", "9/h"}} {
		if status, _, errs := p.stint(args...); status != 0 {
			t.Fatal(errs)
		}
	}
	for _, width := range []int64{1280, 390} {
		tab := browser.Open(t, chromium, p.admin, "/ui/", browser.Look{Width: width, Height: 900})
		for _, view := range []struct{ hash, says string }{
			{"", "one key for all"}, {"client?header.x-api-key=" + client, "Undo"}, {"rules", "everyone"}, {"rule?name=partner-orders-per-api-key-and-calendar-day", "counted apart"},
			{"rule?name=named", "stint inspect"}, {"history", "Revisions"}, {"overrides", "one key for all"}, {"audit", "one key for all"}, {"nodes", "none"},
		} {
			tab.JS("location.hash = '#/%s'", view.hash)
			tab.Says("#view", view.says)
			tab.JS("for (const b of document.querySelectorAll('.key button')) b.click()")
			tab.Until("!document.querySelector('.key button')")
			for _, cut := range browser.Eval[[]string](tab, fmt.Sprintf(`[document.documentElement, ...document.querySelectorAll('.scroll, tbody tr > *')].filter((e) => e.scrollWidth > Math.min(e.clientWidth, %d))
				.map((e) => e.tagName + ' of ' + (e.closest('.scroll')?.ariaLabel ?? 'the page') + ': ' + e.scrollWidth + ' in ' + e.clientWidth)`, width)) {
				t.Errorf("%d wide, %s: %s", width, view.hash, cut)
			}
			if out := browser.Eval[int](tab, "[...document.querySelectorAll('[aria-label^=Undo]')].filter((b) => b.getBoundingClientRect().left < 0 || b.getBoundingClientRect().right > innerWidth).length"); out > 0 {
				t.Errorf("%d wide, %s: %d Undo off the screen", width, view.hash, out)
			}
		}
		tab.JS("location.hash = '#/audit'")
		tab.Says("#view", "override set", "4711")
		heights := "[...document.querySelectorAll('tbody tr')].map((e) => e.offsetHeight)"
		if all := browser.Eval[[]int](tab, heights); slices.Max(all) > 3*slices.Min(all) {
			t.Errorf("%d wide: the rows of the audit are %d high", width, all)
		}
		tab.JS("[...document.querySelectorAll('tbody summary')].at(-1).focus()")
		tab.Press(kb.Enter)
		tab.Until("(() => { const s = document.querySelector('details[open] summary'); return s && s.scrollHeight <= s.clientHeight && s.clientHeight > 60 })()")
	}
}

// TestPageKeyboard: by keys alone past the menu, to the chart, and through it.
func TestPageKeyboard(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
	p.requests("partner-1", 7)
	tab := browser.Open(t, browser.Start(t), p.admin, "/ui/", browser.Look{})
	tab.Says("#view", "Point at one")
	tab.Press(kb.Tab)
	tab.Says(":focus", "Skip to the content")
	tab.Press(kb.Enter)
	tab.Until("document.activeElement.id === 'view'")
	if at := browser.Eval[string](tab, "location.hash"); at != "" {
		t.Errorf("to skip to the content is to go to %s", at)
	}
	tab.Press(kb.Tab)
	tab.Until("document.activeElement.id === 'range'")
	tab.Press(kb.ArrowDown)
	tab.Says(".readout", "requests in 8m.")
	tab.Press(kb.ArrowUp)
	tab.Says(".readout", "requests in 20s")
	tab.Press(kb.Tab)
	tab.Until("document.activeElement.matches('svg.plot')")
	tab.Press(kb.Home)
	tab.Until("document.activeElement.getAttribute('aria-valuetext').endsWith('0 passed, 0 denied') && document.activeElement.getAttribute('aria-valuenow') === '0'")
	tab.Press(kb.End)
	tab.Press(kb.ArrowLeft)
	tab.Until("document.activeElement.getAttribute('aria-valuenow') === '178'")
	tab.Until("document.querySelector('.readout').innerText.includes(' to ')")
}

// TestPageBounded: a page that is open for long does not grow, whatever comes:
// events with keys and rules that are new each time, a day of them with
// STINT_SOAK.
func TestPageBounded(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
	tab := browser.Open(t, browser.Start(t), p.admin, "/ui/", browser.Look{})
	tab.Says("#view", "ready")
	tab.JS(`
		window.feed = async (from, n) => {
			const { heard } = await import(location.pathname + 'live.js');
			for (let i = from; i < from + n; i++) {
				const at = new Date(1e12 + i * 2000).toISOString();
				const key = (j) => ({rule: 'rule' + ((i + j) %% 50), key: 'k' + i + j, key_hash: 'hash' + i + j, count: i + j, limit: '5/1h', used: 5, of: 5, part: 0.9, since: at, last: at, at});
				const keys = Array.from({length: 10}, (_, j) => key(j));
				const rules = Array.from({length: 20}, (_, j) => ({rule: 'rule' + (i + j), allowed: Array(60).fill(i %% 100), denied: Array(60).fill(j)}));
				if (i %% 5 === 0) for (const span of ['hour', 'day']) heard(span, JSON.stringify({to: at, step: 10, allowed: Array(360).fill(i %% 90), denied: Array(360).fill(i %% 7), rules, others: 0}));
				heard('now', JSON.stringify({at, version: {name: 'v' + i, hash: ''}, minutes: 10, rules: rules.map((r) => ({rule: r.rule, allowed: i, denied: i, allowed_per_second: 1, denied_per_second: 2})),
					denied: keys, nearest: keys, stores: [{store: 'memory', keys: i, max_keys: 1e6, bytes: i}], nodes: [{node: 'n' + i, version: i, change: 0, seen: at, error: ''}],
					allowed_per_second: 1, denied_per_second: 2, rules_in_force: 50}));
				if (i %% 100 === 0) await new Promise((r) => setTimeout(r));
			}
			return document.querySelectorAll('*').length;
		}`)
	n := 200
	if os.Getenv("STINT_SOAK") != "" {
		n = 43_200
	}
	browser.Eval[int](tab, "feed(0, 50)")
	tab.Held()
	elements := browser.Eval[int](tab, "feed(50, 50)")
	nodes, listeners, heap := tab.Held()
	after := 0
	for from := 100; from < 100+n; from += 200 {
		after = browser.Eval[int](tab, fmt.Sprintf("feed(%d, 200)", from))
	}
	nodesAfter, listenersAfter, heapAfter := tab.Held()
	t.Logf("%d events: elements %d, then %d; nodes %.0f, %.0f; listeners %.0f, %.0f; heap %.0f, %.0f KB", n, elements, after, nodes, nodesAfter, listeners, listenersAfter, heap/1024, heapAfter/1024)
	if after > elements+50 || nodesAfter > nodes*1.5+500 || listenersAfter > listeners*1.5+100 || heapAfter > heap*1.5+1<<20 {
		t.Errorf("it grows: elements %d, then %d; nodes %.0f, %.0f; listeners %.0f, %.0f; heap %.0f, %.0f", elements, after, nodes, nodesAfter, listeners, listenersAfter, heap, heapAfter)
	}
}

// watch opens the stream of the page.
func (p *running) watch() *http.Response {
	p.t.Helper()
	resp, err := p.client.Get(p.admin + "/ui/live")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestPageStream: at most eight watch; streams end with the process, which does
// not wait for them.
func TestPageStream(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
	streams := make([]*http.Response, 8)
	for i := range streams {
		streams[i] = p.watch()
		lines := bufio.NewScanner(streams[i].Body)
		for _, want := range []string{"event: hour", `data: {"to":`, "", "event: day", `data: {"to":`, "", "event: now", `data: {"at":`} {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
				t.Fatalf("stream %d: %.80q, want %q", i, lines.Text(), want)
			}
		}
	}
	if resp := p.watch(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more is answered %d", resp.StatusCode)
	}
	streams[0].Body.Close()
	await.Until(t, "another may watch", func() bool { return p.watch().StatusCode == http.StatusOK })
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	if _, err := io.Copy(io.Discard, streams[1].Body); err != nil {
		t.Errorf("a stream is cut off: %v", err)
	}
	if strings.Contains(p.log(), "not all requests had finished") {
		t.Errorf("it waited for streams:\n%s", p.log())
	}
}

// TestPageTLS: an address that others reach is https, where a database has the
// tokens too. Without one nothing is to be seen, plain http is refused, and the
// cookie of a session goes over https alone.
func TestPageTLS(t *testing.T) {
	dir := t.TempDir()
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", disk.Write(t, dir+"/stint.yaml", pageRules), "--rules", database)
	operator := must(t, "token", "make", "otto", "--role", "operator", "--rules", database)
	trusted := x509.NewCertPool()
	trusted.AddCert(writeCertificate(t, dir+"/cert.pem", dir+"/key.pem", 1))
	p := startStint(t, "serve", "--http", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--rules", database, "--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem")
	if status := statusOf(t, from("127.0.0.1"), here("http", p.admin)+"/v1/rules"); status != 0 && status != http.StatusBadRequest {
		t.Errorf("plain http is answered %d", status)
	}
	p.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	for _, one := range []struct {
		method, path, body, token string
		want                      int
	}{
		{"GET", "/livez", "", "", 200}, {"GET", "/v1/rules", "", "", 401}, {"GET", "/v1/top", "", "", 401}, {"GET", "/v1/rules", "", "made-up-0123456789", 401},
		{"GET", "/v1/rules", "", operator, 200}, {"GET", "/ui/v1/top", "", "", 401}, {"GET", "/ui/live", "", "", 401}, {"GET", "/lab/", "", "", 404},
		{"POST", "/ui/session", fmt.Sprintf(`{"token":%q}`, operator), "", 200},
	} {
		resp, _ := p.do(one.method, here("https", p.admin)+one.path, one.body, bearer(one.token))
		set := resp.Header.Get("Set-Cookie")
		if resp.StatusCode != one.want || one.body != "" && !(strings.Contains(set, "; Secure") && strings.Contains(set, "HttpOnly")) {
			t.Errorf("%s: %d, want %d; the cookie: %s", one.path, resp.StatusCode, one.want, set)
		}
	}
	if strings.Contains(p.log(), operator) {
		t.Error("the log has a token")
	}
}

// TestPageRevoked: a token that is revoked ends the streams of its sessions, after
// a few events at most.
func TestPageRevoked(t *testing.T) {
	database := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "push", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules), "--rules", database)
	token := must(t, "token", "make", "vera", "--role", "viewer", "--rules", database)
	p := operated(t, "--rules", database)
	p.client.Jar, _ = cookiejar.New(nil) // which never fails
	p.call(http.MethodPost, p.admin+"/ui/session", fmt.Sprintf(`{"token":%q}`, token), nil)
	stream := p.watch()
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
