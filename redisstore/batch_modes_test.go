package redisstore_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestBatchLeases has what is in hand of twenty keys given back at once: two calls
// leave, and the others travel as one, each with its own effect.
func TestBatchLeases(t *testing.T) {
	const keys = 20
	var at atomic.Int64
	at.Store(1795229355387954000)
	server := redistest.Start(t)
	store, g := gated(t, server, redisstore.Options{Now: at.Load})
	close(g.opened)
	b, err := store.Mode(redisstore.Lease).Bind("leased", parse(t, "100000/s burst 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 * keys {
		at.Add(int64(time.Microsecond))
		if ok, err := b.Allow(ctx, fmt.Sprint("key", i%keys), 1); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	c := client(t, server.Addr)
	names := func() []string {
		all, err := do(t, c, "KEYS", "*::lease:*").StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if n := store.Held(); n != keys || len(names()) != keys {
		t.Fatalf("%d keys are leased, and %d hashes are there: that is no trial", n, len(names()))
	}
	at.Add(int64(600 * time.Millisecond)) // what is not used for half a second goes back
	before := len(g.calls())
	g.opened = make(chan struct{})
	swept := make(chan struct{})
	go func() { store.Sweep(); close(swept) }()
	eventually(t, "not all are to be given back", func() bool { return len(g.calls())-before+store.Waiting(true) == keys })
	if n := len(g.calls()) - before; n != redisstore.MaxInFlight {
		t.Errorf("%d calls left", n)
	}
	close(g.opened)
	<-swept
	if n := len(g.calls()) - before; n != redisstore.MaxInFlight+1 {
		t.Errorf("%d calls in all", n)
	}
	if left := names(); len(left) != 0 {
		t.Errorf("still leased: %q", left)
	}
	strict := made.Bound(t, store, "leased", parse(t, "100000/s burst 900"))
	for i := range keys { // 600 ms have made good what was spent
		if d, err := strict.Decide(ctx, meter.OpPeek, fmt.Sprint("key", i), 1); err != nil || d.Remaining != 900 {
			t.Errorf("key%d: %+v, %v", i, d, err)
		}
	}
}

// TestBatchLeaseAnswers has leases that were asked for in one call be granted as
// if each had come alone.
func TestBatchLeaseAnswers(t *testing.T) {
	c := client(t, redistest.Start(t).Addr)
	do(t, c, "SCRIPT", "LOAD", redisstore.Source)
	eval := func(keys []string, args ...string) []any {
		t.Helper()
		v, err := redisstore.NewDriver(c).EvalSHA(ctx, redisstore.SHA, keys, args)
		list, ok := v.([]any)
		if err != nil || !ok {
			t.Fatalf("%v, %v", v, err)
		}
		return list
	}
	ask := func(node, want string) []string {
		return []string{"L", "=g10:1:900:", "10", "9000", "1", node, "1", "100", "0", "0", "1", want, "2000000"}
	}
	keys := func(key string) []string { return []string{"p:{a}:" + key, "p:{a}::lease:" + key} }
	for _, one := range []struct {
		key, node, want string
	}{{"a", "n1", "30"}, {"b", "n1", "300"}, {"c", "n2", "1"}} {
		alone := eval(keys("alone-"+one.key), ask(one.node, one.want)...)
		both := eval(append(keys("first-"+one.key), keys("second-"+one.key)...), append(append([]string{"M", "", "2", "13"}, ask(one.node, one.want)...),
			append([]string{"2", "13"}, ask(one.node, one.want)...)...)...)
		for i, v := range both {
			if got, ok := v.([]any); !ok || !slices.Equal(got[:1], alone[:1]) || !slices.Equal(got[2:], alone[2:]) {
				t.Errorf("%s: the %dth of two is granted %v, alone %v", one.key, i, v, alone)
			}
		}
	}
}

// TestBatchPushes has twenty keys of mode async send at once what they have let
// through, under limits of every kind: two calls leave, and the others travel as one,
// each with its own effect.
func TestBatchPushes(t *testing.T) {
	const keys = 20
	var at atomic.Int64
	at.Store(1795229355387954000)
	server := redistest.Start(t)
	store, g := gated(t, server, redisstore.Options{Now: at.Load, Modes: redisstore.Modes{AsyncUnsent: 100}})
	for _, text := range []string{"1000/1h", "7000/1m", "1000/1h sliding_log", "1000/1h sliding_counter", "1000/1h sliding_buckets", "1000/1h token_bucket_interval", "1000 per month in UTC"} {
		g.opened = make(chan struct{})
		close(g.opened)
		limit := bindIn(t, store, redisstore.Async, text)
		for i := range keys {
			take(t, limit, fmt.Sprint("key", i), int64(2+i))
		}
		at.Add(int64(time.Second))
		before := len(g.calls())
		g.opened = make(chan struct{})
		swept := make(chan struct{})
		go func() { store.Sweep(); close(swept) }()
		eventually(t, "not all are sent at once", func() bool { return len(g.calls())-before+store.Waiting(true) == keys })
		if n := len(g.calls()) - before; n != redisstore.MaxInFlight {
			t.Errorf("%s: %d calls left", text, n)
		}
		close(g.opened)
		<-swept
		if n := len(g.calls()) - before; n != redisstore.MaxInFlight+1 {
			t.Errorf("%s: %d calls in all", text, n)
		}
		strict := bind(t, store, text)
		for i := range keys {
			d := peek(t, strict, fmt.Sprint("key", i))
			if used := d.Limit - d.Remaining; used != int64(2+i) {
				t.Errorf("%s: %d of key%d are in use, want %d", text, used, i, 2+i)
			}
		}
	}
}
