package policy_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// use is how much of the first limit is used and left, of which capacity.
func use(all []policy.RuleResult) string {
	e := &all[0]
	return fmt.Sprintf("%d of %d, %d left", e.Used, e.Capacity, e.Remaining)
}

// TestUsedWithoutStore: while the store is away, what is used is what is used of the limit that
// decides: of this process's share, or not known where none decides.
func TestUsedWithoutStore(t *testing.T) {
	for _, c := range []struct{ limit, failure, fresh, after, known string }{
		{"100/9000h", "local", "0 of 25, 25 left", "5 of 25, 20 left", "25 of 25, 0 left"},
		{"100/9000h fixed_window", "local", "0 of 25, 25 left", "5 of 25, 20 left", "25 of 25, 0 left"},
		{"100/9000h sliding_log", "local", "0 of 25, 25 left", "5 of 25, 20 left", "25 of 25, 0 left"},
		{"100/9000h burst 99 leaky_queue", "local", "0 of 25, 25 left", "5 of 25, 20 left", "25 of 25, 0 left"},
		{"100/9000h", "open", "-1 of 100, -1 left", "-1 of 100, -1 left", "-1 of 100, -1 left"},
		{"100/9000h", "closed", "-1 of 100, 0 left", "-1 of 100, 0 left", "-1 of 100, 0 left"},
	} {
		t.Run(c.limit+" "+c.failure, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &broken{Store: memstore.New(memstore.Options{})}
				p := made.Policy(t, store, parse(t, fmt.Sprintf(`{"name": "a", "key": ["ip"], "limits": [%q], "on_store_failure": %q}`, c.limit, c.failure)), policy.Options{Nodes: 4})
				defer p.Close()
				ask := func(ip string, cost int64, want string) {
					t.Helper()
					r := decideN(t, p, policy.Map{"ip": ip}, cost)
					if got := use(r.Rules); got != want {
						t.Errorf("%s, cost %d: %s, want %s", ip, cost, got, want)
					}
				}
				ask("192.0.2.1", 30, "30 of 100, 70 left")
				store.down.Store(true)
				ask("192.0.2.1", 0, c.known)
				ask("192.0.2.2", 0, c.fresh)
				ask("192.0.2.2", 5, c.after)
				all, _, _, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.2"})
				if err != nil || use(all[0].Limits) != c.after {
					t.Errorf("standing: %s, want %s, %v", use(all[0].Limits), c.after, err)
				}
				store.down.Store(false)
				ask("192.0.2.1", 0, "30 of 100, 70 left")
			})
		})
	}
}

// TestUsedInFlightWithoutStore is the same of places, however the store is bound.
func TestUsedInFlightWithoutStore(t *testing.T) {
	for _, c := range []struct {
		failure, want string
		front         fallback.Mode
	}{
		{"local", "1 of 2, 1 left", fallback.Local},
		{"open", "-1 of 8, -1 left", fallback.Open},
		{"closed", "-1 of 8, 0 left", fallback.Closed},
	} {
		for _, front := range []bool{false, true} {
			t.Run(fmt.Sprint(c.failure, front), func(t *testing.T) {
				shared := newFlaky(t)
				store, want := stint.Store(shared), c.want
				if front {
					store = fallback.New(shared, fallback.Options{Mode: c.front, Nodes: 4})
					if c.failure == "open" {
						want = "1 of 8, 7 left" // the front counts what runs
					}
				}
				defer func() { _ = store.Close() }()
				p := made.Policy(t, store, parse(t, fmt.Sprintf(`{"name": "a", "key": [], "limits": ["8 in flight"], "on_store_failure": %q}`, c.failure)), policy.Options{Nodes: 4})
				defer p.Close()
				shared.fails.Store(true)
				r := &policy.Result{WillRelease: true}
				if err := p.Decide(t.Context(), policy.Map{}, 1, r); err != nil || use(r.Rules) != want {
					t.Errorf("%s, want %s, %v", use(r.Rules), want, err)
				}
				if all, _, _, err := p.Standings(t.Context(), policy.Map{}); !front && (err != nil || c.failure != "local" && use(all[0].Limits) != want || all[0].Limits[0].Failed != r.Rules[0].Failed || all[0].Limits[0].Denied != r.Rules[0].Denied) {
					t.Errorf("standing: %+v, %v", all, err)
				}
				if d := r.Decision; d.Tightest >= 0 && d.Limit != r.Rules[0].Capacity {
					t.Errorf("%+v of %d", d, r.Rules[0].Capacity)
				}
				if release := r.Release(); release != nil {
					release()
				}
			})
		}
	}
}

// TestUsedDenied: a denial by a ban, or for those that wait, leaves nothing, but that is not
// what is used.
func TestUsedDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := inFlight(t, `{"attributes":["user"],"rules":[
			{"name":"bans","match":{"user":"b"},"key":[],"limits":["10/9000h ban 1h"]},
			{"name":"waits","match":{"user":"w"},"key":[],"limits":["10/s"],"wait":"10s"}]}`), new(policy.Result)
		ask := func(user string, cost int64, want string) {
			t.Helper()
			if err := p.Decide(t.Context(), policy.Map{"user": user}, cost, r); err != nil || use(r.Rules) != want {
				t.Errorf("%s, cost %d: %s, want %s, %v", user, cost, use(r.Rules), want, err)
			}
		}
		ask("b", 4, "4 of 10, 6 left")
		ask("b", 7, "-1 of 10, 0 left")
		if used, err := p.UsedOf(t.Context(), "bans", ""); err != nil || use(used) != "4 of 10, 0 left" || !used[0].Banned {
			t.Errorf("%s, %v", use(used), err)
		}

		ask("w", 4, "4 of 10, 6 left")
		done := make(chan error)
		go func() {
			_, err := p.Wait(t.Context(), policy.Map{"user": "w"}, 8, time.Second, new(policy.Result))
			done <- err
		}()
		synctest.Wait()
		ask("w", 1, "4 of 10, 0 left")
		if r.Decision.Allowed || r.Decision.Limit != 10 {
			t.Errorf("%+v", r.Decision)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestUsedOfFront: a store in front that lets all pass, or none, while the shared one is away
// does not say what is used.
func TestUsedOfFront(t *testing.T) {
	for mode, want := range map[fallback.Mode]string{fallback.Open: "-1 of 100, -1 left", fallback.Closed: "-1 of 100, 0 left"} {
		for _, limits := range []string{`"100/9000h"`, `"100/9000h","200/9000h fixed_window"`} {
			shared := &broken{Store: memstore.New(memstore.Options{})}
			front := fallback.New(shared, fallback.Options{Mode: mode})
			p := made.Policy(t, front, parse(t, `{"name": "a", "key": [], "limits": [`+limits+`]}`), policy.Options{})
			var r policy.Result
			for i, want := range []string{"10 of 100, 90 left", want} {
				if err := p.Decide(t.Context(), policy.Map{}, 10, &r); err != nil || use(r.Rules) != want || r.Rules[0].Denied == r.Decision.Allowed {
					t.Errorf("mode %d, %s, %d: %s, want %s, %+v, %v", mode, limits, i, use(r.Rules), want, r.Decision, err)
				}
				shared.down.Store(true)
			}
			p.Close()
			_ = front.Close()
		}
	}
}
