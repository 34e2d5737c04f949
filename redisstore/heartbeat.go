package redisstore

import (
	"context"
	"crypto/rand"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	beatEvery = time.Second     // give or take a quarter: processes beat at moments of their own
	beatLife  = 5 * time.Second // after which one that is not heard of no longer counts
	beatsHeld = 5               // answers in a row that must be lower until a lower count is taken
)

// A heart counts the processes that share a store: each writes itself into one
// sorted set every second or so, and reads how many there are. A beat is no request: it may
// take a second, and the breaker does not keep it, so that processes which are far from
// the server, or have just started while it was slow, know of each other.
//
// Overcounting is safe, since each process then holds less of a limit than it
// might. So a higher count is taken at once, and a lower one only after some
// beats: a server that has restarted without its memory, or whose clock was
// stepped forward, knows no process until each has beaten again. A beat that fails
// changes nothing.
type heart struct {
	node   string       // a random name: nothing of the machine
	nodes  atomic.Int64 // the count in use; 0 while there is none
	recent [beatsHeld]int64
	beats  int           // that were answered
	news   chan struct{} // the count has changed

	mu      sync.Mutex // guards what follows
	started bool
	closed  bool
	stop    context.CancelFunc
	running sync.WaitGroup
}

// CountNodes has this process counted among those that share the server under
// Options.Prefix, and calls changed, if it is not nil, with how many these are,
// itself among them, when that is first known and whenever it changes. It is
// for what each process does by itself while the server is gone: see
// [github.com/stint-dev/stint/fallback.Store.SetNodes].
//
// All that share limits must call it, each with one store; whatever else beats
// under the same prefix in the same database counts too. It costs the server a
// call a second and process, and two goroutines here, which Close ends; changed
// is called from one, may take its time, and may not close the store. Further
// calls do nothing, as does the first with Options.Now.
//
// One that closes its store is taken out at once, as far as the deadline allows;
// one that is killed, paused or cut off, after five seconds. The others take the
// lower number about five seconds later, and a higher one within two. While the
// server fails the last number stands. In a rolling deploy old and new processes
// count together.
func (s *Store) CountNodes(changed func(nodes int)) {
	h := &s.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.closed || s.now != nil {
		return
	}
	h.started, h.node, h.news = true, rand.Text(), make(chan struct{}, 1)
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.running.Go(func() { s.beat(ctx) })
	if changed != nil {
		h.running.Go(func() { h.notify(ctx, changed) })
	}
}

// Nodes returns how many processes share the server, as last counted; 0 until
// [Store.CountNodes] has had an answer.
func (s *Store) Nodes() int { return int(s.heart.nodes.Load()) }

// beat counts until ctx ends.
func (s *Store) beat(ctx context.Context) {
	for {
		if n, err := s.count(ctx, beatLife); err == nil {
			s.heart.take(max(n, -n))
		}
		pause := time.NewTimer(beatEvery*3/4 + randv2.N(beatEvery/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// count runs the script's part heartbeat.lua: this process counts for so long
// from now, not at all if that is 0. A count below 0 means that many, and that the
// server did not know this process.
func (s *Store) count(ctx context.Context, life time.Duration) (int64, error) {
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	key := s.names.nodes()
	s.calls.Add(1)
	r := s.callDetached(within, s.nodeOf(s.region(key)), []string{key}, []string{"H", s.heart.node, number(life.Microseconds())})
	if r.err != nil {
		return 0, classify(r.err)
	}
	n, ok := r.value.(int64)
	if !ok {
		return 0, unexpected(r.value)
	}
	return n, nil
}

// take takes in a count: the most of the last few.
func (h *heart) take(n int64) {
	h.recent[h.beats%beatsHeld] = n
	h.beats++
	for _, other := range h.recent {
		n = max(n, other)
	}
	if h.nodes.Swap(n) != n {
		select {
		case h.news <- struct{}{}:
		default: // it has been said
		}
	}
}

// notify calls changed with each count, or the last of several, until ctx ends. It
// does not keep the heart from beating, however long that takes.
func (h *heart) notify(ctx context.Context, changed func(int)) {
	last := int64(0)
	for {
		select {
		case <-h.news:
		case <-ctx.Done():
			return
		}
		if n := h.nodes.Load(); n != last {
			last = n
			changed(int(n))
		}
	}
}

// fallSilent ends the heartbeat, and takes this process out of the count. It
// may be called again.
func (s *Store) fallSilent() {
	h := &s.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started || h.closed {
		h.closed = true
		return
	}
	h.closed = true
	h.stop()
	h.running.Wait()
	_, _ = s.count(context.Background(), 0) // else it goes by itself
}
