package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Requests that come while some calls are on their way wait for one of these to
// return, and are then sent in one call: the more there are, the less the server
// and this process spend on each. Each has its own answer, and is decided as if it
// had come alone. With few callers no request waits, and none waits for long: where
// calls take their time, those that wait go as a call more.
const (
	maxInFlight = 2    // calls on their way before requests wait
	maxBatch    = 64   // requests in a call: the server does nothing else meanwhile
	bulk        = 1000 // entries of logs that count as one request more
	waitPart    = 32   // of the deadline, one part is the most that a request waits
	mostYields  = 3    // in a row, without a new request, before a call leaves
	few         = 8    // requests on their way to a node of a cluster, beside which another call leaves
)

// A batcher collects requests whose keys may be in one call.
type batcher struct {
	mu       sync.Mutex
	inFlight int            // calls on their way
	away     int            // requests in them
	queue    []*pendingCall // waiting; only while calls are on their way
	watched  bool           // a timer is set for those that wait for long
	oneOf    bool           // of the nodes of a cluster
}

// lets reports whether a call may leave beside so many others. The lock is held.
func (b *batcher) lets(others, calls int) bool {
	return others < calls && (others == 0 || !b.oneOf || b.away < few || len(b.queue) >= maxBatch)
}

// A batcherOf says what requests are collected: those for one place, and the long
// way of the script or the short.
type batcherOf struct {
	place
	long bool
}

// batchers are those of either way: one for a server that is no cluster, and one
// for each node or slot of a cluster that has been asked for.
type batchers struct {
	short, long batcher // of slot 0

	mu   sync.Mutex
	slot map[batcherOf]*batcher
}

// of returns the batcher of a place; of none, that of the whole server.
func (all *batchers) of(which batcherOf) *batcher {
	switch which {
	case batcherOf{}:
		return &all.short
	case batcherOf{long: true}:
		return &all.long
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	b := all.slot[which]
	if b == nil {
		if all.slot == nil {
			all.slot = make(map[batcherOf]*batcher)
		}
		b = &batcher{oneOf: which.node != nil}
		all.slot[which] = b
	}
	return b
}

// A pendingCall is a request that waits to be sent with others.
type pendingCall struct {
	keys, args []string
	size       int // as many requests as it counts for
	since, by  time.Time
	state      atomic.Int32
	done       chan struct{} // is sent to when reply and err are there
	reply      any           // nil without err: it was not decided, and has to go alone
	err        error
}

// States of a pending call.
const (
	callWaits int32 = iota
	callSent
	callLeft // its caller is gone
)

var pendingCalls = sync.Pool{New: func() any { return &pendingCall{done: make(chan struct{}, 1)} }}

// batched decides the request that the keys and arguments describe, alone or in a
// batch; its states may hold the given number of entries. The clock is not among the
// arguments.
func (s *Store) batched(ctx context.Context, long bool, entries int64, keys, args []string) (any, error) {
	slot := s.region(keys[0])
	where := place{}
	if s.driver.Cluster() {
		where = s.placeOf(slot)
	}
	b := s.batchers.of(batcherOf{where, long})
	if s.nodeOf(slot).trouble.Load() {
		return s.eval(ctx, keys, s.clock(args))
	}
	b.mu.Lock()
	if b.lets(b.inFlight, s.inFlight) {
		b.inFlight++
		b.away++
		b.mu.Unlock()
		defer s.callDone(b, long)
		return s.eval(ctx, keys, s.clock(args))
	}
	r := pendingCalls.Get().(*pendingCall)
	r.keys, r.args, r.size, r.since = keys, args, 1+int(entries/bulk), time.Now()
	r.by = r.since.Add(s.timeout)
	r.state.Store(callWaits)
	b.queue = append(b.queue, r)
	if b.lets(b.inFlight, s.inFlight) { // it is full by now
		b.inFlight++
		go s.sendAll(b, nil, long)
	}
	if !b.watched {
		b.watched = true
		time.AfterFunc(s.timeout/waitPart, func() { s.watch(b, long) })
	}
	b.mu.Unlock()
	return s.awaitReply(ctx, r)
}

// awaitReply waits for a request's answer. Those with which it is sent wait as long as they
// may, whatever its caller's deadline.
func (s *Store) awaitReply(ctx context.Context, r *pendingCall) (any, error) {
	if by := s.until(ctx); by.Before(r.by) {
		var cancel context.CancelFunc
		ctx, cancel = s.by(ctx, by)
		defer cancel()
	}
	select {
	case <-r.done:
	case <-ctx.Done(): // the goroutine that has r finishes it
		if r.state.CompareAndSwap(callWaits, callLeft) {
			return nil, fmt.Errorf("%w: waiting for calls before it: %w", ErrNotExecuted, ctx.Err())
		}
		return nil, fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err())
	}
	reply, err, keys, args, by := r.reply, r.err, r.keys, r.args, r.by
	r.keys, r.args, r.reply, r.err = nil, nil, nil, nil
	pendingCalls.Put(r)
	if err == nil && reply == nil {
		return s.evalBy(ctx, by, keys, s.clock(args))
	}
	return reply, err
}

// watch sends requests that have waited for long as a call more.
func (s *Store) watch(b *batcher, long bool) {
	b.mu.Lock()
	b.watched = false
	var group []*pendingCall
	if b.waitsLong(s.timeout / waitPart) {
		group = b.group()
	}
	if group != nil {
		b.inFlight++
	}
	if len(b.queue) > 0 {
		b.watched = true
		time.AfterFunc(s.timeout/waitPart, func() { s.watch(b, long) })
	}
	b.mu.Unlock()
	if group != nil {
		s.sendAll(b, group, long)
	}
}

// waitsLong reports whether the first that waits has done so for that long.
func (b *batcher) waitsLong(d time.Duration) bool {
	return len(b.queue) > 0 && time.Since(b.queue[0].since) >= d
}

// callDone says that a call of one has returned, in whose place those that wait may
// go.
func (s *Store) callDone(b *batcher, long bool) {
	if b.leaves() {
		go s.sendAll(b, nil, long)
	}
}

// leaves gives up the place of a call of one if none wait for it, and reports
// whether some do.
func (b *batcher) leaves() (wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away--
	if len(b.queue) == 0 {
		b.inFlight--
	}
	return len(b.queue) > 0
}

// sendAll sends a group, and then those that have come meanwhile.
func (s *Store) sendAll(b *batcher, group []*pendingCall, long bool) {
	for {
		if len(group) > 0 {
			s.send(group, long)
		}
		b.gather(s.inFlight)
		if group = b.next(s.inFlight, s.timeout/waitPart, len(group)); group == nil {
			return
		}
	}
}

// gather lets those come who have just been answered and ask again, so that the
// next call is not made for the first of them alone: until as many wait as is their
// part of all that are about when so many calls are on their way, or no more
// come.
func (b *batcher) gather(calls int) {
	for idle, before := 0, -1; idle < mostYields; idle++ {
		b.mu.Lock()
		waiting, all, leaves := len(b.queue), len(b.queue)+b.away, b.lets(b.inFlight-1, calls)
		b.mu.Unlock()
		if b.oneOf && (!leaves || waiting >= maxBatch) || !b.oneOf && waiting*calls >= all {
			return
		}
		if waiting > before {
			idle, before = 0, waiting
		}
		runtime.Gosched()
	}
}

// next returns the requests that are sent in the place of a call that has
// returned, which answered so many: nil if there are none, or if enough calls are
// on their way without it, and then the place is free.
func (b *batcher) next(calls int, patience time.Duration, answered int) []*pendingCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away -= answered
	if b.lets(b.inFlight-1, calls) || b.waitsLong(patience) {
		if group := b.group(); group != nil {
			return group
		}
	}
	b.inFlight--
	return nil
}

// group takes requests for one call from the queue. The lock is held.
func (b *batcher) group() (group []*pendingCall) {
	n, size := 0, 0
	for n < len(b.queue) && (len(group) == 0 || size+b.queue[n].size <= maxBatch) {
		r := b.queue[n]
		if r.state.CompareAndSwap(callWaits, callSent) {
			group, size = append(group, r), size+r.size
			b.away++
		}
		b.queue[n] = nil
		n++
	}
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return group
}

// send makes one call of several requests, and tells each its answer.
func (s *Store) send(group []*pendingCall, long bool) {
	by := group[0].by // of the one that has waited longest
	keys, args := s.joined(group, long)
	if len(group) > 1 {
		s.tally.together.Add(uint64(len(group)))
		s.tally.batches.Add(1)
	}
	reply, err := s.evalBy(context.Background(), by, keys, args)
	list, ok := reply.([]any)
	switch {
	case err == nil && (!ok || len(list) != len(group)):
		err = unexpected(reply)
	case word(err) == "CROSSSLOT", word(err) == "TRYAGAIN", s.parted(err), unserved(err) && !oneSlot(keys), len(group) > 1 && (deniesKey(err) || word(err) == "OOM"):
		// of a cluster that was not known to be one, or of a slot that is moving or that
		// nobody serves, or of a key that the user may not use, or without memory for the
		// first that would write: it was not run, and each by itself may be
		list, err = make([]any, len(group)), nil
	}
	for i, r := range group {
		if r.err = err; err == nil {
			r.reply = list[i]
		}
		r.done <- struct{}{}
	}
}

// joined returns several requests as one call.
func (s *Store) joined(group []*pendingCall, long bool) (keys, args []string) {
	if !long && single(group) {
		keys = make([]string, len(group))
		for i, r := range group {
			keys[i] = r.keys[0]
		}
		args = append(append(make([]string, 0, 7), "R"), group[0].args[1:]...)
		return keys, s.clock(args)
	}
	head := []string{"B", ""}
	if now := s.clock(nil); now != nil {
		head[1] = now[0]
	}
	if long {
		head[0] = "M"
		return several(group, head)
	}
	return alike(group, head)
}

// single reports whether requests of the fast path take from one bucket each and
// differ only in the key, as lua/fastpath_single.lua wants them.
func single(group []*pendingCall) bool {
	first := group[0]
	if len(first.keys) != 1 || first.args[0] != "T" {
		return false
	}
	for _, r := range group[1:] {
		if len(r.keys) != 1 || !slices.Equal(r.args, first.args) {
			return false
		}
	}
	return true
}

// several appends requests of the general path, as lua/batch.lua wants them.
func several(group []*pendingCall, head []string) (keys, args []string) {
	args = head
	for _, r := range group {
		keys = append(keys, r.keys...)
		args = append(append(args, count(r.keys), count(r.args)), r.args...)
	}
	return keys, args
}

// alike sorts requests of the fast path and appends them, as lua/fastpath.lua wants
// them.
func alike(group []*pendingCall, head []string) (keys, args []string) {
	slices.SortStableFunc(group, (*pendingCall).compare)
	args = head
	for from, i := 0, 1; i <= len(group); i++ {
		keys = append(keys, group[i-1].keys...)
		if i == len(group) || group[from].compare(group[i]) != 0 {
			args = append(args, number(int64(i-from)), count(group[from].keys))
			args = append(args, group[from].args...)
			from = i
		}
	}
	return keys, args
}

func count(list []string) string { return number(int64(len(list))) }

// compare orders requests so that those which differ only in their keys follow
// one another.
func (r *pendingCall) compare(other *pendingCall) int {
	return cmp.Or(cmp.Compare(len(r.keys), len(other.keys)), slices.Compare(r.args, other.args))
}
