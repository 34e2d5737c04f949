package observe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/observe"
)

// TestShared scrapes a store that is shared: there is nothing on it before it
// is known, and each scrape asks it anew.
func TestShared(t *testing.T) {
	o := observe.New(observe.Options{})
	defer o.Close()
	if text := scrape(t, o); strings.Contains(text, "stint_store_nodes") {
		t.Error("metrics on a store that nobody named")
	}
	now := observe.Shared{Nodes: 3}
	o.WatchShared(func() observe.Shared { return now })
	for _, now = range []observe.Shared{{Nodes: 3}, {
		Nodes: 3, Owing: 5, Posted: 6, Forgiven: 7,
		Store: redisstore.Stats{Open: 1, Held: 4, Overflowed: 8, OverflowDenied: 6, Together: 2, Batches: 3, CrossSlot: 4, Leased: 5, DenialsCached: 9, Nodes: []redisstore.NodeStats{{Node: "a:1", Calls: 7, Took: 2 * time.Second, Open: true}}, Results: redisstore.Results{OK: 1, NotExecuted: 2, Ambiguous: 3, Configuration: 4, Unavailable: 5}},
	}} {
		results := now.Store.Results
		text := scrape(t, o)
		for name, want := range map[string]int{
			"stint_store_nodes": now.Nodes, "stint_store_breakers_open": now.Store.Open, "stint_store_held_keys": int(now.Store.Held),
			"stint_store_owing_keys": now.Owing, "stint_store_posted_units_total": int(now.Posted), "stint_store_forgiven_units_total": int(now.Forgiven),
			"stint_store_overflowed_total": int(now.Store.Overflowed), "stint_store_overflow_denied_total": int(now.Store.OverflowDenied), "stint_store_together_total": int(now.Store.Together), "stint_store_denials_cached_total": int(now.Store.DenialsCached),
			"stint_store_batches_total": int(now.Store.Batches), "stint_store_cross_slot_requests_total": int(now.Store.CrossSlot), "stint_store_leased_units": int(now.Store.Leased),
			`stint_store_calls_total{result="ok"}`: int(results.OK), `stint_store_calls_total{result="not_executed"}`: int(results.NotExecuted), `stint_store_calls_total{result="ambiguous"}`: int(results.Ambiguous),
			`stint_store_calls_total{result="configuration"}`: int(results.Configuration), `stint_store_calls_total{result="unavailable"}`: int(results.Unavailable),
		} {
			if line := name + " " + string(rune('0'+want)) + "\n"; !strings.Contains(text, "\n"+line) {
				t.Errorf("no line %q in\n%s", line, text)
			}
		}
		for _, line := range []string{`stint_store_node_calls_total{node="a:1"} 7`, `stint_store_node_seconds_total{node="a:1"} 2`, `stint_store_node_breaker_open{node="a:1"} 1`} {
			if strings.Contains(text, "\n"+line+"\n") != (len(now.Store.Nodes) == 1) {
				t.Errorf("line %q of %d nodes in\n%s", line, len(now.Store.Nodes), text)
			}
		}
	}
}

// TestSharedDurations scrapes the durations of calls: buckets have all calls up
// to their bound.
func TestSharedDurations(t *testing.T) {
	o := observe.New(observe.Options{})
	defer o.Close()
	took := redisstore.Durations{Sum: 3*time.Second + 4250*time.Microsecond}
	for i := range took.Counts {
		took.Counts[i] = 1 << i
	}
	o.WatchShared(func() observe.Shared { return observe.Shared{Store: redisstore.Stats{Took: took}} })
	want := `
stint_store_call_duration_seconds_bucket{le="0.0001"} 1
stint_store_call_duration_seconds_bucket{le="0.0002"} 3
stint_store_call_duration_seconds_bucket{le="0.0005"} 7
stint_store_call_duration_seconds_bucket{le="0.001"} 15
stint_store_call_duration_seconds_bucket{le="0.002"} 31
stint_store_call_duration_seconds_bucket{le="0.005"} 63
stint_store_call_duration_seconds_bucket{le="0.01"} 127
stint_store_call_duration_seconds_bucket{le="0.015"} 255
stint_store_call_duration_seconds_bucket{le="0.05"} 511
stint_store_call_duration_seconds_bucket{le="0.1"} 1023
stint_store_call_duration_seconds_bucket{le="1"} 2047
stint_store_call_duration_seconds_bucket{le="+Inf"} 4095
stint_store_call_duration_seconds_sum 3.00425
stint_store_call_duration_seconds_count 4095
`
	if text := scrape(t, o); !strings.Contains(text, want) {
		t.Errorf("no%sin\n%s", want, text)
	}
}
