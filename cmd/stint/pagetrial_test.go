package main_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/testkit/browser"
)

// TestPageTrial, with STINT_SOAK, uses the page on ten thousand rules and a million
// keys, and says how long things take. It asserts that all of it is there, and
// bounded, and no duration.
func TestPageTrial(t *testing.T) {
	if os.Getenv("STINT_SOAK") == "" {
		t.Skip("takes minutes: STINT_SOAK=1")
	}
	const rules, keys = 10_000, 1_000_000
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range rules {
		fmt.Fprintf(&b, "  - name: rule-%d\n    match: {path: /%d}\n    key: [ip]\n    limits: [2 per hour]\n", i, i)
	}
	p := launch(t, "serve", "serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--max-keys", "2000000", "-c", writeFile(t, t.TempDir()+"/stint.yaml", b.String()))
	p.listening()
	began := time.Now()
	for i := 0; i < keys; i += 100 {
		var body strings.Builder
		for k := range 100 {
			n := i + k
			fmt.Fprintf(&body, `,{"attributes":{"method":"GET","path":"/%d","ip":"10.%d.%d.%d"},"cost":%d}`, n*7%rules, n>>16&255, n>>8&255, n&255, 1+n%3)
		}
		if status, answer := p.call(http.MethodPost, p.front+"/v1/check", `{"requests":[`+body.String()[1:]+`]}`, nil); status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatalf("%d %s", status, answer)
		}
	}
	t.Logf("a million keys asked in %v", time.Since(began).Round(time.Second))
	timed := func(method, path, body string) {
		t.Helper()
		var took []time.Duration
		size := 0
		for range 11 {
			began := time.Now()
			status, answer := p.call(method, p.admin+path, body, nil)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, answer)
			}
			took, size = append(took, time.Since(began)), len(answer)
		}
		slices.Sort(took)
		t.Logf("%s %s: median %v, most %v, %d bytes", method, path, took[5].Round(100*time.Microsecond), took[10].Round(100*time.Microsecond), size)
	}
	timed("GET", "/ui/session", "")
	timed("GET", "/ui/v1/rules/list?n=100", "")
	timed("GET", "/ui/v1/rules/list?n=100&q=99", "")
	timed("GET", "/ui/v1/rule?rule=rule-9999", "")
	timed("GET", "/ui/hour?rule=rule-9999", "")
	timed("POST", "/ui/v1/inspect", `{"attributes":{"ip":"10.0.0.7","path":"/49"}}`)
	timed("GET", "/ui/v1/blocked?n=50", "")
	tab := browser.Open(t, browser.Start(t), p.admin, "/ui/", browser.Look{Refused: []string{"404"}}) // of /favicon.ico, where a text is shown
	tab.Says("#view", "10,000", "rules more that said something", "Reveal")
	var paints []float64
	for range 11 {
		tab.Go("/livez")
		tab.Go("/ui/")
		tab.Until("performance.getEntriesByName('first-contentful-paint').length > 0")
		paints = append(paints, browser.Eval[float64](tab, "performance.getEntriesByName('first-contentful-paint')[0].startTime"))
	}
	slices.Sort(paints)
	tab.Says("#view", "10,000", "Reveal")
	t.Logf("first paint: median %.0f ms, most %.0f ms; %d elements; %s in store", paints[5], paints[10], browser.Eval[int](tab, "document.querySelectorAll('*').length"), browser.Eval[string](tab, "[...document.querySelectorAll('td')].find((e) => e.innerText.includes('2,000,000')).innerText"))
	tab.JS("location.hash = '#/client?ip=10.0.0.7'")
	tab.Says("#view", "The first 100 rules are shown")
	t.Logf("a client under all rules: %d elements", browser.Eval[int](tab, "document.querySelectorAll('*').length"))
	began = time.Now()
	tab.JS("location.hash = '#/edit?line=39998'")
	tab.Says("#verdict", "Good: 10,000 rules")
	t.Logf("the editor, %d KB of rules, checked: after %v", b.Len()>>10, time.Since(began).Round(10*time.Millisecond))
}
