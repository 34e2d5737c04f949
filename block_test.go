package stint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// TestBlockRefuses has what cannot block say why, and change nothing.
func TestBlockRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		l    *stint.Limiter
		d    time.Duration
		want string
	}{
		"no time":       {limiterOf(t, "5/s ban 1s"), 0, "above 0 and at most"},
		"too long":      {limiterOf(t, "5/s ban 1s"), meter.MaxBan + 1, "above 0 and at most"},
		"no ban":        {limiterOf(t, "5/s"), time.Hour, "WithBan"},
		"in flight":     {limiterOf(t, "5 in flight"), time.Hour, "in flight"},
		"unmade":        {&stint.Limiter{}, time.Hour, "NewLimiter"},
		"another store": {limiterOn(t, struct{ stint.Store }{memstore.New(memstore.Options{})}, "5/s ban 1s"), time.Hour, "BlockStore"},
	} {
		if err := c.l.Block(bg, "k", c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := c.l.Unblock(bg, "k"); (err == nil) != (c.want == "above 0 and at most") {
			t.Errorf("%s: Unblock: %v", name, err)
		}
	}
}

// TestBlockAll blocks one part of a request over two keys, under one of two limits: it is
// denied, and nothing is charged.
func TestBlockAll(t *testing.T) {
	store := memstore.New(memstore.Options{Now: func() int64 { return int64(time.Hour) }})
	defer store.Close()
	l := limiterOn(t, store, "9/1m", "9/1h ban 1ns")
	other := limiterOn(t, store, "7/1m")
	both := stint.All(other.Key("o"), l.Key("k"))
	if err := l.Block(bg, "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d, err := both.Take(bg)
		if err != nil || !d.Banned || d.Denied != 1<<2 || d.RetryAfter != stint.Wait(time.Hour) {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if err := l.Unblock(bg, "k"); err != nil {
		t.Fatal(err)
	}
	if d, err := both.Take(bg); err != nil || !d.Allowed || d.Remaining != 6 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestBlockWaits blocks a key for which several wait. The first in line hears at once if it has
// too little time, and so does the next then; the others start when the ban ends, by itself or
// by Unblock. It is the same whether they wait in the Limiter that blocks or in another one of
// the name.
func TestBlockWaits(t *testing.T) {
	for _, same := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			l := limiterOn(t, store, "1/1m burst 2 ban 1ns")
			by := l
			if !same {
				by = limiterOn(t, store, "1/1m burst 2 ban 1ns")
			}
			tr := newTranscript()
			wait := func(name string, atMost time.Duration) {
				ctx, cancel := context.WithTimeout(bg, atMost)
				defer cancel()
				err := l.Wait(ctx, "k", 2)
				var late *stint.WaitError
				tr.add("%s %v", name, map[bool]any{true: "too late", false: err}[errors.As(err, &late) && late.Decision.Banned])
			}
			block := func(d time.Duration) {
				if err := by.Block(bg, "k", d); err != nil {
					t.Error(err)
				}
			}
			must(t, l, 2)
			for _, w := range []struct {
				name   string
				atMost time.Duration
			}{{"first", 10 * time.Minute}, {"second", 10 * time.Minute}, {"third", 9 * time.Hour}, {"fourth", 9 * time.Hour}} {
				go wait(w.name, w.atMost)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			block(time.Hour)
			time.Sleep(61 * time.Minute)
			block(time.Hour)
			time.Sleep(10 * time.Minute)
			if err := by.Unblock(bg, "k"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			empty(t, l)
			tr.check(t, `
				1m0s first too late
				1m0s second too late
				1h1m0s third <nil>
				1h12m0s fourth <nil>`)
		})
	}
}
