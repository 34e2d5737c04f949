package observe_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/observe"
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
	for _, now = range []observe.Shared{{Nodes: 3}, {Nodes: 3, Open: 1, Held: 4, Owing: 5, Posted: 6, Forgiven: 7, Overflowed: 8}} {
		text := scrape(t, o)
		for name, want := range map[string]int{
			"stint_store_nodes": now.Nodes, "stint_store_breakers_open": now.Open, "stint_store_held_keys": int(now.Held),
			"stint_store_owing_keys": now.Owing, "stint_store_posted_units_total": int(now.Posted), "stint_store_forgiven_units_total": int(now.Forgiven),
			"stint_store_overflowed_total": int(now.Overflowed),
		} {
			if line := name + " " + string(rune('0'+want)) + "\n"; !strings.Contains(text, "\n"+line) {
				t.Errorf("no line %q in\n%s", line, text)
			}
		}
	}
}
