package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

const togetherRules = `{"rules": [
	{"name": "ban", "match": {"user": "mallory"}, "block": true},
	{"name": "free", "match": {"user": "staff"}, "unlimited": true},
	{"name": "trial", "match": {"user": true}, "key": ["user"], "limits": ["1 per hour"], "shadow": true},
	{"name": "user", "match": {"user": true}, "key": ["user"], "limits": ["5 per hour", "9 per day"]},
	{"name": "all", "match": {"shop": true}, "key": [], "limits": ["12 per hour fixed_window"],
	 "cost": {"attribute": "price", "default": 2, "max": 1000000000000000000}},
	{"name": "path", "match": {"path": "/p"}, "key": ["ip"], "limits": ["3 per hour sliding_log"]}
]}`

func together(t testing.TB) (*policy.Policy, *memstore.Store) {
	t.Helper()
	rules := made.Rules(t, togetherRules)
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	p := made.Policy(t, store, rules, policy.Options{})
	return p, store
}

// said returns the answers in short: ok or no for each request, and what its tightest limit
// has left.
func said(r *policy.Result) string {
	s := fmt.Sprint(r.Decision.Allowed)
	for _, a := range r.Answers {
		switch {
		case a.Tightest < 0:
			s += fmt.Sprintf(" %v", a.Allowed)
		default:
			e := &r.Rules[a.Tightest]
			s += fmt.Sprintf(" %v:%s:%d", a.Allowed, e.Rule, e.Remaining)
		}
	}
	return s
}

// ask returns a request with attributes.
func ask(cost int64, pairs ...string) policy.Request {
	attrs := policy.Map{}
	for i := 0; i < len(pairs); i += 2 {
		attrs[pairs[i]] = pairs[i+1]
	}
	return policy.Request{Attributes: attrs, Cost: cost}
}

func peeked(q policy.Request) policy.Request { q.Peek = true; return q }

func refunded(q policy.Request) policy.Request { q.Refund = true; return q }

func TestDecideAll(t *testing.T) {
	type step struct {
		requests []policy.Request
		want     string
	}
	qs := func(q ...policy.Request) []policy.Request { return q }
	ann, bob := ask(1, "user", "ann"), ask(1, "user", "bob")
	for name, steps := range map[string][]step{
		"a denial charges nobody": {
			{qs(ask(4, "user", "ann"), ask(5, "user", "bob")), "true true:user:1 true:user:0"},
			{qs(ann, bob), "false true:user:1 false:user:0"},
			{qs(ann), "true true:user:0"},
		},
		"one key twice asks for the sum": {
			{qs(ask(3, "user", "ann"), ask(2, "user", "ann")), "true true:user:0 true:user:0"},
			{qs(ann), "false false:user:0"},
			{qs(ask(3, "user", "bob"), ask(3, "user", "bob")), "false false:user:5 false:user:5"},
		},
		"one rule, two prices": {
			{qs(ask(2, "shop", "a"), ask(1, "shop", "b", "price", "7")), "true true:all:1 true:all:1"},
			{qs(ask(1, "shop", "a", "price", "1")), "true true:all:0"},
		},
		"who only asks is not charged, and denies all": {
			{qs(ask(5, "user", "ann")), "true true:user:0"},
			{qs(bob, peeked(ann)), "false true:user:5 false:user:0"},
			{qs(bob, peeked(ask(4, "user", "cat"))), "true true:user:4 true:user:5"},
			{qs(peeked(bob)), "true true:user:4"},
		},
		"a cost of nothing passes": {
			{qs(ask(5, "user", "ann")), "true true:user:0"},
			{qs(ask(0, "user", "ann"), bob), "true true:user:0 true:user:4"},
		},
		"given back first": {
			{qs(ask(5, "user", "ann")), "true true:user:0"},
			{qs(ask(2, "user", "ann"), refunded(ask(3, "user", "ann"))), "true true:user:1 true:user:3"},
			{qs(refunded(ask(2, "user", "ann"))), "true true:user:3"},
		},
		"blocks deny all, and who matches nothing is allowed": {
			{qs(ask(1, "user", "mallory"), ann, ask(1, "x", "y")), "false false:ban:0 true:user:5 true"},
			{qs(ask(1, "user", "staff"), ann), "true true true:user:4"},
		},
		"beyond an int64": {
			{qs(ask(math.MaxInt64, "shop", "a"), ann), "false false:all:12 true:user:5"},
			{qs(ask(math.MaxInt64, "user", "ann"), ask(math.MaxInt64, "user", "ann"), bob), "false false:user:5 false:user:5 true:user:5"},
			{qs(ask(math.MaxInt64, "user", "ann")), "false false:user:5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := together(t)
				var r policy.Result
				for i, s := range steps {
					if err := p.DecideAll(t.Context(), s.requests, &r); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
					if got := said(&r); got != s.want {
						t.Errorf("step %d: %s, want %s", i, got, s.want)
					}
				}
			})
		})
	}
}

// TestDecideAllAsOneByOne: requests that are decided together pass if and only if each key
// has room for all of them, and charge as if they came one after the other.
func TestDecideAllAsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(7, 11))
		p, _ := together(t)
		one, _ := together(t)
		var r, s policy.Result
		passed := 0
		for round := range 2000 {
			requests := make([]policy.Request, 1+random.IntN(4))
			sums := map[string]int64{}
			for i := range requests {
				user, cost := string(rune('a'+random.IntN(6))), int64(random.IntN(4))
				requests[i] = ask(cost, "user", user)
				sums[user] += cost
			}
			want := true
			for user, cost := range sums {
				if err := one.Peek(t.Context(), policy.Map{"user": user}, cost, &s); err != nil {
					t.Fatal(err)
				}
				want = want && s.Decision.Allowed
			}
			if err := p.DecideAll(t.Context(), requests, &r); err != nil {
				t.Fatal(err)
			}
			if r.Decision.Allowed != want {
				t.Fatalf("round %d: %v: allowed %v, want %v", round, requests, r.Decision.Allowed, want)
			}
			for _, q := range requests {
				if want {
					if err := one.Decide(t.Context(), q.Attributes, q.Cost, &s); err != nil {
						t.Fatal(err)
					}
				}
			}
			for user := range sums { // both must have the same left
				attrs := policy.Map{"user": user}
				if err := errors.Join(p.Peek(t.Context(), attrs, 1, &r), one.Peek(t.Context(), attrs, 1, &s)); err != nil {
					t.Fatal(err)
				}
				for i := range r.Rules {
					if a, b := &r.Rules[i], &s.Rules[i]; !a.Shadow && (a.Remaining != b.Remaining || a.RetryAfter != b.RetryAfter) {
						t.Fatalf("round %d: %s of %s: %d in %v, want %d in %v", round, a.Label, user, a.Remaining, a.RetryAfter, b.Remaining, b.RetryAfter)
					}
				}
			}
			if want {
				passed++
			}
			time.Sleep(time.Duration(random.IntN(20)) * time.Minute)
		}
		if passed < 200 || passed > 1800 {
			t.Errorf("%d of 2000 passed: the property has seen one side only", passed)
		}
	})
}

func TestDecideAllGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := together(t)
		given, err := p.BindCallerLimits("(override)", stint.PerHour(2).WithName("given 2/h"))
		if err != nil {
			t.Fatal(err)
		}
		brought := policy.Request{Cost: 1, Limits: given, Key: "k"}
		var r policy.Result
		for i, want := range []string{
			"true true:(override):1 true:user:4",
			"true true:(override):0 true:user:3",
			"false false:(override):0 true:user:3",
		} {
			if err := p.DecideAll(t.Context(), []policy.Request{brought, ask(1, "user", "ann")}, &r); err != nil {
				t.Fatal(err)
			}
			if got := said(&r); got != want {
				t.Errorf("%d: %s, want %s", i, got, want)
			}
		}
		if err := p.DecideAll(t.Context(), []policy.Request{brought}, &r); err != nil || r.Decision.Allowed || r.KeyHash(0) == "" {
			t.Errorf("alone: %s %q %v", said(&r), r.KeyHash(0), err)
		}
		block, err := p.BindCallerLimits("(override)")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.DecideAll(t.Context(), []policy.Request{{Cost: 1, Limits: block}, ask(1, "user", "bob")}, &r); err != nil || said(&r) != "false false:(override):0 true:user:5" {
			t.Errorf("no limits: %s %v", said(&r), err)
		}
	})
}

func TestDecideAllErrors(t *testing.T) {
	p, store := together(t)
	var r policy.Result
	good := ask(1, "user", "ann")
	for name, c := range map[string]struct {
		requests []policy.Request
		at       int
		is       error
	}{
		"none":            {nil, 0, nil},
		"a bad path":      {[]policy.Request{good, ask(1, "path", "/a%2fb", "ip", "x")}, 1, policy.ErrRequest},
		"below zero":      {[]policy.Request{good, good, ask(-1, "user", "x")}, 2, stint.ErrCost},
		"too many limits": {many(40), 40, stint.ErrLayers},
	} {
		err := p.DecideAll(t.Context(), c.requests, &r)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || len(r.Answers) != c.at {
			t.Errorf("%s: %v at %d", name, err, len(r.Answers))
		}
	}
	if err := p.Peek(t.Context(), good.Attributes, 1, &r); err != nil || r.Decision.Remaining != 5 {
		t.Errorf("something was charged: %d left, %v", r.Decision.Remaining, err)
	}
	_ = store.Close()
	if err := p.DecideAll(t.Context(), []policy.Request{good, good}, &r); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func many(n int) (all []policy.Request) {
	for i := range n {
		all = append(all, ask(1, "user", fmt.Sprint("u", i)))
	}
	return all
}

// TestDecideAllFallsBack: while the store fails, each rule's on_store_failure decides, for
// all requests at once.
func TestDecideAllFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := made.Rules(t, togetherRules)
		broken := memstore.New(memstore.Options{})
		p := made.Policy(t, broken, rules, policy.Options{Local: memstore.New(memstore.Options{})})
		ann, bob := ask(2, "user", "ann"), ask(5, "user", "bob")
		var r policy.Result
		for i, want := range []string{
			"true true:user:3 true:user:0",   // the store decides, and warms the local one
			"false true:user:3 false:user:4", // the limit by the day denies for longest
		} {
			if err := p.DecideAll(t.Context(), []policy.Request{ann, bob}, &r); err != nil || said(&r) != want {
				t.Errorf("%d: %s %v, want %s", i, said(&r), err, want)
			}
			if i == 0 {
				_ = broken.Close()
			}
		}
		if r.StoreError == nil || r.Rules[r.Tightest].Failed != policy.FailLocal {
			t.Errorf("decided by %v after %v", r.Rules[r.Tightest].Failed, r.StoreError)
		}
	})
}

// TestDecideAllCountsDenials: requests are denied together, and a limit that would have let
// them pass counts the denial. They must wait until this limit, too, has room again.
func TestDecideAllCountsDenials(t *testing.T) {
	now := int64(1e18)
	rules := parse(t, `{"name": "pace", "key": ["ip"], "limits": ["1/s"]}`,
		`{"name": "shop", "match": {"shop": true}, "key": [], "limits": ["1/5s sliding_log count_denied"]}`)
	p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return now }}), rules, policy.Options{})
	var r policy.Result
	if err := p.Decide(t.Context(), policy.Map{"ip": "192.0.2.2"}, 1, &r); err != nil || !r.Decision.Allowed {
		t.Fatal(r.Decision, err)
	}
	all := []policy.Request{ask(1, "ip", "192.0.2.1", "shop", "a"), ask(1, "ip", "192.0.2.2")}
	passes := func() stint.Decision {
		if err := p.DecideAll(t.Context(), all, &r); err != nil {
			t.Fatal(err)
		}
		return r.Decision
	}
	if d := passes(); d.Allowed || d.RetryAfter != stint.Wait(5*time.Second) {
		t.Errorf("%+v; want to wait for 5s", d)
	}
	now += int64(5 * time.Second)
	if d := passes(); !d.Allowed {
		t.Errorf("%+v; want it to pass then", d)
	}
}

// TestDecideAllCountsBesideChecks has a request that only asks deny the others: those are counted
// under count_denied, as beside any denial, and under other limits not.
func TestDecideAllCountsBesideChecks(t *testing.T) {
	rules := parse(t, `{"name": "all", "match": {"shop": true}, "key": ["shop"], "limits": ["2/day fixed_window count_denied"]}`,
		`{"name": "user", "match": {"user": true}, "key": ["user"], "limits": ["2/day"]}`)
	p := made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{})
	var r policy.Result
	for i, step := range []struct {
		requests []policy.Request
		want     string
	}{
		{[]policy.Request{ask(2, "shop", "a")}, "true true:all:0"},
		{[]policy.Request{peeked(ask(1, "shop", "a")), ask(1, "shop", "b"), ask(1, "user", "ann")}, "false false:all:0 true:all:1 true:user:2"},
		{[]policy.Request{peeked(ask(1, "shop", "a")), ask(1, "shop", "b")}, "false false:all:0 true:all:0"},
		{[]policy.Request{ask(1, "shop", "b")}, "false false:all:0"},
	} {
		if err := p.DecideAll(t.Context(), step.requests, &r); err != nil || said(&r) != step.want {
			t.Errorf("%d: %s %v, want %s", i, said(&r), err, step.want)
		}
	}
}
