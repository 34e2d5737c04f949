package redisstore

import (
	"time"
)

// Stats is the statistics of a store. Counters begin at 0 with the store.
type Stats struct {
	// Open is how many breakers are open: each stops the calls to a node that does
	// not answer.
	Open int
	// Calls is how many calls are on their way.
	Calls int64
	// Held is how many keys have units in hand or not yet sent, in modes Lease and
	// Async.
	Held int64
	// Overflowed is how many decisions were made on overflow keys, because
	// Options.NewKeys was spent. While it grows, new keys are not decided
	// exactly.
	Overflowed uint64
	// OverflowDenied is how many of these an overflow key denied: with a state of
	// its own, the key might have had room.
	OverflowDenied uint64
	// Results says how calls to the server have ended, and Took how long the calls
	// that were made took.
	Results Results
	Took    Durations
	// Together is how many requests shared a call with others, and Batches how many
	// such calls there were.
	Together, Batches uint64
	// CrossSlot is how many requests took calls to several nodes or slots of a
	// cluster.
	CrossSlot uint64
	// Leased is how many units are in hand in mode Lease, of all keys together.
	Leased int64
	// Nodes describes each server: the only one, or the known nodes of a cluster.
	Nodes []NodeStats
	// DenialsCached is how many requests were denied without a call, by a denial of
	// the server that still holds; see Modes.DenialCache.
	DenialsCached uint64
}

// NodeStats is the statistics of one server.
type NodeStats struct {
	// Node is the address that the cluster gives for it; "" for a single server.
	Node string
	// Calls is how many calls were made to it, and Took how long they took together.
	Calls uint64
	Took  time.Duration
	// Open reports whether its breaker is open: it does not answer, so no calls are
	// made to it.
	Open bool
}

// Results counts how calls to the server have ended: calls of decisions, of leases and of
// the heartbeat. A call that is made again, since the server's answer allows it, counts twice.
type Results struct {
	// OK is how many calls were answered. A call that several requests share counts
	// if its reply has an answer to each.
	OK uint64
	// NotExecuted is how many calls certainly did not run ([ErrNotExecuted]), except
	// those that Unavailable and Configuration count.
	NotExecuted uint64
	// Ambiguous is how many calls may have run, without an answer that can be read
	// ([ErrAmbiguous]): units may have been charged, and lost.
	Ambiguous uint64
	// Configuration is how many calls cannot run until the operator changes the
	// configuration ([ErrConfiguration]). It includes calls that were not made,
	// because a server refuses this client's login or its scripts.
	Configuration uint64
	// Unavailable is how many calls were not made, because the server does not answer
	// or too many calls are on their way ([ErrUnavailable]).
	Unavailable uint64
}

// Durations is a histogram of how long calls took, whatever their results.
type Durations struct {
	// Counts[i] is how many calls took at most Bounds()[i] and longer than the bound
	// before; the last is how many took longer than all bounds.
	Counts [12]uint64
	// Sum is how long all calls took together.
	Sum time.Duration
}

// Bounds returns the bounds of Counts: from 100 µs to 1 s.
func (Durations) Bounds() [11]time.Duration { return tookBounds }

var tookBounds = [11]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 15 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second,
}

// Stats returns the statistics of the store. Fields that change meanwhile may be of slightly
// different moments.
func (s *Store) Stats() Stats {
	st := Stats{Calls: s.calls.Load(), Held: s.modes.heldKeys.Load(), Overflowed: s.shared.Load(), OverflowDenied: s.sharedDenied.Load()}
	s.tally.fill(&st)
	s.nodes.each(func(name string, n *node) {
		one := NodeStats{Node: name, Calls: n.calls.Load(), Took: time.Duration(n.took.Load()), Open: !n.lets()}
		if one.Open {
			st.Open++
		}
		if one.Calls > 0 || one.Open {
			st.Nodes = append(st.Nodes, one)
		}
	})
	st.Leased = s.modes.leasedUnits()
	return st
}

func (t *tally) fill(st *Stats) {
	st.Results = Results{
		OK: t.ok.Load() + t.beats.Load(), NotExecuted: t.notExecuted.Load(), Ambiguous: t.ambiguous.Load(),
		Configuration: t.configuration.Load(), Unavailable: t.unavailable.Load(),
	}
	for i := range t.took {
		st.Took.Counts[i] = t.took[i].Load()
	}
	st.Took.Sum = time.Duration(t.total.Load())
	st.Together, st.DenialsCached = t.together.Load(), t.denialsCached.Load()
	st.Batches, st.CrossSlot = t.batches.Load(), t.crossSlot.Load()
}
