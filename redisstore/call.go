package redisstore

import (
	"context"
	"fmt"
	"time"
)

// Calls that wait for something other than an answer (a connection to be made,
// the topology of a cluster, room in a queue) may not end when their context
// does: that is up to the client library. While that is likely they are made
// from a goroutine of their own, and left behind at the deadline.
const (
	mostDirect = 512         // calls on their way at once, beyond which a library's queue may be full
	mostCalls  = 16384       // on their way at once, with those that were left behind
	patience   = time.Second // for what is left behind: connections take longer than calls
)

// A callEnd is what came of a call.
type callEnd struct {
	value any
	err   error
}

// region returns the slot of a key in a cluster, and 0 where all keys are in one
// server.
func (s *Store) region(key string) uint16 {
	if s.driver.Cluster() {
		return slotOf(key)
	}
	return 0
}

// guarded makes a call in front of which the breaker of the keys' node stands. Its
// answer comes when ctx ends at the latest. [Stats] counts how it ended.
func (s *Store) guarded(parent, ctx context.Context, keys, args []string) (any, error) {
	value, err := s.admitted(parent, ctx, keys, args)
	s.tally.ended(err)
	return value, err
}

// admitted makes a call if its time is not up, the breaker lets it in, and there
// is room.
func (s *Store) admitted(parent, ctx context.Context, keys, args []string) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	slot := s.region(keys[0])
	n := s.nodeOf(slot)
	if !n.lets() {
		return nil, ErrUnavailable
	}
	begun := s.since()
	by, _ := ctx.Deadline() // there always is one
	hurried := time.Until(by) < s.timeout/2
	calls := s.calls.Add(1)
	if calls > mostCalls {
		s.calls.Add(-1)
		return nil, ErrUnavailable
	}
	var r callEnd
	if calls <= mostDirect && !n.trouble.Load() {
		r.value, r.err = s.run(ctx, n, keys, args)
		s.calls.Add(-1)
	} else {
		r = s.patiently(ctx, n, keys, args)
	}
	r.err = classify(r.err)
	s.tally.lasted(s.since() - begun)
	h := says(parent, r.err)
	if h == healthBad && hurried && word(r.err) == "" { // other calls of its request have used up the time
		h = healthUnknown
	}
	s.ended(n, h, slot)
	return r.value, r.err
}

// patiently makes a call, one of s.calls, that goes on for a while when its caller
// is gone, so that what it waits for is there for the next.
func (s *Store) patiently(ctx context.Context, n *node, keys, args []string) callEnd {
	done := make(chan callEnd, 1)
	go func() {
		longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(patience, s.timeout))
		defer cancel()
		defer s.calls.Add(-1)
		value, err := s.run(longer, n, keys, args)
		done <- callEnd{value, err}
	}()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return callEnd{err: ctx.Err()}
	}
}

// since is the store's monotonic clock.
func (s *Store) since() time.Duration { return time.Since(s.born) }
