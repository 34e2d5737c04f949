package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// units are rules that hold a team to tokens, requests and places, and a guest to a few of
// each.
const units = `{"attributes":["team","guest"],"rules":[
	{"name":"tokens","match":{"team":true},"key":["team"],"limits":["10_000/h debt 100_000"]},
	{"name":"requests","key":["team"],"limits":["50/h"],"cost":2},
	{"name":"places","key":["team"],"limits":["3 in flight"]},
	{"name":"guests","match":{"guest":true},"key":["guest"],"limits":["10/h"]},
	{"name":"tried","key":["team"],"shadow":true,"limits":["1000/h"]}]}`

// standing is what a rule has left for a team.
func standing(t *testing.T, p *policy.Policy, rule string) int64 {
	t.Helper()
	used, err := p.UsedOf(t.Context(), rule, "a")
	if err != nil || len(used) != 1 {
		t.Fatal(rule, used, err)
	}
	return used[0].Remaining
}

// left checks what the rules have left, in their order, without the rule for guests.
func left(t *testing.T, p *policy.Policy, tokens, requests, places, tried int64) {
	t.Helper()
	got := []int64{standing(t, p, "tokens"), standing(t, p, "requests"), 3 - p.InFlight()["places"], standing(t, p, "tried")}
	if want := []int64{tokens, requests, places, tried}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v of tokens, requests, places, in shadow", got, want)
	}
}

// TestCostsByRule reserves tokens, a request and a place in one reservation, and settles the
// tokens alone.
func TestCostsByRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, ctx, team := inFlight(t, units), new(policy.Result), t.Context(), policy.Map{"team": "a"}
		r.Costs = policy.Costs{"tokens": 4000, "guests": 7, "tried": 300}
		id, err := p.Reserve(ctx, team, 1, time.Minute, r)
		if err != nil || !r.Decision.Allowed || r.Rules[r.Tightest].Rule != "tokens" || !slices.Equal(r.Counted(), []string{"tokens", "tried"}) {
			t.Fatalf("%+v, %v, %v", r.Decision, r.Counted(), err)
		}
		left(t, p, 6000, 48, 2, 700)

		d, counted, err := p.SettleCosts(ctx, id, policy.Keep, policy.Costs{"tokens": 1500, "guests": 2})
		if err != nil || d.Remaining != 8500 || !slices.Equal(counted, []string{"tokens"}) {
			t.Errorf("%+v, %v, %v", d, counted, err)
		}
		left(t, p, 8500, 48, 3, 700)

		if d, err = p.Settle(ctx, id, 3); err != nil || d.Remaining != 22 {
			t.Errorf("the plain cost: %+v, %v", d, err)
		}
		left(t, p, 8500, 44, 3, 700)

		if _, _, err = p.SettleCosts(ctx, id, policy.Keep, policy.Costs{"requests": 1}); !errors.Is(err, policy.ErrRequest) || !strings.Contains(err.Error(), `"requests"`) || !strings.Contains(err.Error(), "there is tokens, tried, guests") {
			t.Errorf("a name that the reservation was not made with: %v", err)
		}
		id, _ = p.Reserve(ctx, team, 1, time.Minute, r)
		left(t, p, 4500, 42, 2, 400)
		if _, err = p.Cancel(ctx, id); err != nil {
			t.Error(err)
		}
		left(t, p, 8500, 44, 3, 700)
	})
}

// A forgetful store remembers no reservation that has been settled, as Redis after ten minutes.
type forgetful struct {
	*memstore.Store
	settled map[stint.ReservationID]bool
}

func (f *forgetful) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if f.settled[id] {
		return stint.Decision{}, stint.ErrReservation
	}
	f.settled[id] = true
	return f.Store.Settle(ctx, id, cost)
}

// TestCancelAfterSettle: each rule is settled once, named or not. To cancel gives back what is not
// settled, and is no error unless that is nothing, and the store remembers none of it.
func TestCancelAfterSettle(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		for _, c := range []struct {
			plain                   int64
			costs                   policy.Costs
			tokens, requests, tried int64
		}{
			{policy.Keep, policy.Costs{"tokens": 1500}, 8500, 50, 1000},
			{3, nil, 10_000, 44, 1000},
			{3, policy.Costs{"tokens": 1500}, 8500, 44, 1000},
			{3, policy.Costs{"tokens": 1500, "tried": 20}, 8500, 44, 980},
		} {
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New(memstore.Options{})
				store := stint.Store(memory)
				if forgets {
					store = &forgetful{memory, make(map[stint.ReservationID]bool)}
				}
				defer func() { _ = store.Close() }()
				rules := made.Rules(t, units)
				p := made.Policy(t, store, rules, policy.Options{})
				defer p.Close()
				r := &policy.Result{Costs: policy.Costs{"tokens": 4000, "tried": 300}}
				id, err := p.Reserve(t.Context(), policy.Map{"team": "a"}, 1, time.Minute, r)
				if err == nil {
					_, _, err = p.SettleCosts(t.Context(), id, c.plain, c.costs)
				}
				if err != nil {
					t.Fatal(err)
				}
				all := c.plain != policy.Keep && c.costs != nil // but those in shadow, of which callers hear nothing
				for i := range 2 {
					_, err = p.Cancel(t.Context(), id)
					if gone := errors.Is(err, stint.ErrReservation); err != nil && !gone || gone != (forgets && (all || i == 1)) {
						t.Errorf("%+v, cancelled %d times: %v", c, i+1, err)
					}
					left(t, p, c.tokens, c.requests, 3, c.tried)
				}
			})
		}
	}
}

// TestCostsDecide charges all in one step, or nothing.
func TestCostsDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, ctx, team := inFlight(t, units), new(policy.Result), t.Context(), policy.Map{"team": "a"}
		r.WillRelease, r.Costs = true, policy.Costs{"tokens": 9000, "places": 0}
		if err := p.Decide(ctx, team, 5, r); err != nil || !r.Decision.Allowed || r.Release() != nil {
			t.Fatalf("%+v, %v", r.Decision, err)
		}
		left(t, p, 1000, 40, 3, 995)
		if err := p.Decide(ctx, team, 5, r); err != nil || r.Decision.Allowed || r.Rules[r.Tightest].Rule != "tokens" || r.Rules[r.Tightest].Cost != 9000 {
			t.Fatalf("%+v, %v", r.Decision, err)
		}
		left(t, p, 1000, 40, 3, 995)
		r.Costs = policy.Costs{"tokens": 1, "places": 4}
		if err := p.Peek(ctx, team, 1, r); err != nil || r.Decision.RetryAfter != stint.Never {
			t.Errorf("%+v, %v", r.Decision, err)
		}
	})
}

// TestCostsErrors checks that an error says what is wrong, and what would be right.
func TestCostsErrors(t *testing.T) {
	p, r, ctx, team := inFlight(t, units), new(policy.Result), t.Context(), policy.Map{"team": "a"}
	many := make(policy.Costs)
	for i := range policy.MaxCosts + 1 {
		many[strings.Repeat("x", i+1)] = 1
	}
	for _, c := range []struct {
		costs policy.Costs
		want  string
	}{
		{policy.Costs{"token": 1}, `policy: costs of "token": no such rule: there is tokens, requests, places, guests, tried`},
		{policy.Costs{"tokens": -1}, `policy: costs of "tokens": below zero`},
		{policy.Costs{"requests": math.MaxInt64}, `policy: costs of "requests": times what the rule costs, above the largest number`},
		{many, "policy: costs: 17 names: at most 16"},
	} {
		r.Costs = c.costs
		if err := p.Decide(ctx, team, 1, r); !errors.Is(err, policy.ErrRequest) || err.Error() != c.want {
			t.Errorf("%v: %v", c.costs, err)
		}
	}
	r.Costs = policy.Costs{"tokens": 1}
	for name, err := range map[string]error{
		"refund": p.Refund(ctx, team, 1, r),
		"all":    p.DecideAll(ctx, []policy.Request{{Attributes: team, Cost: 1}}, r),
	} {
		if !errors.Is(err, policy.ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCostsWait gives back a place in a queue whose rule was named.
func TestCostsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"queue","key":[],"limits":["1/s burst 10 leaky_queue"]},{"name":"day","key":[],"limits":["100/d"]}]}`)
		r := &policy.Result{Costs: policy.Costs{"queue": 3}}
		for i, want := range []time.Duration{0, 3 * time.Second} {
			if waited, err := p.Wait(t.Context(), policy.Map{}, 10, 0, r); err != nil || !r.Decision.Allowed || waited != want {
				t.Errorf("%d: %v, %v", i, waited, err)
			}
		}
		if used, err := p.UsedOf(t.Context(), "day", ""); err != nil || used[0].Remaining != 80 {
			t.Errorf("%+v, %v", used[0], err)
		}
	})
}

// TestCharged: any process can tell which keys a settlement was about, under which limits,
// and what it charged, even after the rules have changed.
func TestCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, ctx, team := inFlight(t, units), new(policy.Result), t.Context(), policy.Map{"team": "a"}
		r.Costs = policy.Costs{"tokens": 4000, "tried": 1}
		id, err := p.Reserve(ctx, team, 1, time.Minute, r)
		if err != nil {
			t.Fatal(err)
		}
		said := func(cost int64, costs policy.Costs) (all []string) {
			if _, _, err := p.SettleCosts(ctx, id, cost, costs); err != nil {
				t.Error(err)
			}
			if p.Charged(ctx, id, cost, costs, r) {
				for i, e := range r.ByRule {
					all = append(all, fmt.Sprintf("%s %s %d, %d left", e.Rule, r.Key(i), e.Cost, e.Remaining))
				}
			}
			return all
		}
		got := said(policy.Keep, policy.Costs{"tokens": 1500})
		if want := []string{"tokens a 1500, 8500 left", "requests a 0, 48 left"}; !slices.Equal(got, want) {
			t.Errorf("tokens alone: %q, want %q", got, want)
		}
		got = said(3, nil)
		if want := []string{"tokens a 0, 8500 left", "requests a 6, 44 left"}; !slices.Equal(got, want) {
			t.Errorf("the others: %q, want %q", got, want)
		}
		if p.Charged(ctx, "made up", 1, nil, r) || p.Charged(ctx, "", 1, nil, r) {
			t.Error("something is said of what is no reservation")
		}
	})
}
