package memstore

import (
	"unsafe"

	"github.com/stint-dev/stint/meter"
)

// Stats is what a store holds and has done.
type Stats struct {
	// Keys is how many keys have a state of their own, counted once for each
	// limit; MaxKeys is the most there can be.
	Keys, MaxKeys int
	// Bytes is what limits and states take.
	Bytes int64
	// PagedBytes is what the states of sliding_log and sliding_buckets take, a
	// share of Bytes; MaxBytes is about the most that can be.
	PagedBytes, MaxBytes int64
	// Evicted is how many keys were forgotten because they had become as if
	// never seen.
	Evicted uint64
	// Overflowed is how many decisions were made on a shared cell, because the
	// store was full. While it grows, new keys are not decided exactly.
	Overflowed uint64
	// Merged is how many charges had to be merged into older entries of a log
	// for lack of room.
	Merged uint64
	// FullKeys, FullBytes and FullReservations are how often a request found
	// no room because of Options.MaxKeys, MaxBytes and MaxReservations. While
	// one of them grows, the store is full.
	FullKeys, FullBytes, FullReservations uint64
	// Reservations is how many are open: neither settled nor expired.
	Reservations int
	// Limits is how many limits the store keeps, because a Bound or a reservation
	// holds them or keys still count under them. Limits that differ in any number
	// are counted each.
	Limits int
}

// Stats returns the sums over all shards, each taken at its own moment. It first
// releases the limits that nothing needs any more, which takes a look through the
// tables of those that no Bound holds.
func (s *Store) Stats() Stats {
	st := Stats{Reservations: s.reservations.count(s), FullReservations: s.fullReservations.Load()}
	s.mu.Lock()
	s.releaseSome(len(s.list), true)
	for _, a := range s.list {
		st.Limits += a.count()
		st.Bytes += a.bytes()
	}
	s.mu.Unlock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		st.Keys += sh.keys
		st.MaxKeys += sh.maxKeys
		st.Bytes += sh.bytes()
		st.PagedBytes += sh.slab.bytes + sh.cells.bytes
		st.MaxBytes += sh.maxBytes
		st.Evicted += sh.evicted
		st.Overflowed += sh.overflowed
		st.Merged += sh.merged
		st.FullKeys += sh.fullKeys
		st.FullBytes += sh.fullBytes
		sh.mu.Unlock()
	}
	return st
}

// bytes returns what an account takes without its tables: itself, its limits and meters,
// and its entries in the store's maps.
func (a *account) bytes() int64 {
	const named = 140 // entries in two maps and a list, at their usual load
	limits := a.count() * int(unsafe.Sizeof(limit{})+unsafe.Sizeof(meter.Meter{}))
	if a.tables.Load() != nil {
		limits += int(unsafe.Sizeof(tables{}))
	}
	return int64(unsafe.Sizeof(*a)) + int64(len(a.label)) + named + int64(limits)
}

// bytes returns what the shard's tables and slab take.
func (sh *shard) bytes() int64 {
	sum := sh.slab.bytes + sh.cells.bytes
	for _, r := range [...]*roster{&sh.slotted, &sh.indirect} {
		sum += 8 * int64(cap(r.tables))
		for _, t := range r.tables {
			sum += t.bytes()
		}
	}
	return sum
}
