package topkeys_test

import (
	"errors"
	"fmt"
	"strings"
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

// TestTrackerDebt: what a response has used above the limit is still known after the denials that
// follow, as long as it counts.
func TestTrackerDebt(t *testing.T) {
	for limit, want := range map[string]string{
		"100/m debt 1000":             "350, 334, none",
		"100 per minute fixed_window": "350, 350, none",
		"100 per minute sliding_log":  "350, 350, none",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["`+limit+`"], "cost": {"response": "header.x-cost", "reserve": 10}}]}`), policy.Options{})
			b, attrs := topkeys.New(), policy.Map{"ip": ip(1)}
			var r policy.Result
			d, _, err := p.Begin(t.Context(), attrs, 1, false, 0, &r)
			if err != nil {
				t.Fatal(err)
			}
			d.Settled = b.Settled
			if err := errors.Join(d.Header(t.Context(), 200, map[string][]string{"X-Cost": {"350"}}), d.End(t.Context(), true)); err != nil {
				t.Fatal(err)
			}
			used := func() string {
				for _, n := range b.Nearest(1) {
					return fmt.Sprint(n.Used)
				}
				return "none"
			}
			got := []string{used()}
			for range 2 {
				time.Sleep(5 * time.Second)
				if err := p.Decide(t.Context(), attrs, 1, &r); err != nil || r.Decision.Allowed {
					t.Fatal(r.Decision, err)
				}
				b.Decided(&r)
			}
			got = append(got, used())
			time.Sleep(time.Hour)
			if got := strings.Join(append(got, used()), ", "); got != want {
				t.Errorf("%s: %s, want %s", limit, got, want)
			}
		})
	}
}

// TestTrackerNow: a bucket is used less and less while nobody asks; a window and a log hold what they
// have until it ends.
func TestTrackerNow(t *testing.T) {
	for limit, want := range map[string]string{
		"5/m":                       "58%, 17%, none",
		"5 per minute sliding_log":  "100%, 100%, none",
		"5 per minute fixed_window": "100%, 100%, none",
	} {
		synctest.Test(t, func(t *testing.T) {
			p, b := newPolicy(t, limit), topkeys.New()
			var r policy.Result
			if err := p.Decide(t.Context(), policy.Map{"ip": ip(1)}, 5, &r); err != nil {
				t.Fatal(err)
			}
			b.Decided(&r)
			var got []string
			for range 3 {
				time.Sleep(25 * time.Second)
				part := "none"
				for _, n := range b.Nearest(1) {
					part = fmt.Sprintf("%.0f%%", 100*n.Part)
				}
				got = append(got, part)
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("%s, after 25, 50 and 75 s: %s, want %s", limit, got, want)
			}
		})
	}
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
