package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// ErrServer is the error of modes that only a server can show.
var ErrServer = errors.New("takes a Redis")

// memory is what several processes hold limits by where there is no server.
type memory struct {
	shared *memstore.Store // that strict asks; nil for mode share
	link   *link
	part   func(stint.Limit) stint.Limit // that a process holds; nil is all
}

// parts returns what a process holds of limits over time: those in flight it shares.
func (m *memory) parts(limits []stint.Limit) []stint.Limit {
	parts := slices.Clone(limits)
	for i, l := range parts {
		if !l.InFlight() {
			parts[i] = m.part(l)
		}
	}
	return parts
}

// inMemory returns what n processes hold limits by in a mode: one store that all
// ask, on the server's clock, or a part each.
func inMemory(mode redisstore.Mode, n int, now func() int64, l *link) (*memory, error) {
	switch mode {
	case redisstore.Strict:
		return &memory{shared: memstore.New(memstore.Options{Now: now}), link: l}, nil
	case redisstore.Share:
		return &memory{part: func(l stint.Limit) stint.Limit { return fallback.Share(l, int64(n)) }}, nil
	}
	return nil, fmt.Errorf("mode %s %w", mode, ErrServer)
}

// open returns what one process has, on its own clock.
func (m *memory) open(now func() int64) stint.Store {
	if m.shared == nil {
		return memstore.New(memstore.Options{Now: now})
	}
	return &linked{m.shared, now, m.link}
}

// A linked store is how a process sees one that several share in memory, as they would a
// server that is asked about every request: but one that it has just denied. What it binds
// decides, and debts are charged to it; it is asked nothing else.
type linked struct {
	stint.Store
	now  func() int64
	link *link
}

// A link is what lies between processes and the store that they share.
type link struct {
	calls atomic.Int64 // that have reached it
	away  func() bool  // whether none does; nil is never
}

// broken reports whether the store cannot be reached.
func (l *link) broken() bool { return l.away != nil && l.away() }

// longestDenial is how long a denial is remembered: the default of redisstore.
const longestDenial = int64(time.Second)

// Bind implements [stint.Store].
func (s *linked) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	if err != nil {
		return nil, err
	}
	remembers := len(limits) == 1 && !limits[0].CountDenied()
	return &linkedBound{Bound: b, store: s, remembers: remembers, denials: make(map[string]denial)}, nil
}

// linkedBound is limits as a process asks for them.
type linkedBound struct {
	stint.Bound
	store     *linked
	remembers bool
	denials   map[string]denial // by key
}

// A denial is remembered until a moment, for its cost and more.
type denial struct{ until, cost int64 }

// Decide implements [stint.Bound].
func (b *linkedBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	s := b.store
	if known, ok := b.denials[key]; ok && op == meter.OpTake && cost >= known.cost && s.now() < known.until {
		return b.Bound.Decide(ctx, op, key, cost) // as it would be answered from memory
	}
	if s.link.broken() {
		return stint.Decision{}, errAway
	}
	s.link.calls.Add(1)
	d, err := b.Bound.Decide(ctx, op, key, cost)
	if b.remembers && err == nil && op == meter.OpTake && !d.Allowed {
		wait := longestDenial
		if d.RetryAfter != stint.Never {
			wait = min(int64(d.RetryAfter), wait)
		}
		b.denials[key] = denial{s.now() + wait, cost}
	}
	return d, err
}

// Reserve implements [stint.Store]: debts are charged by it.
func (s *linked) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if s.link.broken() {
		return stint.Decision{}, "", errAway
	}
	s.link.calls.Add(1)
	own := slices.Clone(layers)
	for i := range own {
		if b, ok := own[i].Bound.(*linkedBound); ok {
			own[i].Bound = b.Bound
		}
	}
	return s.Store.Reserve(ctx, own, cost, ttl)
}

// Close implements [stint.Store]. The store is everybody's.
func (s *linked) Close() error { return nil }

// withRoom is a store with what counts in flight beside it.
type withRoom struct {
	stint.Store
	room *inflight.Room
}

// InFlight implements [stint.RoomStore].
func (s withRoom) InFlight() *inflight.Room { return s.room }

// flights are how a process reaches the counts of what is in flight. It tells them at once
// what it let in while it did not reach them, since nobody asks until it does.
type flights struct {
	inflight.Counts
	link *link
}

// Acquire implements [inflight.Counts].
func (f *flights) Acquire(ctx context.Context, holds []inflight.Hold) (bool, error) {
	if f.link.broken() {
		return false, errAway
	}
	f.link.calls.Add(1)
	return f.Counts.Acquire(ctx, holds)
}

// Release implements [inflight.Counts].
func (f *flights) Release(holds []inflight.Hold) {
	if !f.link.broken() {
		f.link.calls.Add(1)
	}
	f.Counts.Release(holds)
}
