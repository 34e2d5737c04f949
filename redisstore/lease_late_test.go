package redisstore_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// A laggard is a driver whose next call of a lease reaches the server after
// something else has happened, and time has passed.
type laggard struct {
	redisstore.Driver
	clock *virtual
	until func()
}

func (l *laggard) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if do := l.until; do != nil && args[0] == "L" {
		l.until = nil
		do()
		args = slices.Clone(args)
		args[len(args)-1] = strconv.FormatInt(l.clock.now()/1000, 10) // the server's clock
	}
	return l.Driver.EvalSHA(ctx, sha, keys, args)
}

// TestLeaseLate has a node ask for more shortly before what it has in hand ends. The
// call gets to the server only when it has leased as much to another node: what the
// first had must be void, although the answer comes in time.
func TestLeaseLate(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	driver := &laggard{Driver: redisstore.DriverOf(client(t, server.Addr)), clock: clock}
	o := redisstore.Options{Driver: driver, Now: clock.now, Prefix: "late", Timeout: 30 * time.Second, NewKeys: -1}
	late, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	o.Driver = nil
	other := nodes(t, server.URL(), 1, o)[0]
	const text = "10000/1s burst 2000"
	first, second := bindIn(t, late, redisstore.Lease, text), bindIn(t, other, redisstore.Lease, text)
	inHand(t, clock, first)
	clock.add(1300 * time.Millisecond) // of the 1750 that a node may spend it
	reached := false
	driver.until = func() {
		reached = true
		clock.add(600 * time.Millisecond) // the server's 2000 are over
		inHand(t, clock, second)
	}
	for n := 0; !reached; n++ {
		if take(t, first, "k", 1); n > 2000 {
			t.Fatal("the node does not ask for more")
		}
	}
	history := envelopeOf(first.Limits()[0])
	for _, limit := range []stint.Bound{second, first, second, first} {
		for take(t, limit, "k", 1).Allowed {
			history.admit(t, clock.now(), 1)
		}
	}
	if history.highest < 1900 {
		t.Errorf("%d of 2000: the worst case was not reached", history.highest)
	}
}
