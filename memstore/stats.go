package memstore

import (
	"unsafe"

	"github.com/stint-dev/stint/meter"
)

// Stats is what a store holds and has done.
type Stats struct {
	// Keys is how many keys have a place, counted once for each limit; MaxKeys
	// is the most there can be.
	Keys, MaxKeys int
	// Bytes is what limits, tables, logs and parts take.
	Bytes int64
	// PagedBytes is the part of Bytes that logs and parts take; MaxBytes is
	// about the most that can be.
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
	// Limits is how many limits are known: bound, and held or with keys that
	// still count; those of other numbers each.
	Limits int
}

// Stats returns the sums over all shards, each taken at its own moment. It
// looks through the tables of limits that are not held any more, to release
// those that are not needed.
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

// bytes returns what an account takes without its tables: itself, its limits, their
// meters, and its place under its name.
func (a *account) bytes() int64 {
	const named = 140 // of maps of names and accounts and a list, at their usual load
	limits := a.count() * int(unsafe.Sizeof(limit{})+unsafe.Sizeof(meter.Meter{}))
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
