package dashboard

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
		means:   "The process is gone, hangs, or its admin address cannot be reached. A proxy that asks it answers requests as it is configured to do without an answer.",
		look:    "`curl http://ADMIN/livez` from the machine itself. If it answers, the network or the scrape is at fault. If not, read the last lines of its log, and check whether the kernel killed it (`dmesg`, `OOMKilled`).",
		act:     "Start it again. With `--snapshot`, it continues with the saved usage. Without it, and without a shared store, every key starts with nothing used.",
	},
	{
		name: "StintRulesNotTaken", wait: "1m", severity: "critical",
		expr:    `stint_config_last_reload_successful == 0`,
		summary: "stint on {{ $labels.instance }} still uses old rules: the new ones are wrong",
		means:   "Clients notice nothing: the previous rules are in force. The last change of the rules is not in force.",
		look:    "The log: `rules` lines name file, line and column, and what would be right. `stint validate stint.yaml` says the same.",
		act:     "Correct the file, or restore the previous one. With rules in a database, run `stint rules rollback`. The alert ends with the next valid rules.",
	},
	{
		name: "StintStoreFailing", wait: "2m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_store_errors_total[5m])) > 0`,
		summary: "{{ $value | humanize }} requests a second on {{ $labels.instance }} are decided without the shared store",
		means:   "Each rule answers as its `on_store_failure` says: this process decides on its share of the limit (`local`, the default), the rule is left out (`open`), or the request is denied (`closed`).",
		look:    "`store failed` lines in the log say why. Run `stint check-store redis://…` on this machine. Look at `stint_store_calls_total` by `result`: for `configuration`, a password or a permission must change; `ambiguous` and `unavailable` mean that a server or the network does not answer.",
		act:     "Restore the store. What passed in the meantime is charged to it afterwards (`stint_store_owing_keys` goes back to 0). Nothing needs a restart.",
	},
	{
		name: "StintStoreMisconfigured", wait: "1m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_store_calls_total{result="configuration"}[5m])) > 0`,
		summary: "the store refuses calls of stint on {{ $labels.instance }}: a password, a permission, or keys of another program",
		means:   "As StintStoreFailing, but it does not end by itself.",
		look:    "`store failed` lines in the log have the store's error message, and the server's address. `stint check-store redis://…` says which commands the user lacks.",
		act:     "Correct the password or the ACL. stint probes in the background, and goes on within a second. For keys of another program, give stint another prefix with `--store-prefix`.",
	},
	{
		name: "StintStoreUnreachable", wait: "1m", severity: "critical",
		expr:    `stint_store_breakers_open > 0`,
		summary: "stint on {{ $labels.instance }} no longer calls a server of its store, which does not answer or refuses the login",
		means:   "As StintStoreFailing: requests are decided without waiting for the store. The server is probed in the background.",
		look:    "Read the `store failed` lines in the log. If they say `WRONGPASS`, `NOAUTH`, `NOPERM` or `credentials`, see StintStoreMisconfigured. Otherwise check whether the server runs, and answers `PING` from this machine. A failover of a cluster or of Sentinels ends by itself.",
		act:     "Restore the server. The breaker closes by itself within seconds.",
	},
	{
		name: "StintStoreSlow", wait: "5m", severity: "warning",
		expr:    `histogram_quantile(0.99, sum by (job, instance, le) (rate(stint_store_call_duration_seconds_bucket[5m]))) > 0.02`,
		summary: "1 % of the store's calls take longer than {{ $value | humanizeDuration }} on {{ $labels.instance }}",
		means:   "Requests wait for the store, and those that wait longer than `--store-timeout` (25 ms unless set) are decided without it.",
		look:    "Check the store's load (`redis-cli --latency`, `SLOWLOG GET`), its network, and whether it swaps or saves (`INFO persistence`).",
		act:     "Move other work off the store. For hot keys, `mode: lease` needs almost no calls.",
	},
	{
		name: "StintStoreFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_store_overflowed_total[5m])) > 0`,
		summary: "{{ $value | humanize }} decisions a second on {{ $labels.instance }} share overflow keys of the store",
		means:   "More new keys arrive than the store has room for. New keys share limits, and some are denied that would have passed with a limit of their own. Known keys are not affected.",
		look:    "Look at `used_memory` and `maxmemory` of the store. Find the rule with the most keys; often its key is an attribute that a client chooses freely.",
		act:     "Give the store more memory, or raise `--new-keys`. Against a flood, put a rule by address in front.",
	},
	{
		name: "StintStoreOwed", wait: "15m", severity: "warning",
		expr:    `stint_store_owing_keys > 0 and on (job, instance) stint_store_breakers_open == 0`,
		summary: "{{ $value | humanize }} keys on {{ $labels.instance }} have usage from a failure of the store that is not charged to it yet",
		means:   "The store counts less than has passed, so other processes let more pass.",
		look:    "Check whether the store accepts writes: `stint_store_calls_total` by `result`.",
		act:     "If it does not go back to 0 while the store answers, keep the log and report it.",
	},
	{
		name: "StintUndecided", wait: "2m", severity: "critical",
		expr:    `sum by (job, instance) (rate(stint_undecided_total{reason="store"}[5m])) > 0`,
		summary: "{{ $value | humanize }} requests a second on {{ $labels.instance }} get no decision",
		means:   "Callers get an error instead of an answer. No rule says what to do while the store fails.",
		look:    "`store failed` lines in the log.",
		act:     "Restore the store, and give the rules an `on_store_failure`.",
	},
	{
		name: "StintDecisionsSlow", wait: "10m", severity: "warning",
		expr:    `histogram_quantile(0.99, sum by (job, instance, le) (rate(stint_decision_duration_seconds_bucket[5m]))) > 0.05`,
		summary: "1 % of the decisions on {{ $labels.instance }} take longer than {{ $value | humanizeDuration }}",
		means:   "Requests wait for their decision.",
		look:    "Look at StintStoreSlow first. Without a shared store, check whether the machine has processor time left, and the process memory.",
		act:     "Use a larger machine, or spread the requests over several.",
	},
	{
		name: "StintMemoryFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_overflow_decisions_total[5m])) > 0`,
		summary: "{{ $value | humanize }} decisions a second on {{ $labels.instance }} share a cell, because the memory for keys is full",
		means:   "There are more keys than `--max-keys`. New keys share limits, and some are denied that would have passed with a limit of their own. Known keys are not affected, and no exhausted key is admitted.",
		look:    "Compare `stint_keys` with `stint_keys_max`. Find the rule with the most keys; often its key is an attribute that a client chooses freely.",
		act:     "Raise `--max-keys` (about 21 to 100 bytes a key), or put a rule by address in front. The store recovers by itself after a flood.",
	},
	{
		name: "StintReservationsFull", wait: "5m", severity: "warning",
		expr:    `sum by (job, instance) (rate(stint_full_reservations_total[5m])) > 0`,
		summary: "{{ $value | humanize }} reservations a second are refused on {{ $labels.instance }}",
		means:   "Callers of `/v1/reserve` get 503.",
		look:    "Check whether callers settle or cancel their reservations, and which `ttl` they request.",
		act:     "Have callers settle, or request a shorter `ttl`.",
	},
	{
		name: "StintRuleDeniesMost", wait: "10m", severity: "warning",
		expr: `sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m])) > 1
  and sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m]))
    > 0.5 * sum by (job, rule) (rate(stint_decisions_total[5m]))`,
		summary: "rule {{ $labels.rule }} denies most of its requests: {{ $value | humanize }} a second",
		means:   "More than half of the rule's requests are denied. Either a few clients keep retrying, or a limit is too tight.",
		look:    "Check in the `denied again` lines of the log whether these are few keys or many, and with `stint rules log` whether the rule has just changed.",
		act:     "For a few keys, do nothing, or block them. For many, try a looser rule on the recorded requests (`stint rehearse new.yaml --server http://ADMIN`), then publish it or roll back.",
	},
	{
		name: "StintDenialsJumped", wait: "5m", severity: "warning",
		expr: `sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m])) > 1
  and sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[5m]))
    > 5 * sum by (job, rule) (rate(stint_decisions_total{decision="denied"}[1h] offset 1h))`,
		summary: "rule {{ $labels.rule }} denies {{ $value | humanize }} requests a second, over five times as many as an hour ago",
		means:   "An attack, a faulty client, or a change of the rules or of a client.",
		look:    "As StintRuleDeniesMost. Compare the time when it began with `stint_config_last_reload_success_timestamp_seconds`.",
		act:     "As StintRuleDeniesMost.",
	},
	{
		name: "StintSnapshotOld", wait: "1m", severity: "warning",
		expr:    `time() - stint_snapshot_last_success_timestamp_seconds > 300 and stint_snapshot_last_success_timestamp_seconds > 0`,
		summary: "the snapshot on {{ $labels.instance }} is {{ $value | humanizeDuration }} old",
		means:   "Clients notice nothing. If the process is killed now, the usage since the last snapshot is lost.",
		look:    "The log says why it could not be saved. Check the free space of the disk, and the permissions of the directory.",
		act:     "Free space, or correct the permissions. stint tries again every minute.",
	},
	{
		name: "StintFilesRunOut", wait: "5m", severity: "warning",
		expr:    `process_open_fds / process_max_fds > 0.9 and on (job, instance) stint_build_info`,
		summary: "stint on {{ $labels.instance }} has {{ $value | humanizePercentage }} of its file descriptors in use",
		means:   "When none are left, further connections are refused.",
		look:    "Check how many connections clients have, and whether most come from one address.",
		act:     "Raise the limit of open files (`LimitNOFILE=` of systemd), or lower `--max-conns-per-address`.",
	},
}

// alertRules returns the rules file of Prometheus.
func alertRules() string {
	var b strings.Builder
	b.WriteString("# Written by go run ./internal/service/dashboard/write; change alerts.go there.\ngroups:\n  - name: stint\n    rules:\n")
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

<!-- Written by make dashboard: change cmd/internal/service/dashboard/alerts.go. -->
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
