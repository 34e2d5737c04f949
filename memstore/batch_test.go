package memstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestAllowEach gives the answers of one decision after the other.
func TestAllowEach(t *testing.T) {
	for i, texts := range [][]string{
		{"3/1s"}, {"7/3s burst 4"}, {"5/1s sliding_log"}, {"3/1s sliding_log count_denied"}, {"3/1s", "5/4s fixed_window"},
	} {
		if leftOut(i) {
			continue
		}
		var c clock
		rng := rand.New(rand.NewPCG(1, 2))
		one, many := limiter(t, memstore.New(memstore.Options{Now: c.now}), texts...), limiter(t, memstore.New(memstore.Options{Now: c.now}), texts...)
		for round := range 300 {
			clients := 40
			if round >= 200 { // the tables grow under a batch
				clients = 4000
			}
			c.advance(time.Duration(rng.Int64N(int64(time.Second / 4))))
			keys, cost := make([]string, rng.IntN(200)), rng.Int64N(3)
			for i := range keys {
				keys[i] = fmt.Sprint(rng.IntN(clients))
			}
			passed := make([]bool, len(keys))
			if err := many.AllowEach(ctx, keys, cost, passed); err != nil {
				t.Fatal(err)
			}
			for i, key := range keys {
				if want, err := one.AllowN(ctx, key, cost); err != nil || want != passed[i] {
					t.Fatalf("%v: key %d of %d, %s at %d: %v, want %v, %v", texts, i, len(keys), key, cost, passed[i], want, err)
				}
			}
		}
	}
}

func TestAllowEachFaults(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := limiter(t, s, "1/1s")
	if err := l.AllowEach(ctx, []string{"a", "b"}, 1, make([]bool, 1)); err == nil {
		t.Error("room for one answer of two")
	}
	if err := l.AllowEach(ctx, []string{"a"}, -1, make([]bool, 1)); !errors.Is(err, stint.ErrCost) {
		t.Errorf("a cost below zero: %v", err)
	}
	if err := l.AllowEach(ctx, nil, 1, nil); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := l.AllowEach(ctx, []string{"a"}, 1, make([]bool, 1)); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestAllowEachRace lets batches in different orders and single takes meet.
func TestAllowEachRace(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 10_000})
	l := limiter(t, s, "100/24h")
	const keys = 300
	var passed [keys]atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			names, answers := make([]string, 64), make([]bool, 64)
			picks := make([]int, 64)
			for range 300 {
				for i := range names {
					picks[i] = rand.IntN(keys)
					names[i] = fmt.Sprint(picks[i])
				}
				if err := l.AllowEach(ctx, names, 1, answers); err != nil {
					t.Error(err)
				}
				for i, ok := range answers {
					if ok {
						passed[picks[i]].Add(1)
					}
				}
				if ok, _ := l.Allow(ctx, names[0]); ok {
					passed[picks[0]].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range passed {
		if n := passed[i].Load(); n != 100 {
			t.Errorf("key %d: %d passed of 100", i, n)
		}
	}
}
