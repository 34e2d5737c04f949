// Package inflight counts what runs at one moment, for limits in flight such as stint's
// "20 in flight". A request takes units when it begins and gives them back when it ends;
// time plays no part.
//
// Limiters and policies use a [Room]. Behind it are [Counts]: [NewMemory] makes the counts
// of one process; package redisstore has counts that processes share.
package inflight

import (
	"context"
	"time"
)

// A Hold is units of a key under a limit, as one part of a request.
type Hold struct {
	// Name is the name of the limit. Keys are counted by name.
	Name string
	// Key is whose units are counted.
	Key string
	// Limit is the most units that may be in flight, Units how many the request
	// takes, at least 1.
	Limit, Units int64
	// Lease, if set, names units that are given back by that name, or else after TTL. It
	// is the same for all holds of one call, and differs from that of any other call. The
	// default value, "", is units that the caller who took them gives back.
	Lease string
	TTL   time.Duration
	// Added says that the units were let in by Add, without asking the counts: other
	// processes may not know of them yet.
	Added bool

	// Running is the answer: how many units are in flight after the decision, of Of: that is
	// Limit, or a process's share of it, or 0 if this limit was not asked. Denied says
	// that this limit has no room for the request, Vain that it can never have room.
	Running, Of  int64
	Denied, Vain bool
}

// Left returns how many more units there is room for.
func (h *Hold) Left() int64 { return max(h.Of-h.Running, 0) }

// decide writes the answer, given that running units are in flight before the request.
func (h *Hold) decide(running int64) (fits bool) {
	h.Running, h.Of, h.Denied = running, h.Limit, h.Units > h.Limit || running > h.Limit-h.Units
	return !h.Denied
}

// Counts are the units in flight by name and key. Acquire takes the units of all holds of
// a call, or of none. A call has no name and key twice. Counts may be used from many
// goroutines at once.
type Counts interface {
	// Most returns the greatest limit that the counts hold keys to.
	Most() int64
	// Acquire takes the units if all holds have room, and writes to each hold its
	// answer. After a denial or an error nothing is held.
	Acquire(ctx context.Context, holds []Hold) (ok bool, err error)
	// Look answers as Acquire would, takes nothing, and says how many units run without it.
	Look(ctx context.Context, holds []Hold) (ok bool, err error)
	// Add takes units whatever the limits say: other counts have let them in. It does not
	// block.
	Add(holds []Hold)
	// Release gives back what one call of Acquire or Add took. It does not block. Counts
	// that processes share give units with a Lease back once, however often Release is
	// called, in any process. If they do not know units with a TTL yet, since the call that
	// took them is still under way, they do not take them later.
	Release(holds []Hold)
}
