package inflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// mostLeases is how many leases a room holds. Nothing else bounds them: a lease needs no
// request that runs in this process.
const mostLeases = 1_000_000

// ErrFull is for units with a lease while a room holds as many leases as it may.
var ErrFull = errors.New("inflight: too many leases are held")

// A Room adds leases that end, and waiters that are told when units are given back, to
// [Counts]. All users of the same counts in a process share one Room.
type Room struct {
	counts Counts
	again  time.Duration

	watching atomic.Int64 // how many watchers: giving back takes no lock while there are none
	mu       sync.Mutex   // guards watchers and leases
	watchers map[watched]map[*watcher]struct{}
	leases   map[string]lease

	mostLeases int

	held sync.Map // units held, an *atomic.Int64 by name
}

// A lease is units that are given back when its time ends, unless Release came first.
type lease struct {
	holds []Hold
	end   *time.Timer
}

// watched is the limit and the key that a watcher waits for.
type watched struct{ name, key string }

type watcher struct{ wake func() }

// NewRoom returns the room of counts. If other processes give back units too, again is how
// often a waiter asks again; 0 says that units are given back through this room alone.
func NewRoom(counts Counts, again time.Duration) *Room {
	return &Room{counts: counts, again: again, watchers: make(map[watched]map[*watcher]struct{}), leases: make(map[string]lease), mostLeases: mostLeases}
}

// Over returns a room of the counts that front makes of those of r, such as counts that
// decide locally while a shared store is away.
func (r *Room) Over(front func(Counts) Counts) *Room { return NewRoom(front(r.counts), r.again) }

// Check returns an error if a limit of count is more than the counts can hold a key to.
func (r *Room) Check(count int64) error {
	if most := r.counts.Most(); count > most {
		return fmt.Errorf("%d in flight: this store counts at most %d for a key: write that, or give each of several keys a part", count, most)
	}
	return nil
}

// Acquire takes the units of all holds or of none, and writes to each hold its answer. If
// ok, the request must give the units back by Release. While a million leases are held, a
// hold with a lease is refused with [ErrFull].
func (r *Room) Acquire(ctx context.Context, holds []Hold) (ok bool, err error) {
	if len(holds) > 0 && holds[0].Lease != "" && r.full() {
		return false, ErrFull
	}
	if ok, err = r.counts.Acquire(ctx, holds); ok {
		r.took(holds)
	}
	return ok, err
}

// Look answers as Acquire would, and takes nothing.
func (r *Room) Look(ctx context.Context, holds []Hold) (ok bool, err error) {
	return r.counts.Look(ctx, holds)
}

// Add takes units that other counts have let in, whatever the limits. Release gives them back.
func (r *Room) Add(holds []Hold) {
	r.counts.Add(holds)
	r.took(holds)
}

// took notes the units that are held, and begins their lease.
func (r *Room) took(holds []Hold) {
	r.count(holds, 1)
	if len(holds) == 0 || holds[0].Lease == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[holds[0].Lease] = lease{holds, time.AfterFunc(holds[0].TTL, func() { r.Release(holds) })}
}

func (r *Room) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leases) >= r.mostLeases
}

// Release gives back what one call of Acquire or Add took. Units with a lease are given back
// once, however often Release is called, in any process that shares the counts.
func (r *Room) Release(holds []Hold) {
	if len(holds) > 0 && holds[0].Lease != "" && !r.endLease(holds) {
		return
	}
	r.counts.Release(holds)
	r.count(holds, -1)
	r.wake(holds)
}

// endLease ends a lease, and reports whether its units are held through this room. If not,
// they were given back before, or another process took them: that is told through the counts.
func (r *Room) endLease(holds []Hold) (held bool) {
	r.mu.Lock()
	l, held := r.leases[holds[0].Lease]
	delete(r.leases, holds[0].Lease)
	r.mu.Unlock()
	if held {
		l.end.Stop()
	} else if r.again > 0 {
		r.counts.Release(holds)
	}
	return held
}

// Held calls yield with how many units each name has in flight through this room.
func (r *Room) Held(yield func(name string, units int64) bool) {
	r.held.Range(func(name, n any) bool { return yield(name.(string), n.(*atomic.Int64).Load()) })
}

func (r *Room) count(holds []Hold, sign int64) {
	for i := range holds {
		n, ok := r.held.Load(holds[i].Name)
		if !ok {
			n, _ = r.held.LoadOrStore(holds[i].Name, new(atomic.Int64))
		}
		n.(*atomic.Int64).Add(sign * holds[i].Units)
	}
}

// Watch calls wake whenever units of a key may have been given back through this room,
// until stop is called. wake must not block. If again is above 0, other processes give
// back units too, which Watch does not see: ask again that often.
func (r *Room) Watch(name, key string, wake func()) (stop func(), again time.Duration) {
	at, w := watched{name, key}, &watcher{wake}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers[at] == nil {
		r.watchers[at] = make(map[*watcher]struct{})
	}
	r.watchers[at][w] = struct{}{}
	r.watching.Add(1)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.watchers[at][w]; !ok {
			return
		}
		r.watching.Add(-1)
		if delete(r.watchers[at], w); len(r.watchers[at]) == 0 {
			delete(r.watchers, at)
		}
	}, r.again
}

// wake wakes those that watch the keys of holds.
func (r *Room) wake(holds []Hold) {
	if r.watching.Load() == 0 {
		return
	}
	var found []*watcher
	r.mu.Lock()
	for i := range holds {
		found = slices.AppendSeq(found, maps.Keys(r.watchers[watched{holds[i].Name, holds[i].Key}]))
	}
	r.mu.Unlock()
	for _, w := range found {
		w.wake()
	}
}
