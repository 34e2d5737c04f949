package board

import (
	"fmt"
	"strings"
)

// runbookURL is where runbooks are read; an alert's section follows behind #.
const runbookURL = "https://github.com/stint-dev/stint/blob/main/docs/RUNBOOK.md"

// An alert is one alert rule, and what to do about it.
type alert struct {
	name     string
	expr     string
	wait     string // how long it must hold: for
	severity string // critical: page the operator; warning: in working hours
	summary  string // one line, with templates of Prometheus
	means    string // for the runbook: what happens to clients
	look     string // where to look, and in what order
	act      string // what to do
}

var alerts = []alert{
	{
		name: "StintDown", wait: "2m", severity: "critical",
		expr:    `up == 0 and on (job, instance) last_over_time(stint_build_info[1h])`,
		summary: "stint on {{ $labels.instance }} cannot be scraped",
		means:   "The process is gone, hangs, or its admin address cannot be reached. Behind a proxy that asks it, requests are answered as the proxy is configured for when it gets no answer.",
		look:    "`curl http://ADMIN/livez` from the machine itself. If it answers, the network or the scrape is at fault. Else the last lines of its log, and whether the kernel killed it (`dmesg`, `OOMKilled`).",
		act:     "Start it again. With `--snapshot` it goes on with what keys have used; without, in memory, every key begins with nothing used.",
	},
	{
		name: "StintRulesNotTaken", wait: "1m", severity: "critical",
		expr:    `stint_config_last_reload_successful == 0`,
		summary: "stint on {{ $labels.instance }} goes on with old rules: the new ones are wrong",
		means:   "Nothing for clients: the rules before are in force. A change that somebody believes to be in force is not.",
		look:    "The log: `rules` lines name file, line and column, and what would be right. `stint validate stint.yaml` says the same.",
		act:     "Correct the file, or put the one before back. With rules in a database, `stint rules rollback`. The alert ends with the next file that is good.",
	},
	{
		name: "StintStoreFailing", wait: "2m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_store_errors_total[5m])) > 0`,
		summary: "{{ $value | humanize }} requests a second on {{ $labels.instance }} are decided without the shared store",
		means:   "Rules go by their `on_store_failure`: decided here on this process's share (`local`, the default), passed (`open`), or denied (`closed`).",
		look:    "`store failed` lines in the log say why. `stint check-store redis://…` from this machine. `stint_store_calls_total` by `result`: `configuration` wants somebody to change a password or a permission, `ambiguous` and `unavailable` are a server or a network that does not answer.",
		act:     "Bring the store back. What passed meanwhile is charged to it afterwards (`stint_store_owing_keys` goes back to 0). Nothing needs a restart.",
	},
	{
		name: "StintStoreMisconfigured", wait: "1m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_store_calls_total{result="configuration"}[5m])) > 0`,
		summary: "the store refuses calls of stint on {{ $labels.instance }}: a password, a permission, or keys of another program",
		means:   "As StintStoreFailing, but it will not pass by itself.",
		look:    "`store failed` lines in the log have the store's own words. `stint check-store redis://…` says which commands the user lacks.",
		act:     "Correct the password or the ACL. For keys of another program, give stint a prefix of its own: `--store-prefix`.",
	},
	{
		name: "StintStoreUnreachable", wait: "1m", severity: "critical",
		expr:    `stint_store_breakers_open > 0`,
		summary: "stint on {{ $labels.instance }} no longer calls a server of its store, which does not answer",
		means:   "As StintStoreFailing: requests are decided without waiting for the store. The server is probed beside the traffic.",
		look:    "Whether the server runs, and answers `PING` from this machine. A failover of a cluster or of Sentinels that is under way ends by itself.",
		act:     "Bring the server back. The breaker closes by itself within seconds.",
	},
	{
		name: "StintStoreSlow", wait: "5m", severity: "warning",
		expr:    `histogram_quantile(0.99, sum by (job, instance, le) (rate(stint_store_call_duration_seconds_bucket[5m]))) > 0.02`,
		summary: "1 % of the store's calls take longer than {{ $value | humanizeDuration }} on {{ $labels.instance }}",
		means:   "Requests wait for the store, and those that wait longer than `--store-timeout` (25 ms unless said) are decided without it.",
		look:    "The store's own load (`redis-cli --latency`, `SLOWLOG GET`), its network, and whether it swaps or saves (`INFO persistence`).",
		act:     "Move other work off the store. For hot keys, `mode: lease` needs almost no calls.",
	},
	{
		name: "StintStoreFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_store_overflowed_total[5m])) > 0`,
		summary: "{{ $value | humanize }} decisions a second on {{ $labels.instance }} share keys of the store for lack of room",
		means:   "More new keys come than the store has room for. Newcomers share limits, and some are denied who would have had room. Keys that are known are not touched.",
		look:    "`used_memory` and `maxmemory` of the store. Which rule makes the most keys: one that is keyed by what a client chooses freely.",
		act:     "Give the store more memory, or `--new-keys`. Against a flood, add a rule by address in front.",
	},
	{
		name: "StintStoreOwed", wait: "15m", severity: "warning",
		expr:    `stint_store_owing_keys > 0 and on (job, instance) stint_store_breakers_open == 0`,
		summary: "{{ $value | humanize }} keys on {{ $labels.instance }} still owe the store what passed while it failed",
		means:   "The store counts less than has passed, so other processes let more through.",
		look:    "Whether the store takes writes: `stint_store_calls_total` by `result`.",
		act:     "If it does not go back to 0 while the store answers, keep the log and report it.",
	},
	{
		name: "StintUndecided", wait: "2m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_undecided_total{reason="store"}[5m])) > 0`,
		summary: "{{ $value | humanize }} requests a second on {{ $labels.instance }} get no decision",
		means:   "Callers get an error in place of an answer. No rule has a word for what happens.",
		look:    "`store failed` lines in the log.",
		act:     "Bring the store back, and give the rules an `on_store_failure`.",
	},
	{
		name: "StintDecisionsSlow", wait: "10m", severity: "warning",
		expr:    `histogram_quantile(0.99, sum by (job, instance, le) (rate(stint_decision_duration_seconds_bucket[5m]))) > 0.05`,
		summary: "1 % of the decisions on {{ $labels.instance }} take longer than {{ $value | humanizeDuration }}",
		means:   "Requests wait for their decision.",
		look:    "StintStoreSlow first. Without a shared store: whether the machine has processor time left, and the process memory.",
		act:     "Give the machine more, or spread the requests.",
	},
	{
		name: "StintMemoryFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_overflow_decisions_total[5m])) > 0`,
		summary: "{{ $value | humanize }} decisions a second on {{ $labels.instance }} share a cell, because the memory for keys is full",
		means:   "There are more keys than `--max-keys`. New ones share limits: some clients are denied who would have had room. Keys that are known are not touched, and none that is exhausted is let in.",
		look:    "`stint_keys` beside `stint_keys_max`. Which rule makes the most keys: one that is keyed by what a client chooses freely.",
		act:     "Raise `--max-keys` (about 21 to 100 bytes a key), or add a rule by address in front. It recovers by itself after a flood.",
	},
	{
		name: "StintReservationsFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_full_reservations_total[5m])) > 0`,
		summary: "{{ $value | humanize }} reservations a second are refused on {{ $labels.instance }}",
		means:   "Callers of `/v1/reserve` get 503.",
		look:    "Whether callers settle or cancel what they reserve, and how long a `ttl` they ask for.",
		act:     "Have them settle, or ask for shorter ones.",
	},
	{
		name: "StintRuleDeniesMost", wait: "10m", severity: "warning",
		expr: `sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m])) > 1
  and sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m]))
    > 0.5 * sum by (job, rule) (rate(stint_decisions_total[5m]))`,
		summary: "rule {{ $labels.rule }} denies most of its requests: {{ $value | humanize }} a second",
		means:   "More than half of what the rule holds is denied. A few clients that keep retrying may be all of it; or a limit is too tight.",
		look:    "`denied again` lines in the log: a few keys, or many? A rule that has just changed: `stint rules log`.",
		act:     "For a few keys, nothing, or a block. For many, try a looser rule on what came: `stint rehearse new.yaml --server http://ADMIN`, then publish or roll back.",
	},
	{
		name: "StintDenialsJumped", wait: "5m", severity: "warning",
		expr: `sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m])) > 1
  and sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m]))
    > 5 * sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[1h] offset 1h))`,
		summary: "rule {{ $labels.rule }} denies {{ $value | humanize }} requests a second, over five times as many as an hour ago",
		means:   "An attack, a client gone wrong, or a change of the rules or of a client.",
		look:    "As StintRuleDeniesMost. When it began, beside `stint_config_last_reload_success_timestamp_seconds`.",
		act:     "As StintRuleDeniesMost.",
	},
	{
		name: "StintSnapshotOld", wait: "1m", severity: "warning",
		expr:    `time() - stint_snapshot_last_success_timestamp_seconds > 300 and stint_snapshot_last_success_timestamp_seconds > 0`,
		summary: "the snapshot on {{ $labels.instance }} is {{ $value | humanizeDuration }} old",
		means:   "Nothing yet. If the process is killed now, what keys have used since then is forgotten.",
		look:    "The log says why it could not be saved. Room on the disk, and the rights on its directory.",
		act:     "Make room, or correct the rights. It is tried again every minute.",
	},
	{
		name: "StintFilesRunOut", wait: "5m", severity: "warning",
		expr:    `process_open_fds / process_max_fds > 0.9 and on (job, instance) stint_build_info`,
		summary: "stint on {{ $labels.instance }} has {{ $value | humanizePercentage }} of the files and connections open that it may",
		means:   "Further connections are refused when there are no more.",
		look:    "How many connections clients hold, and whether one address holds most.",
		act:     "Raise the limit of open files (`LimitNOFILE=` of systemd), or bound `--max-conns-per-address`.",
	},
}

// alertRules returns the rules file of Prometheus.
func alertRules() string {
	var b strings.Builder
	b.WriteString("# Written by go run ./internal/service/board/write; change alerts.go there.\ngroups:\n  - name: stint\n    rules:\n")
	for i := range alerts {
		a := &alerts[i]
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |-\n          %s\n        for: %s\n        labels:\n          severity: %s\n        annotations:\n          summary: %q\n          runbook_url: %s#%s\n",
			a.name, strings.ReplaceAll(a.expr, "\n", "\n          "), a.wait, a.severity, a.summary, runbookURL, strings.ToLower(a.name))
	}
	return b.String()
}

// runbook returns the page that alerts link to.
func runbook() string {
	var b strings.Builder
	b.WriteString(`# Runbook

What to do about each alert of [stint.rules.yaml](../deploy/prometheus/stint.rules.yaml), and what the metrics say that have [no alert](#metrics-without-an-alert-of-their-own). Every alert links to its section here. ` + "`ADMIN`" + ` is the ` + "`--admin`" + ` address of the server. [METRICS.md](METRICS.md) explains the metrics. In the headlines N, T and P stand for the number, the time and the share that the alert gives.

<!-- Written by make board: change cmd/internal/service/board/alerts.go. -->
`)
	for i := range alerts {
		a := &alerts[i]
		fmt.Fprintf(&b, "\n## %s\n\n*%s.* Severity %s.\n\n```\n%s\n```\n\n**What it means.** %s\n\n**Where to look.** %s\n\n**What to do.** %s\n", a.name, heading(a.summary), a.severity, a.expr, a.means, a.look, a.act)
	}
	b.WriteString(readingsPage())
	return b.String()
}

// heading makes words of a summary's templates.
func heading(summary string) string {
	text := strings.NewReplacer("{{ $labels.instance }}", "a server", "{{ $labels.rule }}", "NAME", "{{ $value | humanize }}", "N", "{{ $value | humanizeDuration }}", "T", "{{ $value | humanizePercentage }}", "P").Replace(summary)
	return strings.ToUpper(text[:1]) + text[1:]
}
