package redisstore

import (
	"context"
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
	listsPart  = 4              // of a request's time, one part is the most that it waits for the record
)

// listsScript is a small script beside the one that decides, as the record is in no
// request's way.
var listsScript, _ = assemble("lists")

// A list is limits that were bound together.
type list struct {
	name   string // what they are bound under
	limits []*limit
	due    atomic.Int64 // when the record is to be read, by clockOfLists
	known  atomic.Bool  // it has been

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

// clockOfLists goes on with the virtual clock, if there is one.
func (s *Store) clockOfLists() int64 {
	if s.now != nil {
		return s.now()
	}
	return int64(s.since())
}

// listsDue reports whether the record of the limits of some parts is to be read.
func (s *Store) listsDue(parts []part) bool {
	now := s.clockOfLists()
	return slices.ContainsFunc(parts, func(p part) bool {
		r := p.limit.list.Load()
		return r != nil && r.due.Load() <= now
	})
}

// ready does what comes before parts are asked: it reads the record of their names,
// and takes over old states.
func (s *Store) ready(ctx context.Context, parts []part) error {
	s.readLists(ctx, parts)
	return s.migrate(ctx, parts)
}

// readLists has the records read that are due. A request waits for one only before
// the first decision of a list, and not for long: where Redis does not answer in time,
// it goes by what this process knows.
func (s *Store) readLists(ctx context.Context, parts []part) {
	now := s.clockOfLists()
	var first []chan struct{}
	for i := range parts {
		if r := parts[i].limit.list.Load(); r != nil && r.due.Load() <= now {
			if done := s.readList(ctx, r); done != nil && !r.known.Load() {
				first = append(first, done)
			}
		}
	}
	if first == nil {
		return
	}
	most := s.timeout
	if by, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(by))
	}
	within, cancel := context.WithTimeout(ctx, most/listsPart)
	defer cancel()
	for _, done := range first {
		select {
		case <-done:
		case <-within.Done():
			return
		}
	}
}

// readList has a record read beside the calls, or on a virtual clock at once. It
// returns what is closed when that is done; nil if it is done.
func (s *Store) readList(ctx context.Context, r *list) chan struct{} {
	r.mu.Lock()
	if r.reading != nil || r.due.Load() > s.clockOfLists() {
		defer r.mu.Unlock()
		return r.reading
	}
	done := make(chan struct{})
	r.reading = done
	r.mu.Unlock()
	read := func(ctx context.Context) {
		err := s.askList(ctx, r)
		next := listsOften
		if err != nil {
			next = listsSoon
		}
		r.due.Store(s.clockOfLists() + int64(next))
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

// askList notes a list in the record of its name, and takes in what that says.
func (s *Store) askList(ctx context.Context, r *list) error {
	life := r.life().Milliseconds() + listsStay.Milliseconds()
	key, args := s.names.lists(r.name), []string{r.text(), number(life), number(listsOlder.Milliseconds())}
	if n := s.nodeOf(s.region(key)); !n.lets() {
		return n.unavailable()
	}
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	reply, err := s.driver.Eval(within, listsScript, []string{key}, s.clock(args))
	if err != nil {
		return classify(err)
	}
	all, ok := reply.([]any)
	if !ok {
		return unexpected(reply)
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
	r.known.Store(true)
	return nil
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
