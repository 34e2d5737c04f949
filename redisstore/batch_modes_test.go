package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// swept has what a store keeps of twenty keys sent at once: two calls leave, and the others
// travel as one.
func swept(t *testing.T, store *redisstore.Store, g *gate, what string) {
	t.Helper()
	before := len(g.calls())
	g.opened = make(chan struct{})
	done := make(chan struct{})
	go func() { store.Sweep(); close(done) }()
	eventually(t, what+": not all are to be sent", func() bool { return len(g.calls())-before+store.Waiting(true) == sweptKeys })
	if n := len(g.calls()) - before; n != redisstore.MaxInFlight {
		t.Errorf("%s: %d calls left", what, n)
	}
	close(g.opened)
	<-done
	if n := len(g.calls()) - before; n != redisstore.MaxInFlight+1 {
		t.Errorf("%s: %d calls in all", what, n)
	}
}

const sweptKeys = 20

// TestBatchLeases has what is in hand of twenty keys given back at once, each with its
// own effect.
func TestBatchLeases(t *testing.T) {
	clock := newVirtual()
	server := redistest.Start(t)
	store, g := gated(t, server, redisstore.Options{Now: clock.now})
	close(g.opened)
	limit := made.Bound(t, store.Mode(redisstore.Lease), "leased", parse(t, "100000/s burst 1000"))
	for i := range 40 * sweptKeys {
		clock.add(time.Microsecond)
		if !take(t, limit, fmt.Sprint("key", i%sweptKeys), 1).Allowed {
			t.Fatal("denied")
		}
	}
	hashes := func() (n int) {
		for _, name := range keys(t, client(t, server.Addr)) {
			if strings.Contains(name, "::lease:") {
				n++
			}
		}
		return n
	}
	if n := store.Held(); n != sweptKeys || hashes() != sweptKeys {
		t.Fatalf("%d keys are leased, and %d hashes are there: that is no trial", n, hashes())
	}
	clock.add(600 * time.Millisecond) // what is not used for half a second goes back
	swept(t, store, g, "leases")
	if n := hashes(); n != 0 {
		t.Errorf("%d are still leased", n)
	}
	strict := made.Bound(t, store, "leased", parse(t, "100000/s burst 900"))
	for i := range sweptKeys { // 600 ms have made good what was spent
		if d := peek(t, strict, fmt.Sprint("key", i)); d.Remaining != 900 {
			t.Errorf("key%d: %+v", i, d)
		}
	}
}

// TestBatchPushes has twenty keys of mode async send at once what they have let
// through, under limits of every kind, each with its own effect.
func TestBatchPushes(t *testing.T) {
	clock := newVirtual()
	store, g := gated(t, redistest.Start(t), redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: 100}})
	close(g.opened)
	for _, text := range []string{"1000/1h", "7000/1m", "1000/1h sliding_log", "1000/1h sliding_counter", "1000/1h sliding_buckets", "1000/1h token_bucket_interval", "1000 per month in UTC"} {
		limit := bindIn(t, store, redisstore.Async, text)
		for i := range sweptKeys {
			take(t, limit, fmt.Sprint("key", i), int64(2+i))
		}
		clock.add(time.Second)
		swept(t, store, g, text)
		strict := bind(t, store, text)
		for i := range sweptKeys {
			d := peek(t, strict, fmt.Sprint("key", i))
			if used := d.Limit - d.Remaining; used != int64(2+i) {
				t.Errorf("%s: %d of key%d are in use, want %d", text, used, i, 2+i)
			}
		}
	}
}
