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

// Requests that come while some calls are on their way wait for a call to return, and are
// then sent together: the more share a call, the less the server and this process spend
// on each. Each request is decided as if it had come alone, and has its own answer. With
// few callers no request waits. No request waits for long: if calls take too long, the
// waiting requests go as one more call.
const (
	maxInFlight = 2    // calls on their way before requests wait
	maxBatch    = 64   // requests in a call: the server does nothing else meanwhile
	bulk        = 1000 // a request counts as one more for so many entries of logs
	waitPart    = 32   // a request waits for one waitPart-th of the deadline at most
	mostYields  = 3    // yields in a row without a new request, before a call leaves
	few         = 8    // to a node of a cluster, a second call leaves while fewer requests are on their way
)

// A batcher collects requests whose keys may be in one call.
type batcher struct {
	mu       sync.Mutex
	inFlight int            // calls on their way
	away     int            // requests in these calls
	queue    []*pendingCall // requests that wait; empty while no call is on its way
	watched  bool           // a timer is set for requests that wait too long
	oneOf    bool           // the requests are for a node of a cluster
}

// lets reports whether a call may leave while others are on their way; calls is the most at
// once. The lock is held.
func (b *batcher) lets(others, calls int) bool {
	return others < calls && (others == 0 || !b.oneOf || b.away < few || len(b.queue) >= maxBatch)
}

// A batcherOf says which requests share calls: those for one place, by the general path
// of the script (long) or by its fast path.
type batcherOf struct {
	place
	long bool
}

// batchers are the batchers of a store: one for each path, and in a cluster one for each
// path and each node or slot that was asked for.
type batchers struct {
	short, long batcher // of a server that is no cluster

	mu   sync.Mutex
	slot map[batcherOf]*batcher
}

// of returns the batcher of a place and a path; the zero place is a server that is no cluster.
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
	size       int // how many requests it counts as; see bulk
	since, by  time.Time
	state      atomic.Int32
	done       chan struct{} // receives a value when reply and err are set
	reply      any           // if it and err are nil, the request was not decided and must be sent alone
	err        error
}

// States of a pending call.
const (
	callWaits int32 = iota
	callSent
	callLeft // its caller is gone
)

var pendingCalls = sync.Pool{New: func() any { return &pendingCall{done: make(chan struct{}, 1)} }}

// batched decides a request, alone or in a batch. Its states may hold the given number of
// log entries. The arguments are without the clock.
func (s *Store) batched(ctx context.Context, long bool, entries int64, keys, args []string, read reader) error {
	slot := s.region(keys[0])
	where := place{}
	if s.driver.Cluster() {
		where = s.placeOf(slot)
	}
	b := s.batchers.of(batcherOf{where, long})
	if s.nodeOf(slot).trouble.Load() {
		return s.eval(ctx, keys, s.clock(args), read)
	}
	b.mu.Lock()
	if b.lets(b.inFlight, s.inFlight) {
		b.inFlight++
		b.away++
		b.mu.Unlock()
		defer s.callDone(b, long)
		return s.eval(ctx, keys, s.clock(args), read)
	}
	r := pendingCalls.Get().(*pendingCall)
	r.keys, r.args, r.size, r.since = keys, args, 1+int(entries/bulk), time.Now()
	r.by = r.since.Add(s.timeout)
	r.state.Store(callWaits)
	b.queue = append(b.queue, r)
	if b.lets(b.inFlight, s.inFlight) { // with this request, the batch may be full
		b.inFlight++
		go s.sendAll(b, nil, long)
	}
	if !b.watched {
		b.watched = true
		time.AfterFunc(s.timeout/waitPart, func() { s.watch(b, long) })
	}
	b.mu.Unlock()
	return s.awaitReply(ctx, r, read)
}

// awaitReply waits for a request's answer. A caller's deadline ends only its own wait: the
// requests in the same call wait on.
func (s *Store) awaitReply(ctx context.Context, r *pendingCall, read reader) error {
	if by := s.until(ctx); by.Before(r.by) {
		var cancel context.CancelFunc
		ctx, cancel = s.by(ctx, by)
		defer cancel()
	}
	select {
	case <-r.done:
	case <-ctx.Done(): // the goroutine that sends r still writes to it
		if r.state.CompareAndSwap(callWaits, callLeft) {
			return fmt.Errorf("%w: waiting for calls before it: %w", ErrNotExecuted, ctx.Err())
		}
		return fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err())
	}
	reply, err, keys, args, by := r.reply, r.err, r.keys, r.args, r.by
	r.keys, r.args, r.reply, r.err = nil, nil, nil, nil
	pendingCalls.Put(r)
	switch {
	case err != nil:
		return err
	case reply == nil:
		return s.evalBy(ctx, by, keys, s.clock(args), read)
	}
	return read(reply)
}

// watch sends requests that have waited too long, as one more call.
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

// waitsLong reports whether the first request in the queue has waited for d.
func (b *batcher) waitsLong(d time.Duration) bool {
	return len(b.queue) > 0 && time.Since(b.queue[0].since) >= d
}

// callDone notes that a call of a single request has returned. Waiting requests go in its
// place.
func (s *Store) callDone(b *batcher, long bool) {
	if b.leaves() {
		go s.sendAll(b, nil, long)
	}
}

// leaves reports whether requests wait to go in the place of a call of a single request.
// If none do, it gives up the place.
func (b *batcher) leaves() (wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away--
	if len(b.queue) == 0 {
		b.inFlight--
	}
	return len(b.queue) > 0
}

// sendAll sends a group, and then the requests that have come meanwhile.
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

// gather lets callers that were just answered ask again, so that the next call does not
// leave with the first of them alone. It yields until the queue has its share of all
// requests (one calls-th), or no more come.
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

// next returns the requests to send in the place of a call that has returned and answered
// the given number. If there are none, or enough calls are on their way, it returns nil
// and gives up the place.
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
	by := group[0].by // the first has waited longest
	keys, args := s.joined(group, long)
	if len(group) > 1 {
		s.tally.together.Add(uint64(len(group)))
		s.tally.batches.Add(1)
	}
	var list []any
	err := s.evalBy(context.Background(), by, keys, args, func(reply any) error {
		if list, _ = reply.([]any); len(list) != len(group) {
			return unexpected(reply)
		}
		return nil
	})
	switch {
	case word(err) == "CROSSSLOT", word(err) == "TRYAGAIN", s.parted(err), unserved(err) && !oneSlot(keys), len(group) > 1 && (deniesKey(err) || word(err) == "OOM"):
		// The call did not run, because of one of its keys or for lack of memory: the
		// server is a cluster after all, a slot is moving or not served, or the user may
		// not use a key. Each request alone may still run.
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

// single reports whether requests of the fast path take from one key each and differ only
// in that key, which is the form that lua/fastpath_single.lua reads.
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

// several writes requests of the general path in the form that lua/batch.lua reads.
func several(group []*pendingCall, head []string) (keys, args []string) {
	args = head
	for _, r := range group {
		keys = append(keys, r.keys...)
		args = append(append(args, count(r.keys), count(r.args)), r.args...)
	}
	return keys, args
}

// alike sorts requests of the fast path and writes them in the form that lua/fastpath.lua
// reads.
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

// compare orders requests so that those that differ only in their keys are adjacent.
func (r *pendingCall) compare(other *pendingCall) int {
	return cmp.Or(cmp.Compare(len(r.keys), len(other.keys)), slices.Compare(r.args, other.args))
}
