package dashboard

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
	{"stint_decisions_total", "`allowed` far above `denied`", "StintRuleDeniesMost and StintDenialsJumped use it. `shadow_denied` counts what a rule in shadow would deny: take the rule out of shadow when that is what you want."},
	{"stint_fallback_total", "does not grow", "It shows how rules answered (`local`, `open`, `closed`) while StintStoreFailing lasts. `local` for only one rule: its keys are on a node that does not answer."},
	{"stint_callers_limits_forgotten_total", "does not grow", "Callers give more than 1,024 different limits (`CL.THROTTLE`, the `limit` of a descriptor), and those used least recently must be made again when they are next given. Their usage is kept. Have callers use fewer."},
	{"stint_keys", "below `stint_keys_max`", "As StintMemoryFull."},
	{"stint_keys_max", "`--max-keys`", "It changes only with the flag."},
	{"stint_keys_forgotten_total", "grows as clients come and go", "Nothing: a key is forgotten once its state equals that of a key that was never used."},
	{"stint_store_bytes", "levels off", "It follows `stint_keys`. If it grows while that does not, see `stint_log_and_part_bytes`."},
	{"stint_log_and_part_bytes", "below `stint_log_and_part_bytes_max`", "Logs take 8 bytes and more for each request that they remember. Write `sliding_buckets` in place of `sliding_log` for large limits."},
	{"stint_log_and_part_bytes_max", "1 GiB", "Nothing: it does not change."},
	{"stint_full_keys_total", "does not grow", "As StintMemoryFull."},
	{"stint_full_bytes_total", "does not grow", "As `stint_log_and_part_bytes`."},
	{"stint_log_merges_total", "does not grow", "Logs have no room for each entry, and deny slightly more than they should. As `stint_log_and_part_bytes`."},
	{"stint_reservations", "levels off", "If it only grows, callers do not settle or cancel what they reserve. As StintReservationsFull."},
	{"stint_limits", "the limits of the rules, and earlier limits that still count", "If it only grows, callers give limits of their own: see `stint_callers_limits_forgotten_total`."},
	{"stint_store_nodes", "as many processes as you run", "0: not counted yet, so while the store fails, this process allows the whole of every limit; set the number with `--nodes`. Too many: another fleet uses the same prefix; give it another `--store-prefix`. Too few: a process cannot reach the store."},
	{"stint_store_overflow_denied_total", "does not grow", "New keys are denied that may have passed with a limit of their own. As StintStoreFull."},
	{"stint_store_held_keys", "keys in use under `mode: lease` and `async`", "If it stays up while there are no requests, the store does not accept what this process returns: see `stint_store_calls_total`."},
	{"stint_store_leased_units", "at most a tenth of each burst", "A process that is killed takes these units with it, for at most two seconds."},
	{"stint_store_together_total", "grows with the load", "Divided by `stint_store_batches_total` it is how many requests share a call. Near 64 each: the store is saturated; `stint size` says how many masters the rate needs."},
	{"stint_store_batches_total", "grows with the load", "As `stint_store_together_total`."},
	{"stint_store_cross_slot_requests_total", "0 on one server; in a cluster, requests whose keys are on several nodes", "Each takes two calls for each node. If they are most of the load, give the rules one `tag` ([REDIS.md](REDIS.md#a-cluster))."},
	{"stint_store_node_calls_total", "about the same for each master", "One far above the others: a hot key, or few tags. Use `mode: lease` for the rule of the hot key."},
	{"stint_store_node_seconds_total", "by `stint_store_node_calls_total`, about the same for each master", "One slower than the others: its machine or its network. As StintStoreSlow, on that node."},
	{"stint_store_node_breaker_open", "0", "1 for one node: the keys of its slots are decided without it. As StintStoreUnreachable, on that node."},
	{"stint_store_denials_cached_total", "grows while clients are denied", "Nothing: these denials cost the store no call."},
	{"stint_store_posted_units_total", "grows after the store has failed", "What passed in the meantime is being charged. It stops once `stint_store_owing_keys` is 0."},
	{"stint_store_forgiven_units_total", "does not grow", "More keys passed while the store failed than are remembered (65,536), or what passed no longer counts: these units are never charged. Use `on_store_failure: closed` for rules that must not let them pass."},
	{"stint_config_last_reload_success_timestamp_seconds", "the time of the last change of the rules, the same on all servers within seconds", "One server behind the others: it does not see the file or the database. StintRulesNotTaken fires if it sees a change and rejects it."},
	{"stint_warnings_total", "depends on your customers", "Write to a customer who is `near` every day before he is `denied`."},
	{"stint_warnings_left_out_total", "does not grow", "More than 65,536 keys are near or denied at once, and some have no warning: the rule is too tight, or it is an attack."},
	{"stint_webhook_total", "`sent` alone grows", "`failed`: the receiver answers with errors, which are in the log. `dropped`: it is too slow."},
}

// readingsPage is the chapter of the runbook on metrics.
func readingsPage() string {
	var b strings.Builder
	b.WriteString("\n## Metrics without an alert of their own\n\nThe normal value of each metric, and what another value means.\n\n| metric | normally | otherwise |\n|---|---|---|\n")
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
