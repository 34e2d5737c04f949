package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A waiter is a driver that does something while a strict call is on its way.
type waiter struct {
	redisstore.Driver
	meanwhile func()
}

func (w *waiter) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if do := w.meanwhile; do != nil && args[0] != "L" {
		w.meanwhile = nil
		do()
	}
	return w.Driver.EvalSHA(ctx, sha, keys, args)
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
			driver := &waiter{Driver: redisstore.DriverOf(client(t, server.Addr))}
			o := redisstore.Options{Driver: driver, Now: clock.now, Prefix: name, Timeout: 30 * time.Second}
			held, err := redisstore.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			o.Driver = nil
			other := nodes(t, server.URL(), 1, o)[0]
			first, second := bindIn(t, held, redisstore.Lease, text), bindIn(t, other, redisstore.Lease, text)
			closed := bindIn(t, held, redisstore.Strict, "1/1h fixed_window")
			take(t, closed, "k", 1)
			inHand(t, clock, first)
			reached := false
			driver.meanwhile = func() {
				reached = true
				meanwhile(clock, held, first, second)
			}
			layers := []stint.Layer{{Bound: first, Key: "k", Weight: most / 2}, {Bound: closed, Key: "k"}}
			if d, err := held.Mode(redisstore.Lease).Decide(ctx, meter.OpTake, layers, 1); err != nil || d.Allowed || !reached {
				t.Fatalf("%+v, %v, and something happened meanwhile: %t", d, err, reached)
			}
			history := envelopeOf(first.Limits()[0])
			for range 2 {
				for _, limit := range []stint.Bound{first, second} {
					for take(t, limit, "k", 1).Allowed {
						history.admit(t, clock.now(), 1)
					}
				}
			}
			if history.highest < 1900 {
				t.Errorf("%d of 2000: the worst case was not reached", history.highest)
			}
		})
	}
}
