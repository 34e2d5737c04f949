package proof_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// unitRules hold a team to tokens, to requests of 2 units, and to places.
const unitRules = `{"attributes":["team"],"rules":[
	{"name":"tokens","key":["team"],"limits":["1_000_000 per 100d fixed_window"]},
	{"name":"requests","key":["team"],"cost":2,"limits":["100_000 per 100d fixed_window"]},
	{"name":"places","key":["team"],"limits":["1000 in flight"]},
	{"name":"shadow","key":["team"],"shadow":true,"limits":["1_000_000 per 100d fixed_window"]}]}`

// TestUnits reserves for several rules at once, settles some of them, all, or none, in random
// order, cancels before and after it, and adds up what each rule must have taken.
func TestUnits(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer func() { _ = memory.Close() }()
	redis := openRedis(t, "unix://"+startRedis(t), nil)
	defer func() { _ = redis.Close() }()
	for name, store := range map[string]stint.Store{"memory": memory, "redis": redis} {
		t.Run(name, func(t *testing.T) {
			rules, err := policy.Parse([]byte(unitRules))
			if err != nil {
				t.Fatal(err)
			}
			p, err := policy.New(store, rules, policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			seed := rand.Uint64()
			for i := range scaled(20, 200, 1000) {
				if err := unitHistory(t.Context(), p, rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprint(name, i)); err != nil {
					t.Fatalf("seed %d, history %d: %v", seed, i, err)
				}
			}
		})
	}
}

// unitHistory is one team's.
func unitHistory(ctx context.Context, p *policy.Policy, rnd *rand.Rand, team string) error {
	names := []string{"tokens", "requests", "places", "shadow"}
	weights := map[string]int64{"tokens": 1, "requests": 2, "shadow": 1}
	used := make(map[string]int64)
	places := p.InFlight()["places"]
	for range 1 + rnd.IntN(6) {
		costs := make(policy.Costs)
		for _, name := range names {
			if rnd.IntN(2) == 0 {
				costs[name] = rnd.Int64N(50)
			}
		}
		plain := rnd.Int64N(5)
		r := &policy.Result{Costs: costs}
		id, err := p.Reserve(ctx, policy.Map{"team": team}, plain, time.Minute, r)
		if err != nil || !r.Decision.Allowed {
			return fmt.Errorf("reserved %v: %+v, %w", costs, r.Decision, err)
		}
		took := make(map[string]int64)
		for name := range weights {
			took[name] = plain
		}
		maps.Copy(took, costs)
		done := make(map[string]bool) // each rule is settled once, whether it was named or not
		settle := func(name string, cost int64) {
			if !done[name] {
				took[name], done[name] = cost, true
			}
		}
		for range 1 + rnd.IntN(3) {
			if rnd.IntN(3) == 0 {
				for name := range weights {
					settle(name, 0)
				}
				if _, err := p.Cancel(ctx, id); err != nil {
					return fmt.Errorf("cancelled: %w", err)
				}
				continue
			}
			settled, paid := make(policy.Costs), int64(policy.Keep)
			for name := range costs {
				if rnd.IntN(2) == 0 {
					settled[name] = rnd.Int64N(100)
					settle(name, settled[name])
				}
			}
			if rnd.IntN(2) == 0 {
				paid = rnd.Int64N(9)
				for name := range weights {
					if _, named := costs[name]; !named {
						settle(name, paid)
					}
				}
			}
			if _, counted, err := p.SettleCosts(ctx, id, paid, settled); err != nil || len(counted) > len(settled) {
				return fmt.Errorf("settled %d and %v: %v, %w", paid, settled, counted, err)
			}
		}
		for name, w := range weights {
			used[name] += w * took[name]
		}
	}
	for name, want := range used {
		all, err := p.UsedOf(ctx, name, team)
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%s: %v, %w", name, all, err)
		}
		if got := all[0].Limit.Count() - all[0].Remaining; got != want {
			return fmt.Errorf("%s has taken %d, want %d", name, got, want)
		}
	}
	if now := p.InFlight()["places"]; now != places {
		return fmt.Errorf("%d places are left behind", now-places)
	}
	return nil
}
