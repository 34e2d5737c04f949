package httplimit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// lines are the requests that wait under the leaky_queues of a policy, a line
// for each key of each. A request that gives up frees its place: those behind
// it move up, and the last place goes back to the store.
type lines struct {
	// deciding is held for reading from before a decision until the request
	// stands in line, and for writing while a place is given back: what was
	// decided in between would get a place that somebody else has.
	deciding sync.RWMutex
	known    atomic.Pointer[queueing]

	mu    sync.Mutex // guards what follows, and every turn
	byKey map[lineKey][]*turn
}

// queueing is whether requests may have to wait under a policy.
type queueing struct {
	policy *policy.Policy
	queues bool
}

// needed reports whether requests may have to wait under the policy. It looks
// through the rules once for each.
func (ls *lines) needed(p *policy.Policy) bool {
	known := ls.known.Load()
	if known == nil || known.policy != p {
		known = &queueing{p, queues(p.Rules())}
		ls.known.Store(known)
	}
	return known.queues
}

// queues reports whether a leaky_queue is among the limits that rules enforce.
func queues(r *policy.Rules) bool {
	for _, name := range r.Names() {
		for _, l := range r.Layers(name) {
			if !l.Shadow && l.Action == "" && l.Limit.Kind() == stint.LeakyQueue {
				return true
			}
		}
	}
	return false
}

// A lineKey is one key of one leaky_queue.
type lineKey struct{ limit, key string }

// A turn is one request that waits.
type turn struct {
	lines []lineKey
	queue stint.Limit // of the first line
	cost  int64       // there
	start time.Time
	moved chan struct{} // the start is earlier now; never blocks whoever sends
}

// join makes a turn for a request that was let in and must wait.
func (ls *lines) join(c *call, start time.Time) *turn {
	t := &turn{start: start, moved: make(chan struct{}, 1)}
	for i := range c.result.Rules {
		one := &c.result.Rules[i]
		if one.Shadow || one.Action != "" || one.Limit.Kind() != stint.LeakyQueue {
			continue
		}
		if t.lines == nil {
			t.queue, t.cost = one.Limit, one.Cost
		}
		t.lines = append(t.lines, lineKey{one.Limit.Name(), c.result.Key(i)})
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byKey == nil {
		ls.byKey = make(map[lineKey][]*turn)
	}
	for _, k := range t.lines {
		line := ls.byKey[k]
		at := len(line)
		for at > 0 && line[at-1].start.After(start) {
			at--
		}
		ls.byKey[k] = slices.Insert(line, at, t)
	}
	return t
}

// due returns how long the turn has still to wait; if it has not, it has left
// its lines.
func (ls *lines) due(t *turn) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	wait := time.Until(t.start)
	if wait <= 0 {
		ls.remove(t)
	}
	return wait
}

// leave takes out a turn that gives up, and moves those behind it up. It
// reports whether its cost may go back to the store: not if a request waits in
// several lines at once, since its place in one cannot move by itself. Then the
// place stays empty, which is strict.
func (ls *lines) leave(t *turn) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	alone, free := true, len(t.lines) == 1
	for _, k := range t.lines {
		for _, u := range ls.byKey[k] {
			alone = alone && u == t
			free = free && len(u.lines) == 1
		}
	}
	if free {
		t.moveUp(ls.byKey[t.lines[0]])
	}
	ls.remove(t)
	return alone || free
}

// moveUp gives those behind t the places before theirs. That is exact when all
// have its cost; else they start earlier by the time that its cost takes,
// rounded down so that nobody starts early.
func (t *turn) moveUp(line []*turn) {
	behind := line[slices.Index(line, t)+1:]
	same := !slices.ContainsFunc(behind, func(u *turn) bool { return u.cost != t.cost })
	place := t.start
	by := time.Duration(mulDiv(t.cost, int64(t.queue.Period()), t.queue.Count()) - 1)
	for _, u := range behind {
		if same {
			u.start, place = place, u.start
		} else {
			u.start = u.start.Add(-by)
		}
		select {
		case u.moved <- struct{}{}:
		default: // it will look anyway
		}
	}
}

func (ls *lines) remove(t *turn) {
	for _, k := range t.lines {
		line := slices.DeleteFunc(ls.byKey[k], func(u *turn) bool { return u == t })
		if len(line) == 0 {
			delete(ls.byKey, k)
		} else {
			ls.byKey[k] = line
		}
	}
}
