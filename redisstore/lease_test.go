package redisstore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestLeaseEnvelope drives four nodes on one key, on a clock of theirs and the
// server's, through phases of demand of all sizes, pauses in which the bucket
// fills up while the nodes have units in hand, and bursts: never above B + d/T,
// and above what the server's bucket alone would admit.
func TestLeaseEnvelope(t *testing.T) {
	need.Time(t)
	server := redistest.Start(t)
	for _, text := range []string{"10000/1s burst 2000", "7000/3s burst 1111", "100000/1s"} {
		t.Run(text, func(t *testing.T) {
			clock, rnd := newVirtual(), rand.New(rand.NewPCG(5, 5))
			stores := nodes(t, server.URL(), 4, redisstore.Options{Now: clock.now})
			limits := make([]stint.Bound, len(stores))
			for i, s := range stores {
				limits[i] = bindIn(t, s, redisstore.Lease, text)
			}
			limit := limits[0].Limits()[0]
			history := envelopeOf(limit)
			before, admitted := calls(t, server), int64(0)
			try := func(node int, cost int64) bool {
				ok, err := limits[node].Allow(ctx, "k", cost)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					history.admit(t, clock.now(), cost)
					admitted += cost
				}
				return ok
			}
			for range 60 {
				// demand, of more than the limit or less
				step := rnd.Int64N(int64(2*limit.Period())/limit.Count()*2 + 2)
				for range 2000 {
					clock.add(time.Duration(step))
					try(rnd.IntN(4), 1+rnd.Int64N(3))
				}
				if rnd.IntN(2) == 0 {
					clock.add(time.Duration(rnd.Int64N(int64(time.Second))))
				}
				if rnd.IntN(3) == 0 {
					stores[rnd.IntN(4)].Sweep()
				}
				// all that there is at one instant
				for node := range limits {
					for try(node, 20) || try(node, 1) {
					}
				}
			}
			if history.highest < limit.Burst()-limit.Burst()/10*4/5 { // the server's bucket is B − S
				t.Errorf("at most %d of %d were admitted in a stretch: the worst case was not reached", history.highest, limit.Burst())
			}
			if n := calls(t, server) - before; n > admitted/10 {
				t.Errorf("%d calls for %d admitted", n, admitted)
			}
		})
	}
}

// inHand brings a node to have units in hand of the key, all it can get, and
// the server's bucket to be full again beside them.
func inHand(t testing.TB, clock *virtual, limit stint.Bound) {
	t.Helper()
	for range 40 {
		clock.add(time.Millisecond)
		for range 9 {
			take(t, limit, "k", 1)
		}
	}
	clock.add(400 * time.Millisecond)
}

// TestLeaseEnds pauses a node with leases in hand until they have ended for the
// server, which then leases as much to another: what the first had must be
// void. Its clock is the one that jumped.
func TestLeaseEnds(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	stores := nodes(t, server.URL(), 2, redisstore.Options{Now: clock.now})
	a, b := bindIn(t, stores[0], redisstore.Lease, "10000/1s burst 2000"), bindIn(t, stores[1], redisstore.Lease, "10000/1s burst 2000")
	inHand(t, clock, a)
	before := calls(t, server)
	if take(t, a, "k", 1); calls(t, server) != before {
		t.Fatal("the node has nothing in hand")
	}
	clock.add(2100 * time.Millisecond) // paused
	inHand(t, clock, b)
	envelopeOf(a.Limits()[0]).spend(t, clock, a, b) // a by what it still has
}

// TestLeaseNewcomer has one node take all that may be in hand, and then another
// come: it gets what is left of that, not as much again.
func TestLeaseNewcomer(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	stores := nodes(t, server.URL(), 3, redisstore.Options{Now: clock.now})
	var limits []stint.Bound
	for _, s := range stores {
		limits = append(limits, bindIn(t, s, redisstore.Lease, "10000/1s burst 2000"))
		inHand(t, clock, limits[len(limits)-1])
	}
	envelopeOf(parse(t, "10000/1s burst 2000")).spend(t, clock, limits...)
}

// TestLeaseKeys asks for more keys than a node may have in hand.
func TestLeaseKeys(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{LeaseKeys: 10}})[0]
	limit := bindIn(t, s, redisstore.Lease, "1000/1s")
	for i := range 26 {
		for range 30 {
			if !take(t, limit, string(rune('a'+i)), 1).Allowed {
				t.Fatal("denied")
			}
		}
	}
	if n := s.Held(); n != 10 {
		t.Errorf("%d keys in hand", n)
	}
	clock.add(time.Minute)
	for range 3 {
		s.Sweep()
	}
	if n := s.Held(); n != 0 {
		t.Errorf("%d keys in hand a minute later", n)
	}
}

// TestLeaseChanged binds another form of a limit: what is in hand of the one
// before is void, and each form is decided by the server.
func TestLeaseChanged(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	old := parse(t, "10000/1s burst 2000")
	limit, err := s.Mode(redisstore.Lease).Bind("l", old.WithName("l"))
	if err != nil {
		t.Fatal(err)
	}
	inHand(t, clock, limit)
	next, err := s.Mode(redisstore.Lease).Bind("l", parse(t, "10/1s burst 10").WithName("l"))
	if err != nil {
		t.Fatal(err)
	}
	if d := take(t, next, "k", 11); d.Allowed || d.Limit != 10 {
		t.Errorf("11 of 10: %+v", d)
	}
	calls := s.Stats().Results.OK
	for range 10 {
		take(t, limit, "k", 1)
	}
	if asked := s.Stats().Results.OK - calls; asked != 10 || limit.Limits()[0] != old.WithName("l") {
		t.Errorf("%v: the server was asked %d times of 10", limit.Limits(), asked)
	}
}

// TestLeaseHold has a request take much of what a node has in hand, and wait for
// the server to decide another layer, which denies. What it took is put back
// afterwards, so meanwhile it counts as in hand: neither may the node get as
// much again, nor another when this one gives back the rest.
func TestLeaseHold(t *testing.T) {
	server := redistest.Start(t)
	const text, most = "10000/1s burst 2000", 200 // S
	for name, meanwhile := range map[string]func(clock *virtual, held *redisstore.Store, first, second stint.Bound){
		"more is asked for": func(clock *virtual, _ *redisstore.Store, first, _ stint.Bound) {
			inHand(t, clock, first)
		},
		"the rest is given back": func(clock *virtual, held *redisstore.Store, _, second stint.Bound) {
			clock.add(600 * time.Millisecond)
			held.Sweep()
			inHand(t, clock, second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newVirtual()
			var once func() // while a strict call is on its way
			o := redisstore.Options{Now: clock.now, Prefix: name}
			o.Driver = &front{Driver: redisstore.NewDriver(client(t, server.Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
				if do := once; do != nil && args[0] != "L" {
					once = nil
					do()
				}
				return call(args)
			}}
			held := open(t, "", o)
			o.Driver = nil
			other := nodes(t, server.URL(), 1, o)[0]
			first, second := bindIn(t, held, redisstore.Lease, text), bindIn(t, other, redisstore.Lease, text)
			closed := bindIn(t, held, redisstore.Strict, "1/1h fixed_window")
			take(t, closed, "k", 1)
			inHand(t, clock, first)
			reached := false
			once = func() {
				reached = true
				meanwhile(clock, held, first, second)
			}
			layers := []stint.Layer{{Bound: first, Key: "k", Weight: most / 2}, {Bound: closed, Key: "k"}}
			if d, err := held.Mode(redisstore.Lease).Decide(ctx, meter.OpTake, layers, 1); err != nil || d.Allowed || !reached {
				t.Fatalf("%+v, %v, and something happened meanwhile: %t", d, err, reached)
			}
			envelopeOf(first.Limits()[0]).spend(t, clock, first, second)
		})
	}
}

// TestLeaseLate has a node ask for more shortly before what it has in hand ends. The
// call gets to the server only when it has leased as much to another node: what the
// first had must be void, although the answer comes in time.
func TestLeaseLate(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	var until func() // after which the next call of a lease reaches the server
	o := redisstore.Options{Now: clock.now, Prefix: "late", NewKeys: -1}
	o.Driver = &front{Driver: redisstore.NewDriver(client(t, server.Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		if do := until; do != nil && args[0] == "L" {
			until = nil
			do()
			args = slices.Clone(args)
			args[len(args)-1] = strconv.FormatInt(clock.now()/1000, 10) // the server's clock
		}
		return call(args)
	}}
	late := open(t, "", o)
	o.Driver = nil
	other := nodes(t, server.URL(), 1, o)[0]
	const text = "10000/1s burst 2000"
	first, second := bindIn(t, late, redisstore.Lease, text), bindIn(t, other, redisstore.Lease, text)
	inHand(t, clock, first)
	clock.add(1300 * time.Millisecond) // of the 1750 that a node may spend it
	reached := false
	until = func() {
		reached = true
		clock.add(600 * time.Millisecond) // the server's 2000 are over
		inHand(t, clock, second)
	}
	for n := 0; !reached; n++ {
		if take(t, first, "k", 1); n > 2000 {
			t.Fatal("the node does not ask for more")
		}
	}
	envelopeOf(first.Limits()[0]).spend(t, clock, second, first)
}
