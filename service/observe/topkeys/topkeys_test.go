package topkeys_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/observe/topkeys"
)

func newPolicy(tb testing.TB, limit string) *policy.Policy {
	return made.Policy(tb, memstore.New(memstore.Options{}), made.Rules(tb, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["`+limit+`"]}]}`), policy.Options{})
}

func ip(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }

// TestTrackerBans knows who is banned until the ban ends, however quiet they are.
func TestTrackerBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := newPolicy(t, "1/1s ban 1h"), topkeys.New()
		var r policy.Result
		for range 3 {
			if err := p.Decide(t.Context(), policy.Map{"ip": ip(1)}, 1, &r); err != nil {
				t.Fatal(err)
			}
			b.Decided(&r)
		}
		for _, minutes := range []time.Duration{0, 15, 44} {
			time.Sleep(minutes * time.Minute)
			if all := b.Denied(10); len(all) != 1 || !all[0].Banned || all[0].Count != map[time.Duration]uint64{0: 2}[minutes] {
				t.Errorf("%d minutes on: %+v", minutes, all)
			}
		}
		time.Sleep(2 * time.Minute)
		if all := b.Denied(10); len(all) != 0 {
			t.Errorf("after the ban: %+v", all)
		}
	})
}

// TestTrackerFlood denies 200,000 keys once, and ten keys a hundred times in
// between: the ten are found, with counts that are right within what is said.
func TestTrackerFlood(t *testing.T) { synctest.Test(t, trackerFlood) }

func trackerFlood(t *testing.T) {
	p, b := newPolicy(t, "1/d"), topkeys.New()
	var r policy.Result
	deny := func(n int) {
		for range 2 {
			if err := p.Decide(t.Context(), policy.Map{"ip": ip(n)}, 1, &r); err != nil {
				t.Fatal(err)
			}
			b.Decided(&r)
		}
	}
	for n := range 200_000 {
		deny(n + 1000)
		if n%200 == 0 {
			for heavy := range 10 {
				deny(heavy)
			}
		}
	}
	all := b.Denied(10_000)
	if len(all) > 1024 {
		t.Errorf("%d keys", len(all))
	}
	found := 0
	for _, d := range all[:10] {
		for heavy := range 10 {
			// Each was denied at its first visit once, and twice at later ones.
			if d.Key == ip(heavy) && d.Count-d.Over <= 1999 && d.Count >= 1999 {
				found++
			}
		}
	}
	if found != 10 {
		t.Errorf("%d of the ten are first: %+v", found, all[:10])
	}
	if near := b.Nearest(10_000); len(near) > 1024 {
		t.Errorf("%d keys are near", len(near))
	}
	time.Sleep((topkeys.Minutes + 1) * time.Minute) // quiet
	for n := range 100 {
		deny(n + 1_000_000) // of these one passes
	}
	later := b.Denied(10_000)
	for _, d := range later {
		if d.Count != 1 || d.Over != 0 {
			t.Errorf("after the flood: %+v", d)
		}
	}
	if len(later) != 100 {
		t.Errorf("after the flood: %d keys, want 100", len(later))
	}
}

// TestTrackerAllocations: a decision allocates nothing, whatever becomes of it.
func TestTrackerAllocations(t *testing.T) {
	p, b := newPolicy(t, "1/d"), topkeys.New()
	results := make([]policy.Result, 200)
	for i := range results {
		for range 1 + i%2 {
			if err := p.Decide(t.Context(), policy.Map{"ip": ip(i)}, 1, &results[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	if got := testing.AllocsPerRun(2000, func() {
		b.Decided(&results[n%len(results)])
		n++
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
