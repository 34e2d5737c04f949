package proof_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// A gateway reserves before a request and settles after it, on a virtual clock.
type gateway struct {
	t           *testing.T
	limit       stint.Limit
	limiter     *stint.Limiter
	now         int64
	events      []oracle.Event
	settlements []oracle.Settlement
	open        []flight
}

type flight struct {
	charge *stint.Reservation
	event  int
	cost   int64
}

func newGateway(t *testing.T, text string) *gateway {
	g := &gateway{t: t, limit: parse(t, text)}
	store := memstore.New(memstore.Options{Now: func() int64 { return g.now }})
	var err error
	if g.limiter, err = stint.NewLimiter(store, "gateway", g.limit); err != nil {
		t.Fatal(err)
	}
	return g
}

// reserve starts a request, if it passes, that will have cost so much.
func (g *gateway) reserve(cost, actual int64) {
	d, charge, err := g.limiter.Reserve(context.Background(), "k", cost, 1000*time.Hour)
	if err != nil {
		g.t.Fatal(err)
	}
	g.events = append(g.events, oracle.Event{T: g.now, Key: "k", Cost: cost, Allowed: d.Allowed, Delay: int64(d.Delay)})
	if d.Allowed {
		g.open = append(g.open, flight{charge, len(g.events) - 1, actual})
	}
}

// settle settles the i-th request under way.
func (g *gateway) settle(i int) {
	f := g.open[i]
	g.open = append(g.open[:i:i], g.open[i+1:]...)
	if _, err := f.charge.Settle(context.Background(), f.cost); err != nil {
		g.t.Fatal(err)
	}
	g.settlements = append(g.settlements, oracle.Settlement{T: g.now, Event: f.event, Cost: f.cost})
}

// judge holds what was finally charged to the limit.
func (g *gateway) judge() {
	g.t.Helper()
	final := oracle.Settled(g.events, g.settlements)
	v := append(oracle.Check(spec(g.limit), final, 0), oracle.Admitted(spec(g.limit), final)...)
	if len(v) > 0 {
		g.t.Errorf("%v: %d violations in %d events, first: %v", g.limit, len(v), len(final), v[0])
	}
}

// TestSettledEnvelope reserves and settles at random, half of it cancelled, in
// any order, and holds what was finally charged to each kind's envelope.
func TestSettledEnvelope(t *testing.T) {
	for _, text := range everyKind {
		if l := parse(t, text); l.CountDenied() || l.Algorithm() == meter.LeakyQueue {
			continue // a queue's places pass unused; what denials charge is no request
		}
		for seed := range uint64(scaled(5, 20, 500)) {
			g := newGateway(t, text)
			rng := rand.New(rand.NewPCG(seed, 7))
			g.now = 1_763_675_900_000_000_000
			most := g.limit.Capacity()
			for range 300 {
				g.now += rng.Int64N(int64(g.limit.Period())/g.limit.Count() + 1)
				if n := len(g.open); n > 0 && rng.IntN(3) == 0 {
					g.settle(rng.IntN(n))
					continue
				}
				cost := 1 + rng.Int64N(max(most*4/10, 1))
				actual := rng.Int64N(cost+1) * rng.Int64N(2)
				if g.limit.FromFirst() {
					actual = max(actual, 1) // a replay begins no window with what cost nothing
				}
				if rng.IntN(10) == 0 {
					actual = cost + rng.Int64N(most)
				}
				g.reserve(cost, actual)
			}
			for len(g.open) > 0 {
				g.settle(0)
			}
			g.judge()
		}
	}
}
