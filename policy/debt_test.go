package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// lossy is a store that may decide and then lose its answer, but for peeks.
type lossy struct {
	*broken
	loses atomic.Bool
}

func (s *lossy) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	d, err := s.broken.Decide(ctx, op, layers, cost)
	if s.loses.Load() && op != meter.OpPeek {
		return stint.Decision{}, fmt.Errorf("%w: reset", stint.ErrAmbiguous)
	}
	return d, err
}

func (s *lossy) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	d, id, err := s.broken.Reserve(ctx, layers, cost, ttl)
	if s.loses.Load() {
		return stint.Decision{}, "", &stint.LostReservation{ID: id, Err: fmt.Errorf("%w: reset", stint.ErrAmbiguous)}
	}
	return d, id, err
}

func (s *lossy) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	d, err := s.broken.Settle(ctx, id, cost)
	if s.loses.Load() {
		return stint.Decision{}, fmt.Errorf("%w: reset", stint.ErrAmbiguous)
	}
	return d, err
}

func (s *lossy) Reset(ctx context.Context, layers []stint.Layer) error {
	return s.Store.Reset(ctx, s.inner(layers))
}

const owing = `{"name": "a", "key": ["ip"], "limits": ["10/h fixed_window", "100/24h fixed_window"]}`

// debtor is a policy on a store that can fail and lose answers.
func debtor(t *testing.T, rules ...string) (*lossy, *policy.Policy) {
	t.Helper()
	store := &lossy{broken: &broken{Store: memstore.New(memstore.Options{})}}
	p := made.Policy(t, store, parse(t, rules...), policy.Options{})
	t.Cleanup(p.Close)
	return store, p
}

// remain returns what each limit of the rules has left for an address.
func remain(t *testing.T, p *policy.Policy, ip string) (all []int64) {
	t.Helper()
	var r policy.Result
	if err := p.Peek(context.Background(), policy.Map{"ip": ip}, 1, &r); err != nil || r.StoreError != nil {
		t.Fatal(err, r.StoreError)
	}
	for _, e := range r.Rules {
		all = append(all, e.Remaining)
	}
	return all
}

// recovered waits until what is owed has been posted.
func recovered(store *lossy) {
	store.down.Store(false)
	store.loses.Store(false)
	time.Sleep(time.Second) // in the time of the synctest bubble
	synctest.Wait()
}

// TestDebts: once the store is back, it is charged what passed meanwhile, under every limit,
// once, even if the rules were reloaded in between.
func TestDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := debtor(t, owing)
		attrs := policy.Map{"ip": "192.0.2.1"}
		decideN(t, p, attrs, 3)
		store.down.Store(true)
		for range 20 { // 7 are left here too
			decide(t, p, attrs)
		}
		if keys, posted, _ := p.Debts(); keys != 2 || posted != 0 {
			t.Errorf("%d keys owe and %d units were posted, want 2 and 0", keys, posted)
		}
		next, err := p.Reload(parse(t, owing, `{"name": "b", "key": ["ip"], "limits": ["50/h fixed_window"]}`))
		if err != nil {
			t.Fatal(err)
		}
		recovered(store)
		if got := remain(t, next, "192.0.2.1"); got[0] != 0 || got[1] != 90 || got[2] != 50 {
			t.Errorf("%v remain, want [0 90 50]", got)
		}
		if keys, posted, _ := next.Debts(); keys != 0 || posted != 14 {
			t.Errorf("%d keys owe and %d units were posted, want 0 and 14", keys, posted)
		}
	})
}

// TestResponsesThroughOutages begins requests while the store is there, while it is away and while its
// answers are lost, and ends them in any of these times: in the end both stores have what the
// responses cost of requests that they decided, and successes have banned nobody.
func TestResponsesThroughOutages(t *testing.T) {
	for _, failure := range []string{"local", "open", "closed"} {
		t.Run(failure, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { throughOutages(t, failure) }) })
	}
}

func throughOutages(t *testing.T, failure string) {
	store, p := debtor(t, `{"name": "login", "key": ["ip"], "limits": ["5 per 10m sliding_log ban 1h"], "count": {"status": [401]}, "on_store_failure": "`+failure+`"}`,
		`{"name": "tokens", "key": ["ip"], "limits": ["100000/24h fixed_window"], "cost": {"response": "/n", "reserve": 4000}, "on_store_failure": "`+failure+`"}`)
	var r policy.Result
	counted := int64(0)
	for i := range 80 {
		store.down.Store(i%8 == 1 || i%8 == 2)
		store.loses.Store(i%8 == 5 || i%8 == 6)
		pending, _, err := p.Begin(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, false, 0, &r)
		if err != nil || r.Decision.Allowed != (r.StoreError == nil || failure != "closed") || r.Rules[0].Banned {
			t.Fatalf("request %d: %+v, %v", i, r.Decision, err)
		}
		if i%16 > 8 {
			recovered(store)
		}
		if pending != nil {
			_ = pending.Header(t.Context(), 200, nil)
			_, _ = pending.Write([]byte(`{"n":3}`))
			if err := pending.End(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			counted += 3
		}
		if i%4 == 3 {
			recovered(store)
		}
	}
	if got := remain(t, p, "192.0.2.1"); got[0] != 5 || got[1] != 100_000-counted {
		t.Errorf("%v remain in the store, want [5 %d]", got, 100_000-counted)
	}
	if store.down.Store(true); failure != "local" {
		return
	}
	if err := p.Peek(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, &r); err != nil || r.Rules[0].Remaining != 5 || r.Rules[1].Remaining != 100_000-counted {
		t.Errorf("%d and %d remain in the local store, %v", r.Rules[0].Remaining, r.Rules[1].Remaining, err)
	}
}

// TestOutagesBanNobody ends five requests within an outage that is longer than their status would
// excuse denials: who comes when the store is back is not banned before that has heard of it.
func TestOutagesBanNobody(t *testing.T) {
	for _, failure := range []string{"local", "open", "closed"} {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store, p := debtor(t, `{"name": "login", "key": ["ip"], "limits": ["5 per 10m sliding_log ban 1h"], "count": {"status": [401]}, "on_store_failure": "`+failure+`"}`)
				store.loses.Store(lost)
				attrs := policy.Map{"ip": "192.0.2.1"}
				var r policy.Result
				var open []*policy.Pending
				for range 5 {
					pending, _, err := p.Begin(t.Context(), attrs, 1, false, 0, &r)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, pending)
				}
				store.down.Store(true)
				time.Sleep(11 * time.Second)
				for _, pending := range open {
					if pending == nil { // its rule decided without the store
						continue
					}
					if err := pending.Header(t.Context(), 200, nil); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // what is owed is tried once, in vain
				store.down.Store(false)
				store.loses.Store(false)
				for range 2 {
					if err := p.Decide(t.Context(), attrs, 1, &r); err != nil || r.Rules[0].Banned || r.Decision.Allowed != (failure != "closed") {
						t.Errorf("%s, lost %t: %+v, %v", failure, lost, r.Decision, err)
					}
				}
				recovered(store)
				used := map[string]int64{"local": 2}[failure]
				if got := remain(t, p, "192.0.2.1"); got[0] != 5-used {
					t.Errorf("%s, lost %t: %d remain, want %d", failure, lost, got[0], 5-used)
				}
			})
		}
	}
}

// TestDebtsOfNone: nothing is owed for rules that are open or in shadow, for requests that
// were only peeked at, denied or reset, or after Close.
func TestDebtsOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := debtor(t,
			`{"name": "a", "key": ["ip"], "limits": ["2/h fixed_window"]}`,
			`{"name": "b", "key": ["ip"], "limits": ["9/h fixed_window"], "on_store_failure": "open"}`,
			`{"name": "c", "key": ["ip"], "limits": ["9/h fixed_window"], "shadow": true}`)
		var r policy.Result
		store.down.Store(true)
		for range 3 {
			decide(t, p, policy.Map{"ip": "192.0.2.1"})
			if err := p.Peek(context.Background(), policy.Map{"ip": "192.0.2.2"}, 1, &r); err != nil {
				t.Fatal(err)
			}
		}
		decide(t, p, policy.Map{"ip": "192.0.2.3"})
		if err := p.Reset(context.Background(), policy.Map{"ip": "192.0.2.3"}, &r); err != nil {
			t.Fatal(err)
		}
		if keys, _, _ := p.Debts(); keys != 1 {
			t.Errorf("%d keys owe, want that of 192.0.2.1 under rule a", keys)
		}
		recovered(store)
		if got := remain(t, p, "192.0.2.1"); got[0] != 0 || got[1] != 9 || got[2] != 9 {
			t.Errorf("%v remain, want [0 9 9]", got)
		}
		p.Close()
		store.down.Store(true)
		decide(t, p, policy.Map{"ip": "192.0.2.4"})
		if keys, _, _ := p.Debts(); keys != 0 {
			t.Errorf("%d keys owe after Close", keys)
		}
	})
}

// TestWarmLimitByLimit: the local store is charged with each request that the main one let
// pass, even if one of several local limits has no room left.
func TestWarmLimitByLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{broken: &broken{Store: memstore.New(memstore.Options{})}}
		p := made.Policy(t, store, parse(t, `{"name": "a", "key": ["ip"], "limits": ["2/1m fixed_window", "8/24h fixed_window"]}`), policy.Options{Nodes: 2})
		defer p.Close()
		attrs := policy.Map{"ip": "192.0.2.1"}
		for range 3 { // here: 1 a minute and 4 a day; there: 2 and 8
			decideN(t, p, attrs, 2)
			time.Sleep(time.Minute)
		}
		store.down.Store(true)
		if r := decide(t, p, attrs); r.Decision.Allowed {
			t.Error("six a day have passed, and this process's part of eight is four: an outage grants a fifth")
		}
	})
}

// TestWarmOnce: whatever a request reserves, each rule by itself or all together, the local store has
// the same.
func TestWarmOnce(t *testing.T) {
	for _, giveBack := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, p := debtor(t, `{"name": "tokens", "key": ["ip"], "limits": ["1000/h fixed_window"], "cost": {"response": "header.X-Cost", "reserve": 50}}`,
				`{"name": "requests", "key": ["ip"], "limits": ["1000/h fixed_window"]}`,
				`{"name": "failures", "key": ["ip"], "limits": ["1000/h fixed_window"], "count": {"status": [401]}}`)
			attrs, r := policy.Map{"ip": "192.0.2.1"}, &policy.Result{}
			same := func(when string) {
				want := remain(t, p, "192.0.2.1")
				store.down.Store(true)
				defer store.down.Store(false)
				if err := p.Peek(t.Context(), attrs, 1, r); err != nil || r.StoreError == nil {
					t.Fatal(err, r.StoreError)
				}
				for i, e := range r.Rules {
					if e.Remaining != want[i] {
						t.Errorf("%s, give back %t: %s has %d left in the local store, %d in the other", when, giveBack, e.Rule, e.Remaining, want[i])
					}
				}
			}
			pending, _, err := p.Begin(t.Context(), attrs, 1, giveBack, 0, r)
			if err != nil {
				t.Fatal(err)
			}
			same("begun")
			if err := errors.Join(pending.Header(t.Context(), 200, http.Header{"X-Cost": {"6"}}), pending.End(t.Context(), true)); err != nil {
				t.Fatal(err)
			}
			same("ended")
		})
	}
}

// TestReserveNothing reserves at cost 0, while the store is there, away, or loses its answer, and then
// settles above that: both stores have it in the end.
func TestReserveNothing(t *testing.T) {
	for name, begin := range map[string]func(*lossy){"there": func(*lossy) {}, "away": func(s *lossy) { s.down.Store(true) }, "losing": func(s *lossy) { s.loses.Store(true) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, p := debtor(t, `{"name": "a", "key": ["ip"], "limits": ["1000/1000h fixed_window"]}`)
				attrs, r := policy.Map{"ip": "192.0.2.1"}, &policy.Result{}
				begin(store)
				id, err := p.Reserve(t.Context(), attrs, 0, time.Minute, r)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Settle(t.Context(), id, 7); err != nil {
					t.Fatal(err)
				}
				recovered(store)
				if got := remain(t, p, "192.0.2.1"); got[0] != 993 {
					t.Errorf("%d remain in the shared store, want 993", got[0])
				}
				store.down.Store(true)
				if err := p.Peek(t.Context(), attrs, 1, r); err != nil || r.Rules[0].Remaining != 993 {
					t.Errorf("%d remain in the local store, want 993; %v", r.Rules[0].Remaining, err)
				}
			})
		})
	}
}

// TestOwedBesideLost: a reservation whose answer was lost is cancelled, so what passes in its place is
// owed under every rule.
func TestOwedBesideLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := debtor(t, `{"name": "tokens", "key": ["ip"], "limits": ["1000/1000h fixed_window"], "cost": {"response": "header.X-Cost", "reserve": 50}}`,
			`{"name": "requests", "key": ["ip"], "limits": ["1000/1000h fixed_window"]}`)
		r := &policy.Result{}
		store.loses.Store(true)
		pending, _, err := p.Begin(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, false, 0, r)
		if err != nil {
			t.Fatal(err)
		}
		recovered(store)
		if err := errors.Join(pending.Header(t.Context(), 200, http.Header{"X-Cost": {"64"}}), pending.End(t.Context(), true)); err != nil {
			t.Fatal(err)
		}
		recovered(store)
		if got := remain(t, p, "192.0.2.1"); got[0] != 936 || got[1] != 999 {
			t.Errorf("%v remain, want [936 999]", got)
		}
	})
}
