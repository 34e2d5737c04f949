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
	beatEvery = time.Second     // give or take a quarter, so that processes do not beat together
	beatLife  = 5 * time.Second // how long a process counts after its last beat
	beatsHeld = 5               // a lower count is taken after so many lower answers in a row

	rulesEvery = 30 * time.Second // how often a process says which rules it has; they count for three times that
	rulesApart = 5                // other rules are reported after so many answers in a row that name them
)

// A heart counts the processes that share a store. Each writes itself into one sorted set
// about once a second, and reads how many there are. A beat may take a second, and the
// breaker does not stop it, so that processes know of each other even if they are far from
// the server, or started while it was slow.
//
// To count too many is safe, since each process then holds less of a limit than it might.
// So a higher count is taken at once, and a lower one after some beats: a server that
// restarted without its memory, or whose clock was stepped forward, knows no process until
// each has beaten again. A beat that fails changes nothing.
type heart struct {
	node   string       // a random name, which says nothing of the machine
	nodes  atomic.Int64 // the count in use; 0 before the first answer
	recent [beatsHeld]int64
	beats  int           // how many were answered
	news   chan struct{} // receives when the count has changed

	mu         sync.Mutex // guards what follows
	started    bool
	closed     bool
	ctx        context.Context // ends its goroutines
	stop       context.CancelFunc
	rulesEvery time.Duration // for tests; 0 is the constant
	running    sync.WaitGroup
}

// CountNodes counts this process among those that share the server under Options.Prefix.
// It calls changed, if that is not nil, with their number, this process included, when it
// is first known and whenever it changes. The number is for what each process decides by
// itself while the server is away: see
// [github.com/stint-dev/stint/fallback.Store.SetNodes].
//
// Every process that shares limits must call it, with one store. Every other store that
// calls it under the same prefix in the same database counts too. It costs the server a
// call a second for each process, and this process two goroutines, which Close ends. One of
// them calls changed, which may take its time but must not close the store. Further calls
// do nothing, and neither does the first with Options.Now.
//
// A process that closes its store leaves the count at once, if the server answers in time;
// one that is killed, paused or cut off leaves it after five seconds. The others take the
// lower number about five seconds later, and a higher one within two. While the server
// fails, the last number stays. In a rolling deploy old and new processes count together.
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

// Nodes returns the last count of processes that share the server; 0 until
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

// CompareRules tells the other processes which rules this one decides by. rules returns a
// short text such as a hash, or "" if there are none. It calls differ with true once others
// under the same Options.Prefix have had other rules for more than two minutes, and with
// false when all agree again. It detects two applications that share a prefix by mistake, and
// with it limits and the count of processes; a reload or a rolling deployment is over sooner.
// Call it after [Store.CountNodes], or it does nothing. It costs the server two calls a minute.
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
				case err != nil: // an error says nothing of the rules
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

// count runs the script's part heartbeat.lua: node, a process or its rules, counts for life
// from now, and leaves the count if life is 0. A negative count says that the server did not
// know node before.
func (s *Store) count(ctx context.Context, key, node string, life time.Duration) (n int64, err error) {
	defer func() {
		if err == nil {
			s.tally.beats.Add(1)
		} else {
			s.tally.ended(err)
		}
	}()
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	s.calls.Add(1)
	r := s.callDetached(within, s.nodeOf(s.region(key)), []string{key}, []string{"H", node, number(life.Microseconds())})
	if r.err != nil {
		return 0, classify(r.err)
	}
	n, ok := r.value.(int64)
	if !ok {
		err = unexpected(r.value)
	}
	return n, err
}

// take takes in a count. The count in use is the greatest of the last few.
func (h *heart) take(n int64) {
	h.recent[h.beats%beatsHeld] = n
	h.beats++
	for _, other := range h.recent {
		n = max(n, other)
	}
	if h.nodes.Swap(n) != n {
		select {
		case h.news <- struct{}{}:
		default: // notify has not read the last one yet
		}
	}
}

// notify calls changed with each new count, or the last of several, until ctx ends. It has
// a goroutine of its own, so that a slow changed does not delay beats.
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

// fallSilent ends the heartbeat, and takes this process out of the count. Further calls do
// nothing.
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
	_, _ = s.count(context.Background(), s.names.nodes(), h.node, 0) // if it fails, beatLife ends the entry
}
