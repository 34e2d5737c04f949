package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stint-dev/stint/planner/testkit/browser"
)

// madeUp feeds the page an hour of invented traffic.
const madeUp = `(async () => {
	const { heard } = await import(location.pathname + 'live.js');
	let seed = 7;
	const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
	const wave = (i, n) => 1 + 0.35 * Math.sin((i / n) * 6) + 0.3 * random();
	const hour = (n, up, down, from) => ({allowed: Array.from({length: n}, (_, i) => Math.round(up * wave(i, n))),
		denied: Array.from({length: n}, (_, i) => Math.round((i / n > from ? down : down / 30) * wave(i, n)))});
	const rules = [['login', 40, 22, 0.6], ['api', 3000, 90, 0.8], ['search', 700, 12, 0], ['downloads', 90, 1, 0]].map(([rule, up, down, from]) => ({rule, ...hour(60, up, down, from)}));
	const sum = (v) => v.reduce((a, b) => a + b, 0);
	const at = new Date().toISOString();
	const hash = () => Array.from({length: 16}, () => Math.floor(random() * 16).toString(16)).join('');
	const keys = ['api', 'login', 'api', 'login', 'search'].map((rule, i) => ({rule, key: '', key_hash: hash(), count: Math.round(900 / (i + 1)), limit: {api: '1000/1m', login: '5/1m sliding_log', search: '100/1m'}[rule], part: 0.99 - i * 0.03, used: 990 - i * 30, since: at, last: at, at}));
	for (const span of ['hour', 'day']) heard(span, JSON.stringify({to: at, step: 10, ...hour(360, 620, 30, 0.75), rules, others: 3}));
	heard('now', JSON.stringify({at, version: {name: 'stint.yaml', hash: '', revision: 42}, minutes: 10, allowed_per_second: 64.2, denied_per_second: 4.1, rules_in_force: 7,
		rules: rules.map((r) => ({rule: r.rule, allowed: sum(r.allowed) * 9, denied: sum(r.denied) * 4, allowed_per_second: r.allowed.at(-1) / 60, denied_per_second: r.denied.at(-1) / 60})),
		denied: keys, nearest: keys.toReversed().map((k, i) => ({...k, part: 0.99 - i * 0.03})), stores: [{store: 'memory', keys: 184201, max_keys: 1048576, bytes: 48 * 1048576}],
		nodes: [{node: 'eu-1:8080', version: 42, change: 9, seen: at, error: ''}, {node: 'eu-2:8080', version: 42, change: 9, seen: at, error: ''}, {node: 'us-1:8080', version: 41, change: 9, seen: at, error: ''}]}));
	return 0;
})()`

// TestDocsPage takes the pictures of docs/OPERATE.md, with -update.
func TestDocsPage(t *testing.T) {
	if !*update {
		t.Skip("-update takes the pictures")
	}
	pictures := []struct {
		name, hash string
		look       browser.Look
		do         func(tab *browser.Tab)
	}{
		{"overview", "", browser.Look{Width: 1180, Height: 900}, func(tab *browser.Tab) { browser.Eval[int](tab, madeUp) }},
		{"client", "client?header.x-api-key=partner-1", browser.Look{Width: 1180, Height: 620}, func(tab *browser.Tab) { tab.Says("#view", "Denied now.", "What was done") }},
		{"edit", "edit?line=4", browser.Look{Width: 1180, Height: 1120, Dark: true}, func(tab *browser.Tab) {
			tab.Says("#verdict", "Good")
			tab.Set("#document", strings.Replace(pageRules, "5 per hour", "3 per hour", 1))
			tab.Until("document.body.dataset.checked === '2'")
			tab.Click("#view", "Rehearse")
			tab.Says("#rehearsed", "newly denied")
		}},
		{"phone", "", browser.Look{Width: 360, Height: 900}, func(tab *browser.Tab) { browser.Eval[int](tab, madeUp) }},
	}
	p := operated(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", pageRules))
	for i := range 9 {
		p.requests(fmt.Sprint("partner-", i), 2+rand.IntN(7))
	}
	p.stint("override", "set", "orders", "partner-1", "50/h", "--for", "1h", "--reason", "ticket 4711")
	p.stint("audit", "undo")
	p.requests("partner-1", 9)
	chromium := browser.Start(t)
	for _, c := range pictures {
		tab := browser.Open(t, chromium, p.admin, "/ui/#/"+c.hash, c.look)
		tab.Until("document.querySelector('#view').innerText !== ''")
		if c.hash == "" {
			tab.Says("#view", "Reveal")
		}
		c.do(tab)
		if err := os.WriteFile("../../docs/page-"+c.name+".png", browser.Small(t, tab.Shot()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
