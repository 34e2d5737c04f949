package redisstore

import (
	"cmp"
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

	rulesEvery = 30 * time.Second // how often a process says which rules it has; they count for three times that
	rulesApart = 5                // answers in a row by which there are others until that is said
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

	mu         sync.Mutex // guards what follows
	started    bool
	closed     bool
	ctx        context.Context // of its goroutines
	stop       context.CancelFunc
	rulesEvery time.Duration // for tests; 0 is the constant
	running    sync.WaitGroup
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
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.running.Go(func() { s.beat(h.ctx) })
	if changed != nil {
		h.running.Go(func() { h.notify(h.ctx, changed) })
	}
}

// Nodes returns how many processes share the server, as last counted; 0 until
// [Store.CountNodes] has had an answer.
func (s *Store) Nodes() int { return int(s.heart.nodes.Load()) }

// beat counts until ctx ends.
func (s *Store) beat(ctx context.Context) {
	for {
		if n, err := s.count(ctx, s.names.nodes(), s.heart.node, beatLife); err == nil {
			s.heart.take(max(n, -n))
		}
		if !pause(ctx, beatEvery) {
			return
		}
	}
}

// pause waits for a while, give or take a quarter, and reports whether ctx goes on.
func pause(ctx context.Context, about time.Duration) bool {
	pause := time.NewTimer(about*3/4 + randv2.N(about/2))
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// CompareRules has this process say which rules it decides by, in a short text such as a
// hash, empty while it has none. It calls differ with true once others under the same
// Options.Prefix have had other rules for more than two minutes, and with false when all
// agree again. So two applications that share a prefix by mistake, and with it their limits
// and the count of processes, are told; a reload and a rolling deployment are over sooner.
// It comes after [Store.CountNodes], without which it does nothing, and costs the server two
// calls a minute.
func (s *Store) CompareRules(rules func() string, differ func(bool)) {
	h := &s.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started || h.closed {
		return
	}
	h.running.Go(func() {
		every := cmp.Or(h.rulesEvery, rulesEvery)
		apart, said := 0, false
		for {
			if text := rules(); text != "" {
				n, err := s.count(h.ctx, s.names.rules(), text, 3*every)
				switch {
				case err != nil: // it says nothing
				case max(n, -n) > 1:
					apart++
				default:
					apart = 0
				}
				if now := apart >= rulesApart; now != said && (now || apart == 0) {
					said = now
					differ(now)
				}
			}
			if !pause(h.ctx, every) {
				return
			}
		}
	})
}

// count runs the script's part heartbeat.lua: a process, or its rules, counts for so long
// from now, not at all if that is 0. A count below 0 means that many, and that the
// server did not know it.
func (s *Store) count(ctx context.Context, key, node string, life time.Duration) (int64, error) {
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	s.calls.Add(1)
	r := s.callDetached(within, s.nodeOf(s.region(key)), []string{key}, []string{"H", node, number(life.Microseconds())})
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
	_, _ = s.count(context.Background(), s.names.nodes(), h.node, 0) // else it goes by itself
}
