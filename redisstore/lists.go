package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// A process that starts with new limits of a name does not know the former ones,
// whose states say what keys have used. So a record of each name in Redis says which
// lists of limits have been asked under it (lua/lists.lua). A process reads it before
// the first decision of a list, which notes that list, and then beside its decisions,
// for as long as it makes any.
const (
	listsOften = time.Minute    // until the record is read again
	listsSoon  = time.Second    // until it is, where it could not be
	listsStay  = 3 * listsOften // for which a list counts longer than its limits: it is noted anew meanwhile
	listsOlder = listsOften     // that the record may be of this list before it is written again
)

// listsScript is a small script beside the one that decides, as the record is in no
// request's way.
var listsScript, _ = assemble("lists")

// A list is limits that were bound together.
type list struct {
	name   string // what they are bound under
	limits []*limit
	due    atomic.Int64 // when the record is to be read, by moment

	answered atomic.Bool           // the server has, once: with the record, or with a refusal
	err      atomic.Pointer[error] // of the last reading, until then

	mu      sync.Mutex
	reading chan struct{} // closed when who reads it now is done; nil if nobody does
}

// text names the list in the record: segments have no colons.
func (r *list) text() string {
	segments := make([]string, len(r.limits))
	for i, l := range r.limits {
		segments[i] = l.segment
	}
	slices.Sort(segments)
	return strings.Join(segments, ":")
}

// life returns for how long any of its limits counts what is charged now.
func (r *list) life() (most time.Duration) {
	for _, l := range r.limits {
		if f := l.last.Load(); f != nil {
			most = max(most, f.longest)
		}
	}
	return most
}

// listsLost has all records read, and the lists noted, with their next decisions: a
// server may have lost them. Otherwise a process that starts with another list soon
// after would not learn of the lists that are in use.
func (s *Store) listsLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.lists {
		r.due.Store(math.MinInt64)
	}
}

// readLists has the records read that are due. Before the first decision of a list
// requests wait for that: what starts a limit afresh that another should have gone on
// with cannot be undone. Where the server refuses it, or another node of the cluster has
// it and does not answer, they go by what this process knows.
func (s *Store) readLists(ctx context.Context, parts []part) error {
	within, cancel := s.within(ctx)
	defer cancel()
	now := s.moment()
	for i := range parts {
		r := parts[i].limit.list.Load()
		if r == nil || r.due.Load() > now {
			continue
		}
		n, slot := s.nodeOfList(r)
		if !n.lets() {
			if !r.answered.Load() && n == s.nodeOf(s.region(parts[i].begin)) {
				return n.unavailable()
			}
			continue
		}
		done := s.readList(within, r)
		if done == nil || r.answered.Load() {
			continue
		}
		select {
		case <-done:
			if err := r.err.Load(); err != nil {
				return *err
			}
		case <-within.Done():
			err := s.where(n, fmt.Errorf("%w: waiting for the record of limits: %w", ErrNotExecuted, within.Err()))
			s.tally.ended(err)
			s.ended(n, healthAfter(ctx, err), slot, err)
			return err
		}
	}
	return nil
}

// nodeOfList returns the node that has a record, and the record's slot.
func (s *Store) nodeOfList(r *list) (*node, uint16) {
	slot := s.region(s.names.lists(r.name))
	return s.nodeOf(slot), slot
}

// readList has a record read beside the calls, or on a virtual clock at once. It
// returns what is closed when that is done; nil if there is nothing to wait for.
func (s *Store) readList(ctx context.Context, r *list) chan struct{} {
	r.mu.Lock()
	if r.reading != nil || r.due.Load() > s.moment() {
		defer r.mu.Unlock()
		return r.reading
	}
	done, due := make(chan struct{}), r.due.Load()
	r.reading = done
	r.mu.Unlock()
	read := func(ctx context.Context) {
		next := listsOften
		answered, err := s.recordList(ctx, r)
		if err != nil {
			next = listsSoon
		}
		if answered {
			r.answered.Store(true)
		}
		var failed *error
		if r.answered.Load() {
			r.due.CompareAndSwap(due, s.moment()+int64(next)) // it stays due if the record was lost meanwhile
		} else {
			err = uncharged(err)
			failed = &err
		}
		r.err.Store(failed)
		r.mu.Lock()
		r.reading = nil
		r.mu.Unlock()
		close(done)
	}
	if s.now != nil {
		read(ctx)
	} else if !s.background(read) {
		return nil // it is closed
	}
	return done
}

// recordList writes a list into the record of its name, and takes in what that says. It
// reports whether the server answered, be it with a refusal.
func (s *Store) recordList(ctx context.Context, r *list) (answered bool, err error) {
	life := r.life().Milliseconds() + listsStay.Milliseconds()
	key, args := s.names.lists(r.name), []string{r.text(), number(life), number(listsOlder.Milliseconds())}
	n, slot := s.nodeOfList(r)
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	reply, err := s.driver.Eval(within, listsScript, []string{key}, s.clock(args))
	err = s.where(n, classify(err))
	h := healthAfter(ctx, err)
	s.ended(n, h, slot, err)
	if err != nil {
		return h == healthGood || unserved(err), err
	}
	all, ok := reply.([]any)
	if !ok {
		return true, unexpected(reply)
	}
	former := make([][]string, 0, len(all))
	for _, one := range all {
		if text, _ := one.(string); text != "" {
			former = append(former, strings.Split(text, ":"))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.former[r.name] = former
	succeed(s.bound[r.name], former)
	return true, nil
}

// mostBefore is of how many limits of its name one may have taken the place.
const mostBefore = 4

// succeed notes which limits the limits of a name may have taken the place of: those
// that they were never bound together with, of lists in the record that which was
// asked last first, then of those that this process has bound the newest.
func succeed(all []*limit, former [][]string) {
	for _, l := range all[max(len(all)-16*mostBefore, 0):] {
		together := slices.Clone(l.together)
		for _, list := range former {
			if slices.Contains(list, l.segment) {
				together = append(together, list...)
			}
		}
		var args []string
		add := func(segment string) {
			if len(args) < mostBefore && !slices.Contains(together, segment) && !slices.Contains(args, segment) {
				args = append(args, segment)
			}
		}
		for _, list := range former {
			for _, segment := range list {
				add(segment)
			}
		}
		for i := len(all) - 1; i >= 0 && len(args) < mostBefore; i-- {
			add(all[i].segment)
		}
		if args == nil {
			l.before.Store(nil)
			continue
		}
		args = append([]string{"~", count(args)}, args...)
		l.before.Store(&args)
	}
}

// bindList notes limits that are bound together under a name. s.mu is held.
func (s *Store) bindList(name string, limits []*limit) {
	for _, l := range limits {
		for _, o := range limits {
			if !slices.Contains(l.together, o.segment) {
				l.together = append(l.together, o.segment)
			}
		}
	}
	r := &list{name: name, limits: limits}
	r.due.Store(math.MinInt64)
	id := name + ":" + r.text()
	if old := s.lists[id]; old != nil {
		r = old
	}
	s.lists[id] = r
	for _, l := range limits {
		l.list.Store(r)
	}
	succeed(s.bound[name], s.former[name])
}

// withFormer appends the limits that the records of names say and this process has
// not bound. They have no form.
func (s *Store) withFormer(parts []part, layers []stint.Layer) []part {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, layer := range layers {
		begin, end := s.names.place(layer.Key)
		for _, segment := range slices.Concat(s.former[layer.Bound.Name()]...) {
			known := func(p part) bool { return p.limit.segment == segment && p.begin == begin && p.end == end }
			if !slices.ContainsFunc(parts, known) {
				parts = append(parts, part{begin: begin, end: end, key: layer.Key, limit: &limit{segment: segment}})
			}
		}
	}
	return parts
}
