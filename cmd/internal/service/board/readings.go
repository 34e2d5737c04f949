package board

import (
	"regexp"
	"strings"
)

// A reading says what to make of a metric that no alert goes by.
type reading struct {
	metric string
	well   string // what it says while all is well
	other  string // what else it may say, and what to do
}

var readings = []reading{
	{"stint_decisions_total", "`allowed` far above `denied`", "StintRuleDeniesMost and StintDenialsJumped go by it. `shadow_denied` is what a rule would deny: take it out of shadow when that is what you want."},
	{"stint_fallback_total", "does not grow", "It says by which word rules answered while StintStoreFailing lasts. `local` for one rule alone: its keys are on a node that does not answer."},
	{"stint_callers_limits_forgotten_total", "does not grow", "Callers give more than 1,024 different limits (`CL.THROTTLE`, the `limit` of a descriptor), and those used least recently start afresh. Have them give fewer."},
	{"stint_keys", "below `stint_keys_max`", "As StintMemoryFull."},
	{"stint_keys_max", "`--max-keys`", "It changes with the flag alone."},
	{"stint_keys_forgotten_total", "grows as clients come and go", "Nothing: a key is forgotten once it is as if never seen."},
	{"stint_store_bytes", "levels off", "It follows `stint_keys`. If it grows while that does not, see `stint_log_and_part_bytes`."},
	{"stint_log_and_part_bytes", "below `stint_log_and_part_bytes_max`", "Logs take 8 bytes and more for each request that they remember. Write `sliding_buckets` in place of `sliding_log` for large limits."},
	{"stint_log_and_part_bytes_max", "1 GiB", "Nothing: it does not change."},
	{"stint_full_keys_total", "does not grow", "As StintMemoryFull."},
	{"stint_full_bytes_total", "does not grow", "As `stint_log_and_part_bytes`."},
	{"stint_log_merges_total", "does not grow", "Logs have no room for each entry, and deny a little more than they would have. As `stint_log_and_part_bytes`."},
	{"stint_reservations", "levels off", "If it only grows, callers do not settle or cancel what they reserve. As StintReservationsFull."},
	{"stint_limits", "as many as the rules have, and those that still count from before", "If it only grows, callers give limits of their own: see `stint_callers_limits_forgotten_total`."},
	{"stint_store_nodes", "as many processes as you run", "0: not counted yet, so while the store fails this process holds the whole of every limit; `--nodes` says how many there are. Too many: another fleet beats under the same prefix; give it another `--store-prefix`. Too few: one cannot reach the store."},
	{"stint_store_overflow_denied_total", "does not grow", "Newcomers are denied who by themselves may have had room. As StintStoreFull."},
	{"stint_store_held_keys", "keys in use under `mode: lease` and `async`", "If it stays up while there are no requests, the store does not take what this process gives back: see `stint_store_calls_total`."},
	{"stint_store_leased_units", "at most a tenth of each burst", "What a process that is killed takes with it, until two seconds later."},
	{"stint_store_together_total", "grows with the load", "Divided by `stint_store_batches_total` it is how many requests share a call. Near 64 each: the store is saturated; `stint size` says how many masters the rate needs."},
	{"stint_store_batches_total", "grows with the load", "As `stint_store_together_total`."},
	{"stint_store_cross_slot_requests_total", "0 on one server; in a cluster, requests whose keys are on several nodes", "Each takes two calls a node. Where it is most of the load, give the rules one `tag` ([REDIS.md](REDIS.md#a-cluster))."},
	{"stint_store_node_calls_total", "about the same for each master", "One far above the others: a hot key, or few tags. `mode: lease` for the rule of the hot key."},
	{"stint_store_node_seconds_total", "by `stint_store_node_calls_total`, about the same for each master", "One slower than the others: its machine or its network. As StintStoreSlow, on that node."},
	{"stint_store_node_breaker_open", "0", "1 for one node: only keys of its slots are decided without it. As StintStoreUnreachable, on that node."},
	{"stint_store_denials_cached_total", "grows while clients are denied", "Nothing: these denials cost the store no call."},
	{"stint_store_posted_units_total", "grows after the store has failed", "What passed meanwhile is being charged. It stops once `stint_store_owing_keys` is 0."},
	{"stint_store_forgiven_units_total", "does not grow", "More keys passed while the store failed than are remembered (65,536), or what passed no longer counts: these units stay uncharged. Nothing can be done about them now; `on_store_failure: closed` for rules that must never let so much pass."},
	{"stint_config_last_reload_success_timestamp_seconds", "the time of the last change of the rules, the same on all servers within seconds", "One server behind the others: it does not see the file or the database. StintRulesNotTaken says when it sees and refuses it."},
	{"stint_warnings_total", "as you know your customers", "Write to a customer who is `near` every day before he is `denied`."},
	{"stint_warnings_left_out_total", "does not grow", "More than 65,536 keys are near or denied at once, and some have no warning: the rule is too tight, or it is an attack."},
	{"stint_webhook_total", "`sent` alone grows", "`failed`: the receiver answers with errors, which the log has. `dropped`: it is too slow."},
}

// readingsPage is the chapter of the runbook on metrics.
func readingsPage() string {
	var b strings.Builder
	b.WriteString("\n## Metrics without an alert of their own\n\nWhat they say while all is well, and what it means when they do not.\n\n| metric | well | else |\n|---|---|---|\n")
	for _, r := range readings {
		b.WriteString("| `" + r.metric + "` | " + r.well + " | " + linked(r.other) + " |\n")
	}
	return b.String()
}

var alertName = regexp.MustCompile(`\bStint[A-Z][A-Za-z]+`)

// linked makes links of the names of alerts.
func linked(text string) string {
	return alertName.ReplaceAllStringFunc(text, func(name string) string { return "[" + name + "](#" + strings.ToLower(name) + ")" })
}
