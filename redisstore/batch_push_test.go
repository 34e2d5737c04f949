package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

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

// TestBatchPushesOnce loses the answer to pushes that travel together: each is sent
// again, and counts once.
func TestBatchPushesOnce(t *testing.T) {
	const keys = 50
	var at atomic.Int64
	at.Store(1795229355387954000)
	var loses atomic.Bool
	var lost atomic.Int64
	driver := &front{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		reply, err := call(args)
		if args[0] == "M" && err == nil && loses.Load() {
			lost.Add(1)
			return nil, errors.New("the connection was lost")
		}
		return reply, err
	}}
	store := open(t, "", redisstore.Options{Driver: driver, Now: at.Load, Modes: redisstore.Modes{AsyncUnsent: 100}})
	limit := bindIn(t, store, redisstore.Async, "1000/1000h")
	for i := range keys {
		take(t, limit, fmt.Sprint("key", i), int64(1+i))
	}
	store.SetInFlight(1)
	loses.Store(true)
	for try := 0; lost.Load() == 0 && try < 100; try++ { // by chance, each may go alone
		at.Add(int64(time.Second))
		store.Sweep()
	}
	loses.Store(false)
	eventually(t, "what was lost is not sent again", func() bool {
		at.Add(int64(time.Second))
		store.Sweep()
		return store.Held() == 0
	})
	if lost.Load() == 0 {
		t.Skip("no pushes travelled together")
	}
	strict := bind(t, store, "1000/1000h")
	for i := range keys {
		d := peek(t, strict, fmt.Sprint("key", i))
		if used := d.Limit - d.Remaining; used > int64(1+i) || used < int64(1+i)-1 { // a unit is good again after an hour
			t.Errorf("%d of key%d are in use, want %d", used, i, 1+i)
		}
	}
}
