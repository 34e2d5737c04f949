package redisstore_test

import (
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
