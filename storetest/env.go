package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// An env is a store under test, its clock and a source of chance.
type env struct {
	testing.TB
	suite   Suite
	ctx     context.Context
	store   stint.Store
	now     atomic.Int64
	quantum int64
	rnd     *rand.Rand
	keys    int // how many have been made up
}

// A limit is one that the store under test is bound to.
type limit struct {
	stint.Limit
	bound stint.Bound
}

// rewind sets the clock to where every check begins, some time in 2025, and
// chance to its seed.
func (e *env) rewind() {
	e.rnd = rand.New(rand.NewPCG(11, 5))
	e.now.Store(0)
	e.advance(1_750_000_000_123_456_789)
}

// part returns how many of n histories or keys a store is held to: all, or one in
// Part.
func (e *env) part(n int) int { return max(n/max(e.suite.Part, 1), 1) }

// advance moves the clock, by whole quanta.
func (e *env) advance(d int64) { e.now.Add(d - d%e.quantum) }

func (e *env) limit(text string) limit {
	e.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		e.Fatal(err)
	}
	return limit{l, e.bind(l)}
}

// among returns a limit that may be one of several on a key. Its text identifies
// it.
func (e *env) among(text string) limit {
	e.Helper()
	l := e.limit(text).WithName(text)
	return limit{l, e.under("layers", l)}
}

// bind binds a limit under its own name, or its text.
func (e *env) bind(l stint.Limit) stint.Bound {
	e.Helper()
	return e.under(l.Name(), l)
}

func (e *env) under(name string, limits ...stint.Limit) stint.Bound {
	e.Helper()
	b, err := e.store.Bind(name, limits...)
	if err != nil {
		e.Fatalf("Bind(%v): %v", limits, err)
	}
	return b
}

// key makes up a key that was not seen before.
func (e *env) key(name string) string {
	e.keys++
	return fmt.Sprint(name, e.keys)
}

func (e *env) do(op meter.Op, b stint.Bound, key string, cost int64) stint.Decision {
	e.Helper()
	d, err := b.Decide(e.ctx, op, key, cost)
	if err != nil {
		e.Fatalf("Decide(%d, %q, %d): %v", op, key, cost, err)
	}
	return d
}

func (e *env) take(l limit, key string, cost int64) stint.Decision {
	e.Helper()
	return e.do(meter.OpTake, l.bound, key, cost)
}

func (e *env) peek(l limit, key string, cost int64) stint.Decision {
	e.Helper()
	return e.do(meter.OpPeek, l.bound, key, cost)
}

func (e *env) reserve(l limit, key string, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID) {
	e.Helper()
	return e.reserveExcusing(l, key, cost, ttl, 0)
}

// reserveExcusing reserves what excuses denials for a time.
func (e *env) reserveExcusing(l limit, key string, cost int64, ttl, excuses time.Duration) (stint.Decision, stint.ReservationID) {
	e.Helper()
	d, id, err := e.store.Reserve(e.ctx, []stint.Layer{{Bound: l.bound, Key: key, Excuses: excuses}}, cost, ttl)
	if err != nil {
		e.Fatalf("Reserve(%q, %d): %v", key, cost, err)
	}
	if d.Allowed == (id == "") {
		e.Fatalf("Reserve(%q, %d): %+v with ID %q", key, cost, d, id)
	}
	return d, id
}

func (e *env) settle(id stint.ReservationID, cost int64) stint.Decision {
	e.Helper()
	d, err := e.store.Settle(e.ctx, id, cost)
	if err != nil {
		e.Fatalf("Settle(%d): %v", cost, err)
	}
	return d
}

func (e *env) refund(l limit, key string, cost int64) stint.Decision {
	e.Helper()
	d, err := e.store.Refund(e.ctx, one(l, key), cost)
	if err != nil {
		e.Fatalf("Refund(%q, %d): %v", key, cost, err)
	}
	return d
}

func (e *env) reset(l limit, key string) {
	e.Helper()
	if err := e.store.Reset(e.ctx, one(l, key)); err != nil {
		e.Fatalf("Reset(%q): %v", key, err)
	}
}

// charge charges cost, room or not, as debt.
func (e *env) charge(l limit, key string, cost int64) {
	e.Helper()
	_, id := e.reserve(l, key, 0, time.Hour)
	e.settle(id, cost)
}

func one(l limit, key string) []stint.Layer { return []stint.Layer{{Bound: l.bound, Key: key}} }

// equal fails unless two decisions are the same.
func (e *env) equal(what string, got, want stint.Decision) {
	e.Helper()
	if got != want {
		e.Fatalf("%s, at %d:\n got %+v\nwant %+v", what, e.now.Load(), got, want)
	}
}

// sameAnswers fails unless two keys give the same answers to every operation.
func (e *env) sameAnswers(what string, l limit, got, want string) {
	e.Helper()
	for _, cost := range [...]int64{0, 1, 2, l.Capacity()} {
		e.equal(fmt.Sprintf("%s: peek %d", what, cost), e.peek(l, got, cost), e.peek(l, want, cost))
	}
}

// trueCost draws what a reservation turns out to cost, at most what was reserved. A window
// from a first request has begun, whatever that cost in the end.
func (e *env) trueCost(l limit, reserved int64) int64 {
	actual := e.rnd.Int64N(reserved + 1)
	if l.FromFirst() {
		return max(actual, min(reserved, 1))
	}
	return actual
}

// walk makes histories: it calls step after each of many random gaps of time,
// on a fresh pair of keys for each history.
func (e *env) walk(l limit, step func(a, b string)) {
	e.Helper()
	for range 3 {
		a, b := e.key("a"), e.key("b")
		for range 40 {
			e.advance(e.gap(l.Limit))
			step(a, b)
		}
	}
}

// gap draws a stretch of time, often none, on the scale of a limit's unit or
// of its period.
func (e *env) gap(l stint.Limit) int64 {
	period := int64(l.Period())
	unit := max(period/l.Count(), 1)
	switch e.rnd.IntN(12) {
	case 0:
		return e.rnd.Int64N(unit + 1)
	case 1:
		return unit
	case 2:
		return e.rnd.Int64N(period + 1)
	case 3:
		return period
	case 4:
		return e.rnd.Int64N(2*period + 1)
	case 5:
		return period - e.now.Load()%period // to an edge
	case 6:
		return e.rnd.Int64N(3)
	}
	return 0
}

// cost draws a cost, mostly small, now and then all or more than can pass.
func (e *env) cost(l stint.Limit) int64 {
	switch e.rnd.IntN(16) {
	case 0:
		return l.Capacity()
	case 1:
		return l.Capacity() + 1 + e.rnd.Int64N(5)
	case 2:
		return 0
	}
	return 1 + e.rnd.Int64N(max(l.Capacity()/3, 1))
}
