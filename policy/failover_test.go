package policy_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// TestFailoverIsOne asks a fallback.Store and a policy the same, on shared
// stores that fail, lose answers and recover at the same moments. Each answer must be the
// same, and so must the charges in the end. So a test of one of them holds for the other.
func TestFailoverIsOne(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { sameFailover(t, seed) })
	}
}

// apart reports whether waits differ by more than it takes to post.
func apart(a, b time.Duration) bool { return max(a-b, b-a) > time.Second }

func sameFailover(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	// Not all limits count denials. Periods are long, so that it does not matter when within a second debts are posted.
	limit := []string{"10/10000h fixed_window", "20/10000h", "5/10000h sliding_log", "30/10000h leaky_queue", "9/10000h fixed_window count_denied"}[seed%5]
	store, p := debtor(t, `{"name": "a", "key": ["ip"], "limits": ["`+limit+`", "40/20000h burst 15"]}`)
	shared := &broken{Store: memstore.New(memstore.Options{})}
	front := fallback.New(shared, fallback.Options{})
	defer front.Close()
	bound := made.Bound(t, front, "a", made.Limit(t, limit), made.Limit(t, "40/20000h burst 15"))
	ips := []string{"192.0.2.1", "192.0.2.2"}
	gone, leave := context.WithCancel(t.Context())
	leave()
	same := func(step int, ip string, cost int64) {
		t.Helper()
		ctx := t.Context()
		if step%7 == 3 { // the caller has gone
			ctx = gone
		}
		want, err := front.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: bound, Key: ip}}, cost)
		var r policy.Result
		if is := p.Decide(ctx, policy.Map{"ip": ip}, cost, &r); (is == nil) != (err == nil) || err != nil && ctx != gone {
			t.Fatalf("%s, seed %d, step %d: policy %v, store %v", limit, seed, step, is, err)
		}
		if got := r.Decision; err == nil && (got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.Denied != want.Denied ||
			apart(time.Duration(got.RetryAfter), time.Duration(want.RetryAfter)) || apart(got.Delay, want.Delay)) {
			t.Fatalf("%s, seed %d, step %d:\npolicy %+v\n store %+v", limit, seed, step, got, want)
		}
	}
	for step := range 60 {
		switch rnd.IntN(8) {
		case 0:
			down, loses := rnd.IntN(2) == 0, rnd.IntN(3) == 0
			for _, s := range []*broken{store, shared} {
				s.down.Store(down)
				s.loses.Store(loses)
			}
			time.Sleep(time.Second) // both post their debts
		case 1:
			time.Sleep(time.Duration(rnd.IntN(3)) * 2 * time.Minute) // what is lost is given up after five, at no moment that is the same in both
		default:
			same(step, ips[rnd.IntN(2)], rnd.Int64N(4))
		}
	}
	recovered(store)
	recovered(shared)
	for _, ip := range ips {
		same(-1, ip, 0)
	}
	for _, s := range []*broken{store, shared} {
		s.Close() // by another caller: that is a failure like any other
	}
	same(-2, ips[0], 1)
}

// TestFailoverCountsOpenRules counts the limits of rules that are open among those of
// the decision, whether one limit is left to decide or several.
func TestFailoverCountsOpenRules(t *testing.T) {
	for _, limits := range []string{`"1/h"`, `"1/h", "9/24h"`} {
		store, p := debtor(t, `{"name": "open", "key": [], "limits": ["9/h", "9/24h"], "on_store_failure": "open"},
			{"name": "local", "key": [], "limits": [`+limits+`]}`)
		store.down.Store(true)
		var r policy.Result
		for i := range 2 {
			if err := p.Decide(t.Context(), policy.Map{}, 1, &r); err != nil || r.Decision.Allowed != (i == 0) {
				t.Fatal(r.Decision, err)
			}
			if d := r.Decision; d.Tightest != 2 || r.Tightest != 2 || d.Denied != stint.LimitSet(i<<2) {
				t.Errorf("%s, request %d: %+v, by entry %d; want limit 2", limits, i, d, r.Tightest)
			}
		}
		p.Close()
	}
}
