package policy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// pool is a GPU pool: 4 in all, 2 a customer, 3 for a plan, and a quota.
const pool = `{"attributes":["user","plan"],"rules":[
	{"name":"each","key":["user"],"wait":"10s","tiers":{"by":"plan","default":"free","plans":{"free":["2 in flight"],"pro":["3 in flight"],"staff":{"unlimited":true}}},
	 "overrides":[{"when":{"user":"vip"},"limits":["4 in flight"]}]},
	{"name":"all","key":[],"wait":"10s","limits":["4 in flight"]},
	{"name":"quota","key":["user"],"limits":["100/h sliding_log"]}]}`

func inFlight(t *testing.T, text string) *policy.Policy {
	t.Helper()
	rules := made.Rules(t, text)
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return made.Policy(t, store, rules, policy.Options{})
}

// begin decides for a request that ends when end is called; nil if it was denied.
func begin(t *testing.T, p *policy.Policy, r *policy.Result, user, plan string) (end func()) {
	t.Helper()
	r.WillRelease = true
	if err := p.Decide(t.Context(), policy.Map{"user": user, "plan": plan}, 1, r); err != nil {
		t.Fatal(err)
	}
	end = r.Release()
	if (end != nil) != r.Decision.Allowed {
		t.Fatalf("%s: %+v, and holds something: %v", user, r.Decision, end != nil)
	}
	return end
}

// TestInFlight holds a customer and the pool to their limits, by the customer's plan, and
// gives places back.
func TestInFlight(t *testing.T) {
	p, r := inFlight(t, pool), new(policy.Result)
	var ends []func()
	for i, c := range []struct {
		user, plan string
		denied     string // by which rule
	}{
		{"a", "free", ""}, {"a", "free", ""}, {"a", "free", "each"},
		{"a", "pro", ""},      // all plans share one count
		{"a", "free", "each"}, // the count is above the limit of this plan
		{"b", "free", ""}, {"c", "", "all"}, {"vip", "free", "all"},
	} {
		end := begin(t, p, r, c.user, c.plan)
		if end == nil {
			if at := r.Tightest; r.Rules[at].Rule != c.denied || !r.Rules[at].Denied || r.Decision.RetryAfter != stint.Wait(time.Second) || r.Decision.Remaining != 0 {
				t.Errorf("request %d: by %s, %+v", i, r.Rules[at].Rule, r.Decision)
			}
			for _, e := range r.Rules {
				if e.Rule == "quota" && e.Remaining >= 0 {
					t.Errorf("request %d: the quota was asked", i)
				}
			}
			continue
		}
		if c.denied != "" {
			t.Errorf("request %d passed", i)
		}
		ends = append(ends, end)
	}
	if n := p.InFlight(); n["each"] != 4 || n["all"] != 4 || len(n) != 2 {
		t.Errorf("in flight: %v", n)
	}
	standings, _, _, err := p.Standings(t.Context(), policy.Map{"user": "a", "plan": "free"})
	if err != nil || standings[0].Limits[0].Remaining != 0 || !standings[0].Limits[0].Denied || standings[2].Limits[0].Remaining != 97 {
		t.Errorf("standings: %+v, %v", standings, err)
	}
	for _, end := range ends {
		end()
		end()
	}
	if n := p.InFlight(); n["each"] != 0 || n["all"] != 0 {
		t.Errorf("in flight at the end: %v", n)
	}
	if end := begin(t, p, r, "a", "staff"); end == nil || p.InFlight()["each"] != 0 || p.InFlight()["all"] != 1 {
		t.Errorf("unlimited under one rule: %v", p.InFlight())
	}
}

// TestInFlightWait holds a request until there is room under both limits.
func TestInFlightWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, pool)
		var now, most, denied atomic.Int64
		var all sync.WaitGroup
		for i := range 12 { // 4 at once, 4 after 6 s, 4 too late
			all.Go(func() {
				r := &policy.Result{WillRelease: true}
				waited, err := p.Wait(t.Context(), policy.Map{"user": string(rune('a' + i))}, 1, 0, r)
				if err != nil {
					t.Error(err)
				}
				end := r.Release()
				if end == nil {
					if denied.Add(1); waited != 0 {
						t.Errorf("denied after %v", waited)
					}
					return
				}
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(6 * time.Second)
				now.Add(-1)
				end()
			})
			synctest.Wait()
		}
		all.Wait()
		if most.Load() != 4 || denied.Load() != 4 {
			t.Errorf("%d at once, %d denied", most.Load(), denied.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			_ = begin(t, p, new(policy.Result), "x", "free")
		}
		time.AfterFunc(time.Second, cancel)
		r := &policy.Result{WillRelease: true}
		if _, err := p.Wait(ctx, policy.Map{"user": "x"}, 1, 0, r); !errors.Is(err, context.Canceled) || r.Release() != nil {
			t.Errorf("given up: %v", err)
		}
		if _, err := p.Wait(t.Context(), policy.Map{"user": "x"}, 1, time.Second, r); err != nil || r.Decision.Allowed {
			t.Errorf("most of a second: %+v, %v", r.Decision, err)
		}
	})
}

// TestInFlightShadow: a rule in shadow counts requests, and lets them pass.
func TestInFlightShadow(t *testing.T) {
	p, r := inFlight(t, `{"rules":[{"name":"s","key":[],"shadow":true,"limits":["1 in flight"]}]}`), &policy.Result{WillRelease: true}
	for i, denied := range []bool{false, true, true} {
		if err := p.Decide(t.Context(), policy.Map{}, 1, r); err != nil || !r.Decision.Allowed || r.ShadowDenied != denied || r.Rules[0].Verdict() == policy.VerdictDenied {
			t.Errorf("request %d: %+v, %v, %v", i, r.Decision, r.ShadowDenied, err)
		}
		if end := r.Release(); i == 0 {
			defer end()
		} else if end != nil {
			t.Errorf("request %d holds something", i)
		}
	}
	if n := p.InFlight()["s"]; n != 1 {
		t.Errorf("%d in flight", n)
	}
}

// TestInFlightRefused: a request that cannot give its place back fails, with an error that
// names the rule.
func TestInFlightRefused(t *testing.T) {
	p, r, ctx, a := inFlight(t, pool), new(policy.Result), t.Context(), policy.Map{"user": "a"}
	calls := map[string]func() error{
		"Decide":    func() error { return p.Decide(ctx, a, 1, r) },
		"Wait":      func() error { _, err := p.Wait(ctx, a, 1, 0, r); return err },
		"DecideAll": func() error { return p.DecideAll(ctx, []policy.Request{{Attributes: a, Cost: 1}}, r) },
		"two": func() error {
			return p.DecideAll(ctx, []policy.Request{{Attributes: a, Cost: 1}, {Attributes: a, Cost: 1}}, r)
		},
		"limits of callers": func() error { _, err := p.BindCallerLimits("(x)", stint.InFlight(3)); return err },
	}
	for name, call := range calls {
		err := call()
		if !errors.Is(err, stint.ErrInFlight) || name != "limits of callers" && !strings.Contains(err.Error(), `"each"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.Costs = policy.Costs{"each": 3}
	if err := p.Peek(ctx, a, 1, r); err != nil || r.Decision.Allowed || r.Decision.RetryAfter != stint.Never {
		t.Errorf("a peek at more than the limit: %+v, %v", r.Decision, err)
	}
	r.Costs = nil
	if err := p.Peek(ctx, a, 3, r); err != nil || !r.Decision.Allowed {
		t.Errorf("a request takes one place, whatever it costs: %+v, %v", r.Decision, err)
	}
	if err := p.Peek(ctx, a, 1, r); err != nil || !r.Decision.Allowed {
		t.Errorf("a peek: %+v, %v", r.Decision, err)
	}
	if err := p.Decide(ctx, a, 0, r); err != nil || !r.Decision.Allowed {
		t.Errorf("a cost of 0: %+v, %v", r.Decision, err)
	}
	for name, call := range map[string]func() error{
		"reset":  func() error { return p.ResetKey(ctx, "each", "a") },
		"refund": func() error { return p.RefundKey(ctx, "each", "a", 1) },
		"back":   func() error { return p.Refund(ctx, a, 1, r) },
		"forget": func() error { return p.Reset(ctx, a, r) },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rules := made.Rules(t, pool)
	if _, err := policy.New(struct{ stint.Store }{memstore.New(memstore.Options{})}, rules, policy.Options{}); err == nil || !strings.Contains(err.Error(), "in flight") {
		t.Errorf("a store that cannot hold it: %v", err)
	}
}

// TestInFlightReserve holds places by a token: until it is settled, whatever the cost and
// however often, or its time is over; and none where another limit denies.
func TestInFlightReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, a := inFlight(t, pool), new(policy.Result), policy.Map{"user": "a"}
		reserve := func(ttl time.Duration) stint.ReservationID {
			t.Helper()
			id, err := p.Reserve(t.Context(), a, 1, ttl, r)
			if err != nil || (id != "") != r.Decision.Allowed || r.Release() != nil {
				t.Fatalf("%q: %+v, %v", id, r.Decision, err)
			}
			return id
		}
		held := func(want int64) {
			t.Helper()
			if n := p.InFlight(); n["each"] != want || n["all"] != want {
				t.Fatalf("in flight: %v, want %d", n, want)
			}
		}
		first, second := reserve(time.Hour), reserve(time.Minute)
		if reserve(time.Hour) != "" || r.Rules[r.Tightest].Rule != "each" {
			t.Errorf("a third: %+v", r.Decision)
		}
		held(2)
		var all sync.WaitGroup
		for range 1000 { // two callers may settle, as neither knows of the other
			all.Go(func() {
				if d, err := p.Settle(t.Context(), first, 0); err != nil || !d.Allowed {
					t.Errorf("settled: %+v, %v", d, err)
				}
			})
		}
		all.Wait()
		held(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		held(0)
		if _, err := p.Cancel(t.Context(), second); err != nil && !errors.Is(err, stint.ErrReservation) {
			t.Errorf("after its time: %v", err)
		}
		held(0)
		again := reserve(time.Hour)
		for i := range len(again) { // a token with any byte changed is refused
			forged := []byte(again)
			forged[i] ^= 1
			if _, err := p.Settle(t.Context(), stint.ReservationID(forged), 0); !errors.Is(err, stint.ErrReservation) {
				t.Errorf("byte %d changed: %v", i, err)
			}
		}
		if _, err := inFlight(t, pool).Settle(t.Context(), again, 0); !errors.Is(err, stint.ErrReservation) {
			t.Errorf("at another process, without a secret: %v", err)
		}
		held(1)
		next, err := p.Reload(p.Rules())
		if err != nil {
			t.Fatal(err)
		}
		if d, err := next.Settle(t.Context(), again, 9); err != nil || d.Remaining < 0 {
			t.Errorf("after a reload: %+v, %v", d, err)
		}
		held(0)
	})
}

// TestInFlightReserveAlone reserves under limits in flight alone, one of them in shadow, and
// gives back what another limit denies.
func TestInFlightReserveAlone(t *testing.T) {
	p, r := inFlight(t, `{"rules":[{"name":"q","key":[],"limits":["1 in flight"]},{"name":"s","key":[],"shadow":true,"limits":["1 in flight"]},
		{"name":"h","match":{"path":"/h"},"key":[],"limits":["1 per hour"]}]}`), new(policy.Result)
	for range 3 {
		id, err := p.Reserve(t.Context(), policy.Map{"path": "/"}, 1, time.Hour, r)
		if n := p.InFlight(); err != nil || id == "" || n["q"] != 1 || n["s"] != 1 {
			t.Fatalf("%q, %v, in flight %v", id, err, n)
		}
		if d, err := p.Settle(t.Context(), id, 1); err != nil || !d.Allowed {
			t.Errorf("settled: %+v, %v", d, err)
		}
	}
	for i, want := range []bool{true, false, false} {
		id, _, err := p.WaitReserve(t.Context(), policy.Map{"path": "/h"}, 1, time.Hour, 0, r)
		if err != nil || (id != "") != want {
			t.Errorf("request %d: %q, %v", i, id, err)
		}
		if _, err := p.Settle(t.Context(), id, 1); err != nil {
			t.Error(err)
		}
	}
	if n := p.InFlight(); n["q"] != 0 || n["s"] != 0 {
		t.Errorf("in flight: %v", n)
	}
}

// TestInFlightReset: the places of a reservation whose key was reset are given back all the same.
func TestInFlightReset(t *testing.T) {
	p, r := inFlight(t, `{"rules":[{"name":"l","key":[],"limits":["4 in flight","100/h"]}]}`), new(policy.Result)
	id, err := p.Reserve(t.Context(), policy.Map{}, 1, time.Hour, r)
	if err != nil || id == "" {
		t.Fatal(err)
	}
	if err := p.Reset(t.Context(), policy.Map{}, r); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Settle(t.Context(), id, 1); !errors.Is(err, stint.ErrReservation) || p.InFlight()["l"] != 0 {
		t.Errorf("%v, in flight %v", err, p.InFlight())
	}
}

// TestInFlightUnknown: a process that does not know a reservation, made by another while the store was
// away, leaves its places alone.
func TestInFlightUnknown(t *testing.T) {
	store := newFlaky(t)
	rules := made.Rules(t, `{"rules":[{"name":"l","key":[],"limits":["4 in flight","100/h"]}]}`)
	var of [2]*policy.Policy
	for i := range of {
		of[i] = made.Policy(t, store, rules, policy.Options{Secret: []byte("0123456789abcdef"), Local: memstore.New(memstore.Options{})})
		defer of[i].Close()
	}
	r := new(policy.Result)
	store.fails.Store(true)
	id, err := of[0].Reserve(t.Context(), policy.Map{}, 1, time.Hour, r)
	if err != nil || id == "" {
		t.Fatal(err)
	}
	store.fails.Store(false)
	left := func() int64 {
		r.WillRelease = true
		if err := of[1].Decide(t.Context(), policy.Map{}, 1, r); err != nil {
			t.Fatal(err)
		}
		defer r.Release()()
		return r.Rules[1].Remaining + 1
	}
	before := left()
	if _, err := of[1].Settle(t.Context(), id, 0); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("settled by the other: %v", err)
	}
	if n := left(); before != 3 || n != before {
		t.Errorf("%d left before, %d after", before, n)
	}
	if _, err := of[0].Settle(t.Context(), id, 0); err != nil || left() != 4 {
		t.Errorf("settled by its own: %v, %d left", err, left())
	}
}

// TestInFlightReserveFull: without room for another reservation the error is ErrFull,
// whatever on_store_failure says, since the store has not failed.
func TestInFlightReserveFull(t *testing.T) {
	rules := made.Rules(t, `{"rules":[{"name":"o","key":[],"on_store_failure":"open","limits":["9 in flight"]}]}`)
	store := newFlaky(t)
	store.full.Store(true)
	p := made.Policy(t, store, rules, policy.Options{})
	defer p.Close()
	if id, err := p.Reserve(t.Context(), policy.Map{}, 1, time.Hour, new(policy.Result)); id != "" || !errors.Is(err, stint.ErrFull) {
		t.Errorf("%q, %v", id, err)
	}
}

// TestInFlightReload keeps what is in flight, under a limit that is higher or lower, and for
// a customer's own.
func TestInFlightReload(t *testing.T) {
	p, r := inFlight(t, `{"attributes":["user"],"rules":[{"name":"n","key":["user"],"limits":["2 in flight"]}]}`), new(policy.Result)
	end := begin(t, p, r, "a", "")
	begin(t, p, r, "a", "")
	lower := made.Rules(t, `{"attributes":["user"],"rules":[{"name":"n","key":["user"],"limits":["1 in flight"]}]}`)
	if changes := lower.Compare(p.Rules()); len(changes) != 1 || changes[0].What != "limit 2 in flight becomes 1 in flight" {
		t.Errorf("changes: %v", changes)
	}
	next, err := p.Reload(lower)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if begin(t, next, r, "a", "") != nil {
		t.Error("above the lower limit")
	}
	if err := next.SetOverride("n", "a", policy.Override{Limits: []stint.Limit{stint.InFlight(2)}}); err != nil {
		t.Fatal(err)
	}
	if begin(t, next, r, "a", "") == nil || begin(t, next, r, "a", "") != nil {
		t.Error("the customer's own limit of two does not hold")
	}
	if denies, err := next.Denies(t.Context(), "n", "a", "n", "override", 1); !denies || err != nil {
		t.Errorf("denies: %v, %v", denies, err)
	}
}

// TestInFlightFails: while the store fails, on_store_failure decides. Under local, the places
// that the store granted count in this process's share. Each place is given back where it was
// taken.
func TestInFlightFails(t *testing.T) {
	store := newFlaky(t)
	p := made.Policy(t, store, made.Rules(t, `{"attributes":["to"],"rules":[
		{"name":"l","match":{"to":"l"},"key":[],"limits":["9 in flight"]},
		{"name":"o","match":{"to":"o"},"key":[],"on_store_failure":"open","limits":["1 in flight"]},
		{"name":"c","match":{"to":"c"},"key":[],"on_store_failure":"closed","limits":["1 in flight"]}]}`), policy.Options{Nodes: 3})
	defer p.Close()
	r := &policy.Result{WillRelease: true}
	ask := func(to string) func() {
		t.Helper()
		if err := p.Decide(t.Context(), policy.Map{"to": to}, 1, r); err != nil {
			t.Fatal(err)
		}
		return r.Release()
	}
	first, second := ask("l"), ask("l")
	store.fails.Store(true)
	third := ask("l") // the share is three, and two places were taken before
	if third == nil || !errors.Is(r.StoreError, errGone) || r.Rules[0].Failed != policy.FailLocal {
		t.Errorf("%+v, %v", r.Decision, r.StoreError)
	}
	if ask("l") != nil || r.Decision.Allowed || r.Decision.RetryAfter != stint.Wait(time.Second) {
		t.Errorf("above the share: %+v", r.Decision)
	}
	for range 3 {
		if ask("o"); !r.Decision.Allowed || r.Rules[0].Remaining != -1 {
			t.Errorf("open: %+v", r.Decision)
		}
		if ask("c"); r.Decision.Allowed || r.Rules[0].Failed != policy.FailClosed {
			t.Errorf("closed: %+v", r.Decision)
		}
	}
	if n := p.InFlight()["l"]; n != 3 {
		t.Errorf("%d in flight", n)
	}
	all, _, _, err := p.Standings(t.Context(), policy.Map{"to": "l"})
	if err != nil || !errors.Is(all[0].Err, errGone) || all[0].Limits[0].Remaining != -1 {
		t.Errorf("standings: %+v, %v", all, err)
	}
	first()
	store.fails.Store(false)
	if ask("l"); r.Rules[0].Remaining != 6 { // the store has been told of the third place
		t.Errorf("with the store back, and one of its two over: %+v", r.Rules[0])
	}
	second()
	third()
	if n := p.InFlight()["l"]; n != 1 {
		t.Errorf("%d in flight at the end", n)
	}
}

// TestInFlightFailsWithoutRoom: if the local store has no limits in flight either, a rule
// under local has nothing to decide by, and fails.
func TestInFlightFailsWithoutRoom(t *testing.T) {
	store := newFlaky(t)
	store.fails.Store(true)
	p := made.Policy(t, store, made.Rules(t, `{"attributes":["to"],"rules":[
		{"name":"l","match":{"to":["l","lc"]},"key":[],"limits":["9 in flight"]},
		{"name":"o","match":{"to":"o"},"key":[],"on_store_failure":"open","limits":["1 in flight"]},
		{"name":"c","match":{"to":["c","lc"]},"key":[],"on_store_failure":"closed","limits":["1 in flight"]}]}`), policy.Options{Local: struct{ stint.Store }{memstore.New(memstore.Options{})}})
	defer p.Close()
	for to, want := range map[string]struct {
		allowed bool
		err     error
	}{"o": {true, nil}, "c": {false, nil}, "lc": {false, nil}, "l": {false, errGone}} {
		r := &policy.Result{WillRelease: true}
		if err := p.Decide(t.Context(), policy.Map{"to": to}, 1, r); !errors.Is(err, want.err) || r.Decision.Allowed != want.allowed || !errors.Is(r.StoreError, errGone) {
			t.Errorf("%s: %+v, %v, the store's error %v", to, r.Decision, err, r.StoreError)
		}
		if r.Release() != nil {
			t.Errorf("%s: holds something", to)
		}
	}
}

// TestInFlightHookPanics: if OnDecision panics, the request's places are given back, since
// servers recover from panics.
func TestInFlightHookPanics(t *testing.T) {
	rules := made.Rules(t, `{"rules":[{"name":"pool","key":[],"limits":["1 in flight"]}]}`)
	store := memstore.New(memstore.Options{})
	defer store.Close()
	panics := true
	p, err := policy.New(store, rules, policy.Options{OnDecision: func(*policy.Rules, policy.Attributes, int64, *policy.Result) {
		if panics {
			panic("a hook")
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := &policy.Result{WillRelease: true}
	for _, decide := range []func() error{
		func() error { return p.Decide(t.Context(), policy.Map{}, 1, r) },
		func() error { _, err := p.Wait(t.Context(), policy.Map{}, 1, 0, r); return err },
		func() error { _, err := p.Reserve(t.Context(), policy.Map{}, 1, time.Hour, r); return err },
	} {
		func() {
			defer func() { _ = recover() }()
			_ = decide()
		}()
	}
	panics = false
	if begin(t, p, r, "", "") == nil {
		t.Error("denied with nothing in flight")
	}
}
