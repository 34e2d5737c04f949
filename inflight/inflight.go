// Package inflight counts what runs at one moment: it is what holds keys to limits in
// flight, such as stint's "20 in flight". It takes units when a request begins and gives
// them back when it ends, and knows nothing of time but how long a request may wait.
//
// A [Room] is what limiters and policies use. Behind it are [Counts]: [NewMemory] makes
// those of one process; package redisstore has those that processes share.
package inflight

import (
	"context"
	"time"
)

// A Hold is units of a key under a limit, as one part of a request.
type Hold struct {
	// Name is what the count belongs to: that of the limit.
	Name string
	// Key is whose units are counted.
	Key string
	// Limit is the most units that may be in flight, Units how many the request
	// takes, at least 1.
	Limit, Units int64
	// Wait is how long the request may wait for room under this limit. The default
	// value, 0, is not at all.
	Wait time.Duration
	// Lease names units that are held for a time, TTL at most, and given back by that
	// name: the same for all holds of one call, and of no other. The default value, "",
	// is units that whoever took them gives back.
	Lease string
	TTL   time.Duration
	// Added says that the units were let in without the counts being asked, as Add has it:
	// other processes may not know of them yet.
	Added bool

	// Running is the answer: how many units are in flight after the decision. Denied
	// says that this limit has no room for the request.
	Running int64
	Denied  bool
}

// decide writes the answer where running units are in flight before the request.
func (h *Hold) decide(running int64) (fits bool) {
	h.Running, h.Denied = running, h.Units > h.Limit || running > h.Limit-h.Units
	return !h.Denied
}

// Counts are the units in flight by name and key. What Acquire takes for several holds it
// takes for all of them, or for none. No name has the same key twice in one call. They may
// be used from many goroutines at once.
type Counts interface {
	// Acquire takes the units where all holds have room, and says in each what it
	// answers. A denial writes nothing. The error means that nothing is held.
	Acquire(ctx context.Context, holds []Hold) (ok bool, err error)
	// Look says what Acquire would, and takes nothing.
	Look(ctx context.Context, holds []Hold) (ok bool, err error)
	// Add takes units whatever the limits say: those that other counts have let in. It
	// does not wait for anything.
	Add(holds []Hold)
	// Release gives back what one call of Acquire or Add took. It does not wait for anything.
	// Counts that processes share give back what has a Lease once, however often and in
	// whichever process they are told. What has a TTL and they do not know of yet, they do
	// not take later.
	Release(holds []Hold)
}
