package operate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/service/rules"
)

const written = `# the rules
rules:
  # who logs in
  - name: login
    description: |
      rules:
        - name: none
    match: [{path: /login, method: POST}, {path: /signin}]
    unless: {ip: 192.0.2.0/24}
    key: [ip, path]
    on_missing: deny
    limits: [5/h sliding_log, 10/m, 3/s leaky_queue]
    cost: 2
    shadow: true

  # those who pay

  - name: api
    key: ip
    tiers: {by: jwt.org, default: free, plans: {free: 100 per day in Europe/Paris, pro: 50/h}}
    overrides: [{when: {header.x-vip: "1"}, limits: [9/m fixed_window, 50/h fixed_window from first]}]
    on_store_failure: closed
    final: true
  - {name: bad, match: {path: /old}, block: true}
  - {name: tokens, key: [], limits: 9/h, cost: {usage: openai, reserve: 5, missing: 1}, count: {status: 2xx}}
attributes: [jwt.org]
`

// TestAlgorithmWords has words for each algorithm.
func TestAlgorithmWords(t *testing.T) {
	for _, a := range meter.Algorithms() {
		l := stint.PerMinute(3).WithAlgorithm(a)
		if _, known := algorithms[a]; !known {
			t.Errorf("no words for %v", a)
		} else if means, pace := limitWords(l), told(algorithms[a].pace, l, time.Minute); !strings.Contains(means, ": ") || pace == "" || strings.Contains(means+pace, "{") {
			t.Errorf("%v: %q, %q", a, means, pace)
		}
	}
}

// TestTrimmed writes durations as people read them.
func TestTrimmed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Minute: "12m", 24 * time.Hour: "24h", 48 * time.Hour: "2 days", 30 * 24 * time.Hour: "30 days",
		356*time.Hour + 29*time.Minute + 20*time.Second: "14 days 20h29m20s",
	} {
		if got := trimmed(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestRuleText: each rule's lines, and what they mean.
func TestRuleText(t *testing.T) {
	f, err := rules.Decode("stint.yaml", []byte(written))
	if err != nil {
		t.Fatal(err)
	}
	all := f.Rules.File().Rules()
	want := []struct {
		first, last string
		lines       int
		words       []string
	}{
		{"- name: login", "  shadow: true", 11, []string{
			"Holds requests where path is /login and method is POST; or where path is /signin, but not those where ip is 192.0.2.0/24.",
			"Each combination of ip and path is counted apart, addresses by /32 (IPv4) and /64 (IPv6); without that, a request is denied.",
		}},
		{"- name: api", "  final: true", 6, []string{
			`Where header.x-vip is 1: 50/1h fixed_window from first: 50 in each window of 1h, which begins with a key's first request.`,
		}},
		{"- {name: bad, match: {path: /old}, block: true}", "- {name: bad, match: {path: /old}, block: true}", 1, []string{"Holds requests where path is /old.", "All are denied."}},
		{"- {name: tokens, key: [], limits: 9/h, cost: {usage: openai, reserve: 5, missing: 1}, count: {status: 2xx}}", "- {name: tokens, key: [], limits: 9/h, cost: {usage: openai, reserve: 5, missing: 1}, count: {status: 2xx}}", 1, []string{
			"A request costs 5.",
			"When the response has ended, that becomes what it says: usage of openai, or 1 without it.",
			"Responses of status 2xx count; others give back what was charged.",
		}},
	}
	for i, w := range want {
		next := 0
		if i+1 < len(all) {
			next = all[i+1].Line
		}
		text := ruleText([]byte(written), all[i].Line, next)
		lines := strings.Split(text, "\n")
		if lines[0] != w.first || lines[len(lines)-1] != w.last || len(lines) != w.lines {
			t.Errorf("rule %s: %d lines\n%s", all[i].Name, len(lines), text)
		}
		words := ruleWords(all[i])
		for _, one := range w.words {
			if !slices.Contains(words, one) {
				t.Errorf("rule %s: %q is not among %q", all[i].Name, one, words)
			}
		}
	}
}
