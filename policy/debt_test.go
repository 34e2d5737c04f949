package policy_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint/policy"
)

const owing = `{"name": "a", "key": ["ip"], "limits": ["10/h fixed_window", "100/24h fixed_window"]}`

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

// TestSettledAbove begins a request while the store is there, is away, or loses its answer, and settles it
// above what was reserved: in the end both stores have it under every rule, once.
func TestSettledAbove(t *testing.T) {
	for name, begin := range map[string]func(*broken){"there": func(*broken) {}, "away": func(s *broken) { s.down.Store(true) }, "losing": func(s *broken) { s.loses.Store(true) }} {
		for _, comesBack := range []bool{false, true} { // before it is settled
			synctest.Test(t, func(t *testing.T) {
				store, p := debtor(t, `{"name": "tokens", "key": ["ip"], "limits": ["1000/1000h fixed_window"], "cost": {"response": "header.X-Cost", "reserve": 50}}`,
					`{"name": "requests", "key": ["ip"], "limits": ["1000/1000h fixed_window"]}`)
				r := &policy.Result{}
				begin(store)
				pending, _, err := p.Begin(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, false, 0, r)
				if err != nil {
					t.Fatal(err)
				}
				if comesBack {
					recovered(store)
				}
				if err := errors.Join(pending.Header(t.Context(), 200, http.Header{"X-Cost": {"64"}}), pending.End(t.Context(), true)); err != nil {
					t.Fatal(err)
				}
				recovered(store)
				shared := remain(t, p, "192.0.2.1")
				store.down.Store(true)
				if err := p.Peek(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, r); err != nil || r.StoreError == nil {
					t.Fatal(err, r.StoreError)
				}
				for i, want := range []int64{936, 999} {
					if shared[i] != want || r.Rules[i].Remaining != want {
						t.Errorf("%s, %t: %s has %d left in the shared store, %d in the local one, want %d", name, comesBack, r.Rules[i].Rule, shared[i], r.Rules[i].Remaining, want)
					}
				}
			})
		}
	}
}
