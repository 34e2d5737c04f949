package fallback_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// A pool is a shared store whose counts of what runs can fail.
type pool struct {
	stint.Store
	inflight.Counts
	room *inflight.Room
	gone atomic.Bool
}

func newPool(t *testing.T) *pool {
	p := &pool{Store: memstore.New(memstore.Options{}), Counts: inflight.NewMemory()}
	p.room = inflight.NewRoom(p, time.Millisecond)
	t.Cleanup(func() { _ = p.Store.Close() })
	return p
}

func (p *pool) InFlight() *inflight.Room { return p.room }

func (p *pool) Acquire(ctx context.Context, holds []inflight.Hold) (bool, error) {
	if p.gone.Load() {
		return false, errGone
	}
	return p.Counts.Acquire(ctx, holds)
}

func (p *pool) Look(ctx context.Context, holds []inflight.Hold) (bool, error) {
	if p.gone.Load() {
		return false, errGone
	}
	return p.Counts.Look(ctx, holds)
}

// process is one of those that share a pool.
func (p *pool) process(t *testing.T, o fallback.Options) *stint.Limiter {
	t.Helper()
	s := fallback.New(p, o)
	return made.Limiter(t, s, "pool", stint.InFlight(10))
}

// fill has as many requests begin as pass, and returns what ends each.
func fill(t *testing.T, l *stint.Limiter) (all []func()) {
	t.Helper()
	for range 100 {
		d, release, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			if d.RetryAfter != stint.Wait(time.Second) || d.Remaining != 0 {
				t.Fatalf("denied: %+v", d)
			}
			return all
		}
		all = append(all, release)
	}
	return all
}

// TestInFlight has three processes share ten places, lose the store while some run, and
// find it again: what ran by it counts in the part of each, and what ran without it counts
// in the store.
func TestInFlight(t *testing.T) {
	p := newPool(t)
	o := fallback.Options{Nodes: 3}
	a, b := p.process(t, o), p.process(t, o)
	_, one, err := a.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	p.gone.Store(true)
	atA, atB := fill(t, a), fill(t, b)
	if len(atA) != 2 || len(atB) != 3 {
		t.Fatalf("%d and %d pass by parts of three, of which one ran", len(atA), len(atB))
	}
	p.gone.Store(false)
	more := fill(t, b)
	if len(more) != 10-6 {
		t.Fatalf("%d pass beside six", len(more))
	}
	one()
	one()
	for _, end := range append(append(atA, atB...), more...) {
		end()
	}
	if left := fill(t, a); len(left) != 10 {
		t.Fatalf("%d pass when all have ended", len(left))
	}
}

// TestInFlightModes is what passes without the store, by the mode.
func TestInFlightModes(t *testing.T) {
	for _, c := range []struct {
		mode  fallback.Mode
		nodes int
		want  int
	}{{fallback.Local, 1, 10}, {fallback.Local, 4, 2}, {fallback.Local, 100, 1}, {fallback.Open, 4, 100}, {fallback.Closed, 1, 0}} {
		t.Run(fmt.Sprintf("%v of %d", c.mode, c.nodes), func(t *testing.T) {
			p := newPool(t)
			l := p.process(t, fallback.Options{Mode: c.mode, Nodes: c.nodes})
			p.gone.Store(true)
			all := fill(t, l)
			if len(all) != c.want {
				t.Fatalf("%d pass, want %d", len(all), c.want)
			}
			for _, end := range all {
				end()
			}
			p.gone.Store(false)
			if again := fill(t, l); len(again) != 10 {
				t.Fatalf("%d pass with the store", len(again))
			}
		})
	}
}

// A caller who waits gets the place that is given back, with the store or without it.
func TestInFlightWaits(t *testing.T) {
	for _, gone := range []bool{false, true} {
		p := newPool(t)
		l := p.process(t, fallback.Options{})
		all := fill(t, l)
		p.gone.Store(gone)
		done := make(chan error)
		go func() {
			d, release, err := l.AcquireN(t.Context(), "k", 1, time.Hour)
			if release(); err == nil && !d.Allowed {
				err = fmt.Errorf("%+v", d)
			}
			done <- err
		}()
		all[0]()
		if err := <-done; err != nil {
			t.Fatalf("gone: %t: %v", gone, err)
		}
	}
}

// Who can get no place without the store does not wait for one, whether it was away when
// they came or has gone since: all where the mode is Closed, and who needs more than the
// process's part. Those behind them may have room.
func TestInFlightInVain(t *testing.T) {
	for _, c := range []struct {
		o     fallback.Options
		cost  int64
		there bool // the store, when they come
	}{
		{fallback.Options{Mode: fallback.Closed}, 1, false},
		{fallback.Options{Mode: fallback.Closed}, 1, true},
		{fallback.Options{Nodes: 4}, 3, false},
		{fallback.Options{Nodes: 4}, 3, true},
	} {
		t.Run(fmt.Sprintf("%v, %t", c.o.Mode, c.there), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t)
				l := p.process(t, c.o)
				all := fill(t, l)
				p.gone.Store(!c.there)
				came := time.Now()
				done := make(chan error)
				for range 2 {
					go func() {
						d, _, err := l.AcquireN(t.Context(), "k", c.cost, time.Minute)
						if err == nil && d.RetryAfter != fallback.ClosedFor {
							err = fmt.Errorf("%+v", d)
						}
						done <- err
					}()
				}
				synctest.Wait()
				p.gone.Store(true)
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(came); took > time.Second {
					t.Errorf("denied after %v", took)
				}
				for _, end := range all {
					end()
				}
			})
		})
	}
}

// A lease that another process ends is given back there alone.
func TestInFlightLease(t *testing.T) {
	p := newPool(t)
	rooms := [2]*inflight.Room{}
	for i := range rooms {
		rooms[i] = fallback.New(p, fallback.Options{}).InFlight()
	}
	hold := func(lease string) []inflight.Hold {
		return []inflight.Hold{{Name: "n", Key: "k", Limit: 10, Units: 4, Lease: lease, TTL: time.Hour}}
	}
	for i, lease := range []string{"x", ""} {
		if ok, err := rooms[i].Acquire(t.Context(), hold(lease)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	rooms[1].Release(hold("x"))
	p.gone.Store(true)
	look := hold("")
	look[0].Units = 1
	if _, err := rooms[1].Look(t.Context(), look); err != nil || look[0].Running != 4 {
		t.Fatalf("%d run in the other process: %v", look[0].Running, err)
	}
}

// A shared store without a room has none behind a fallback either.
func TestInFlightNone(t *testing.T) {
	s := fallback.New(struct{ stint.Store }{memstore.New(memstore.Options{})}, fallback.Options{})
	if _, err := stint.NewLimiter(s, "pool", stint.InFlight(10)); err == nil {
		t.Fatal("a limit in flight that nothing counts is taken")
	}
}
