package inflight

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// mostWaiting is how many requests may wait for one key, each of which holds a connection
// or the like.
const mostWaiting = 1000

// mostLeases is how many leases a room holds: nothing else bounds them, since no request
// that runs here has to.
const mostLeases = 1_000_000

// ErrFull is for units with a lease while a room holds as many leases as it may.
var ErrFull = errors.New("inflight: too many leases are held")

// A Room is [Counts], and the lines of those that wait for units of them in this process.
// Those that wait for a key get its units in the order in which they came; no newcomer
// passes them. All who share counts in one process use one Room.
type Room struct {
	counts Counts
	again  time.Duration

	waiting atomic.Int64 // in all lines, so that who finds none needs no lock
	mu      sync.Mutex   // guards lines and leases
	lines   map[place]*list.List
	leases  map[string]lease

	mostLeases int

	held sync.Map // of *atomic.Int64, by name
}

// A lease is units that are given back when its time ends, unless they were before.
type lease struct {
	holds []Hold
	end   *time.Timer
}

// A place is what a line waits for.
type place struct{ name, key string }

// NewRoom returns the room of counts. Where other processes give back units too, again is
// how often the first of a line asks anew; 0 is only when units were given back here.
func NewRoom(counts Counts, again time.Duration) *Room {
	return &Room{counts: counts, again: again, lines: make(map[place]*list.List), leases: make(map[string]lease), mostLeases: mostLeases}
}

// Over returns a room of counts that stand in front of those of r, with lines of its own.
func (r *Room) Over(front func(Counts) Counts) *Room { return NewRoom(front(r.counts), r.again) }

// Acquire takes the units of all holds or of none, and says in each what it answers. Where
// a hold has no room the request waits as long as that hold says, and at most most if that
// is above 0. A request that holds units gives them back by Release. If the context ends
// meanwhile, nothing is held, and the error is the context's. While a million leases are
// held, another is ErrFull.
func (r *Room) Acquire(ctx context.Context, holds []Hold, most time.Duration) (ok bool, err error) {
	at := -1
	if len(holds) > 0 && holds[0].Lease != "" && r.full() {
		return false, ErrFull
	}
	if r.waiting.Load() > 0 {
		at = r.behind(holds)
	}
	if at < 0 {
		if ok, err = r.counts.Acquire(ctx, holds); !ok && err == nil {
			at = denying(holds)
		}
	}
	if at >= 0 {
		ok, err = r.wait(ctx, holds, at, most)
	}
	if ok {
		r.took(holds)
	}
	return ok, err
}

// Look says what Acquire would without waiting, and takes nothing.
func (r *Room) Look(ctx context.Context, holds []Hold) (ok bool, err error) {
	return r.counts.Look(ctx, holds)
}

// Add takes units that other counts have let in. Release gives them back.
func (r *Room) Add(holds []Hold) {
	r.counts.Add(holds)
	r.took(holds)
}

// took notes what is held, and for how long.
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

// Release gives back what one call of Acquire or Add took. What has a lease is given back
// once, however often it is called; where processes share the counts, in any of them.
func (r *Room) Release(holds []Hold) {
	if len(holds) > 0 && holds[0].Lease != "" && !r.endLease(holds) {
		return
	}
	r.counts.Release(holds)
	r.count(holds, -1)
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range holds {
		wake(r.lines[place{holds[i].Name, holds[i].Key}])
	}
}

// endLease reports whether units that have a lease are held through this room. Else, they
// have been given back, or another process has taken them.
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

// denying returns the first hold that denied.
func denying(holds []Hold) int {
	for i := range holds {
		if holds[i].Denied {
			return i
		}
	}
	return -1
}

// behind returns the first hold for which others wait already, or -1.
func (r *Room) behind(holds []Hold) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range holds {
		if h := &holds[i]; r.lines[place{h.Name, h.Key}] != nil {
			return i
		}
	}
	return -1
}

// wake has the first of a line ask.
func wake(line *list.List) {
	if line == nil {
		return
	}
	select {
	case line.Front().Value.(chan struct{}) <- struct{}{}:
	default: // it will ask anyway
	}
}

// wait waits for holds of which that at denied, or has others waiting for it.
func (r *Room) wait(ctx context.Context, holds []Hold, at int, most time.Duration) (ok bool, err error) {
	began := time.Now()
	for at >= 0 {
		h := &holds[at]
		h.Running, h.Denied = max(h.Running, h.Limit-h.Units+1), true // until it is asked
		within := h.Wait
		if most > 0 {
			within = min(within, most)
		}
		if within -= time.Since(began); within <= 0 || h.Units > h.Limit {
			return false, nil
		}
		turn, leave := r.join(h)
		if turn == nil {
			return false, nil
		}
		ok, at, err = r.await(ctx, holds, at, turn, within)
		leave()
	}
	return ok, err
}

// join puts a request at the end of a line, and returns what tells it that it may have its
// turn, and what takes it out; nil if too many wait already.
func (r *Room) join(h *Hold) (turn chan struct{}, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := place{h.Name, h.Key}
	line := r.lines[p]
	if line == nil {
		line = list.New()
		r.lines[p] = line
	}
	if line.Len() == mostWaiting {
		return nil, nil
	}
	turn = make(chan struct{}, 1)
	self := line.PushBack(turn)
	if r.waiting.Add(1); line.Len() == 1 {
		wake(line) // what was given back since it asked was given to nobody
	}
	return turn, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting.Add(-1)
		first := line.Front() == self
		switch line.Remove(self); {
		case line.Len() == 0:
			delete(r.lines, p)
		case first:
			wake(line)
		}
	}
}

// await asks whenever it is the request's turn. It returns with the answer; or with
// another hold that denies now, whose line is next.
func (r *Room) await(ctx context.Context, holds []Hold, at int, turn <-chan struct{}, within time.Duration) (ok bool, next int, err error) {
	end := time.NewTimer(within)
	defer end.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false, -1, ctx.Err()
		case <-end.C:
			return false, -1, nil
		case <-turn:
		case <-again:
		}
		if ok, err = r.counts.Acquire(ctx, holds); ok || err != nil {
			return ok, -1, err
		}
		if !holds[at].Denied || holds[at].Wait == 0 { // it waits no more
			return false, denying(holds), nil
		}
		if r.again > 0 {
			again = time.After(r.again)
		}
	}
}
