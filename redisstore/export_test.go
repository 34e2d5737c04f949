package redisstore

import (
	"time"

	"github.com/redis/rueidis"
)

// NewDriver is the driver on a client.
func NewDriver(client rueidis.Client) Driver { return rueidisDriver{client} }

// Abreast is how many calls are on their way before requests wait, MostTogether
// how many of these travel as one.
const Abreast, MostTogether = abreast, mostTogether

// Waiting returns how many requests wait to travel together, the long way or the
// short.
func (s *Store) Waiting(long bool) int {
	b := s.batchers.of(batcherOf{long: long})
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// WholeNumbers is the script's arithmetic, for a test to run by itself.
func WholeNumbers() string {
	source, _ := assemble("whole")
	return source
}

// Source and SHA are the script.
var Source, SHA = source, sha

// Slot and Filler are those of a cluster.
var Slot, Filler = slotOf, filler

// State returns the key of the state of a client's key under a limit.
func State(o Options, key, limit string) string {
	n := names{prefix: o.Prefix, tag: o.Tag, secret: o.HashSecret}
	begin, end := n.place(key)
	return begin + escape(limit) + end
}

// Breaker is what stands in front of calls, for a test with times of its own.
type Breaker = breaker

// Enter reports whether a call may be made, and whether alone.
func (b *breaker) Enter(now time.Duration) (may, alone bool) {
	by := b.enter(now)
	return by != wayClosed, by == wayProbe
}

// Leave says how a call ended: good, bad, or neither.
func (b *breaker) Leave(now time.Duration, alone, good, bad bool) {
	by, h := wayCalls, healthUnknown
	if alone {
		by = wayProbe
	}
	switch {
	case good:
		h = healthGood
	case bad:
		h = healthBad
	}
	b.leave(now, by, h)
}
