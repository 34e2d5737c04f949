package storetest

import (
	"errors"
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A key that is never denied anything answers like its twin that is, or, where
// the limit counts what it denies, one that was charged the same as debt.
func denialChangesNothing(e *env, l limit) {
	e.walk(l, func(a, b string) {
		cost := e.cost(l.Limit)
		if d := e.take(l, a, cost); d.Allowed {
			e.equal("the twin", e.take(l, b, cost), d)
		} else {
			if l.CountDenied() {
				e.charge(l, b, cost)
			}
			e.equal("the denied", d, denied(e.peek(l, b, cost), e.peek(l, b, 0)))
		}
		e.sameAnswers("after", l, a, b)
	})
}

// denied is a denial with the waits that peek has, for a state that may by now
// be further from passing than when it was denied.
func denied(peek, state stint.Decision) stint.Decision {
	state.Allowed, state.Denied, state.RetryAfter = false, 1, peek.RetryAfter
	return state
}

func unitsMakeSums(e *env, l limit) {
	e.walk(l, func(a, b string) {
		cost := e.cost(l.Limit)
		whole := e.peek(l, a, cost)
		if cost == 0 || !e.peek(l, a, 1).Allowed {
			return
		}
		most := e.do(meter.OpTakeUpTo, l.bound, a, cost)
		n := int64(0)
		for n < cost && e.peek(l, b, 1).Allowed {
			if d := e.take(l, b, 1); !d.Allowed || d.Taken != 1 {
				e.Fatalf("unit %d: peek says it passes, take says %+v", n+1, d)
			}
			n++
		}
		if whole.Allowed != (n == cost) {
			e.Fatalf("%d at once: %+v; one by one %d pass", cost, whole, n)
		}
		if !most.Allowed || most.Taken != n || most.RetryAfter != 0 {
			e.Fatalf("take up to %d: %+v; one by one %d pass", cost, most, n)
		}
		e.sameAnswers("after", l, a, b)
	})
}

// At t + retry_after the same cost passes; a quantum earlier it does not.
func retryIsTight(e *env, l limit) {
	e.walk(l, func(a, _ string) {
		cost := e.cost(l.Limit)
		d := e.take(l, a, cost)
		wait, ok := d.RetryAfter.Duration()
		switch {
		case d.Allowed && d.RetryAfter != 0, !d.Allowed && ok && wait <= 0:
			e.Fatalf("%+v", d)
		case d.Allowed || !ok:
			return
		}
		e.now.Add(int64(wait) - e.quantum)
		early := e.peek(l, a, cost)
		if early.Allowed || early.RetryAfter != stint.Wait(e.quantum) {
			e.Fatalf("cost %d waited %v less one quantum: %+v", cost, wait, early)
		}
		e.now.Add(e.quantum)
		if e.rnd.IntN(2) == 0 {
			return // and leave the key as it is
		}
		if d := e.take(l, a, cost); !d.Allowed || d.Taken != cost {
			e.Fatalf("cost %d waited %v: %+v", cost, wait, d)
		}
	})
}

func remainingIsTrue(e *env, l limit) {
	e.walk(l, func(a, _ string) {
		d := e.take(l, a, e.cost(l.Limit))
		if e.rnd.IntN(3) > 0 {
			return
		}
		for left := d.Remaining; left > 0; left-- {
			got := e.take(l, a, 1)
			if !got.Allowed || got.Remaining != left-1 {
				e.Fatalf("%d remained, and a unit gets %+v", left, got)
			}
		}
		if got := e.peek(l, a, 1); got.Allowed || got.Remaining != 0 {
			e.Fatalf("none remained, and a unit gets %+v", got)
		}
	})
}

// At t + reset_after the key is as if never seen; a quantum earlier it is not.
func resetIsTrue(e *env, l limit) {
	e.walk(l, func(a, _ string) {
		d := e.take(l, a, e.cost(l.Limit))
		if e.rnd.IntN(4) > 0 || d.ResetAfter == 0 {
			return
		}
		e.now.Add(int64(d.ResetAfter) - e.quantum)
		if got := e.peek(l, a, 0); int64(got.ResetAfter) != e.quantum {
			e.Fatalf("a quantum before it is as if never seen: %+v", got)
		}
		e.now.Add(e.quantum)
		e.sameAnswers("after reset_after", l, a, e.key("unseen"))
	})
}

func askingChangesNothing(e *env, l limit) {
	e.walk(l, func(a, b string) {
		cost := e.cost(l.Limit)
		state := e.peek(l, a, 0)
		e.peek(l, a, cost)
		e.equal("take of 0", e.take(l, a, 0), state)
		e.equal("take up to 0", e.do(meter.OpTakeUpTo, l.bound, a, 0), state)
		e.equal("refund of 0", e.refund(l, a, 0), state)
		d, id := e.reserve(l, a, 0, time.Second)
		e.equal("reserve of 0", d, state)
		e.equal("settle of 0", e.settle(id, 0), state)
		e.equal("the take", e.take(l, a, cost), e.take(l, b, cost))
		e.sameAnswers("after", l, a, b)
	})
}

func waysAgree(e *env, l limit) {
	c := e.key("c")
	e.walk(l, func(a, b string) {
		cost := e.cost(l.Limit)
		d := e.take(l, a, cost)
		got, err := e.store.Decide(e.ctx, meter.OpTake, one(l, b), cost)
		if err != nil {
			e.Fatal(err)
		}
		e.equal("Store.Decide", got, d)
		if ok, err := l.bound.Allow(e.ctx, a+c, cost); ok != d.Allowed || err != nil {
			e.Fatalf("Allow(%d): %v, %v; Decide: %+v", cost, ok, err, d)
		}
		r, _ := e.reserve(l, b+c, cost, time.Minute)
		e.equal("Reserve", r, d)
		e.sameAnswers("after Allow", l, a+c, a)
		e.sameAnswers("after Reserve", l, b+c, b)
	})
}

func impossibleIsNever(e *env, l limit) {
	e.walk(l, func(a, _ string) {
		capacity := l.Capacity()
		if d := e.take(l, a, e.cost(l.Limit)); d.Limit != capacity {
			e.Fatalf("limit %d, want %d", d.Limit, capacity)
		}
		state := e.peek(l, a, 0)
		for _, cost := range [...]int64{capacity + 1, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64} {
			want := denied(stint.Decision{RetryAfter: stint.Never}, state)
			e.equal("peek", e.peek(l, a, cost), want)
			if !l.CountDenied() {
				e.equal("take", e.take(l, a, cost), want)
			}
		}
		if d := e.peek(l, a, capacity); d.RetryAfter == stint.Never {
			e.Fatalf("all of the limit: %+v", d)
		}
	})
}

func cancelUndoes(e *env, l limit) {
	e.walk(l, func(a, b string) {
		e.equal("the take", e.take(l, a, 1), e.take(l, b, 1))
		cost := e.cost(l.Limit)
		d, id := e.reserve(l, a, cost, time.Minute)
		switch {
		case d.Allowed:
			e.equal("cancel", e.settle(id, 0), e.peek(l, b, 0))
		case l.CountDenied():
			e.take(l, b, cost)
		}
		e.sameAnswers("after", l, a, b)
	})
}

// A reservation that is settled at once is a take of the true cost, and what is
// more than was reserved is debt; settled again it says the same.
func settleIsTake(e *env, l limit) {
	e.walk(l, func(a, b string) {
		cost := min(e.cost(l.Limit), l.Capacity())
		d, id := e.reserve(l, a, cost, 100*365*24*time.Hour)
		if !d.Allowed {
			if l.CountDenied() {
				e.take(l, b, cost)
			}
			return
		}
		actual := e.rnd.Int64N(2*cost + 1)
		if actual <= cost {
			e.take(l, b, actual)
		} else {
			e.take(l, b, cost)
			e.charge(l, b, actual-cost)
		}
		settled := e.settle(id, actual)
		e.equal("settle", settled, e.peek(l, b, 0))
		e.sameAnswers("after", l, a, b)
		e.advance(e.gap(l.Limit))
		e.equal("settled again", e.settle(id, e.cost(l.Limit)), settled)
		e.sameAnswers("after it was settled again", l, a, b)
	})
}

func reservationEnds(e *env, l limit) {
	gone := func(what string, id stint.ReservationID) {
		e.Helper()
		if d, err := e.store.Settle(e.ctx, id, 0); !errors.Is(err, stint.ErrReservation) {
			e.Fatalf("%s: %+v, %v; want ErrReservation", what, d, err)
		}
	}
	raise := func(key string, id stint.ReservationID, cost int64) (stint.Decision, error) {
		d, _, err := e.store.Reserve(e.ctx, []stint.Layer{{Bound: l.bound, Key: key, Raises: id}}, cost, time.Hour)
		return d, err
	}
	gone("unknown", "no such ID")
	gone("empty", "")
	e.walk(l, func(a, b string) {
		ttl := time.Duration(e.quantum * (1 + e.rnd.Int64N(1_000_000)))
		cost := min(e.cost(l.Limit), l.Capacity())
		d, id := e.reserve(l, a, cost, ttl)
		e.equal("the take", e.take(l, b, cost), d)
		if !d.Allowed {
			return
		}
		more := min(e.cost(l.Limit), l.Capacity())
		if d, err := raise(a, id, more); err != nil {
			e.Fatal(err)
		} else {
			e.equal("raised", d, e.take(l, b, more))
		}
		if e.rnd.IntN(4) == 0 {
			e.reset(l, a)
			e.reset(l, b)
			gone("reset", id)
		} else {
			e.now.Add(int64(ttl))
			gone("expired", id)
		}
		if d, err := raise(a, id, more); !errors.Is(err, stint.ErrReservation) {
			e.Fatalf("raised when it was gone: %+v, %v; want ErrReservation", d, err)
		}
		e.sameAnswers("it stands as charged", l, a, b)
	})
	_, id := e.reserve(l, e.key("c"), 1, time.Duration(e.quantum))
	e.settle(id, 0) // at the last moment
}

// A key that reserved, and later gave back, is never better off than its twin
// that never reserved and took the same besides.
func givingBackNeverMints(e *env, l limit) {
	type open struct {
		id   stint.ReservationID
		cost int64
	}
	held := map[string][]open{}
	e.walk(l, func(a, b string) {
		switch cost := min(e.cost(l.Limit), l.Capacity()); e.rnd.IntN(3) {
		case 0:
			if !e.peek(l, a, cost).Allowed {
				break
			}
			_, id := e.reserve(l, a, cost, 100*365*24*time.Hour)
			actual := e.trueCost(l, cost)
			if actual > 0 && !e.take(l, b, actual).Allowed {
				e.Fatalf("the twin has less room")
			}
			held[a] = append(held[a], open{id, actual})
		case 1:
			if e.peek(l, a, cost).Allowed {
				if e.take(l, a, cost); !e.take(l, b, cost).Allowed {
					e.Fatalf("the twin has less room")
				}
			}
		default:
			if n := len(held[a]); n > 0 {
				i := e.rnd.IntN(n)
				o := held[a][i]
				held[a][i] = held[a][n-1]
				held[a] = held[a][:n-1]
				e.settle(o.id, o.cost)
			}
		}
		got, twin := e.peek(l, a, 1), e.peek(l, b, 1)
		if got.Remaining > twin.Remaining || got.RetryAfter < twin.RetryAfter || got.ResetAfter < twin.ResetAfter {
			e.Fatalf("gave back more than was taken:\n got %+v\ntwin %+v", got, twin)
		}
	})
}

// Once all that a key reserved is settled, it answers like its twin that took
// the true costs at those moments. (A queue keeps the delays of other requests.)
func settlingRewrites(e *env, l limit) {
	if l.Algorithm().Queues() {
		return
	}
	type open struct {
		id     stint.ReservationID
		actual int64
	}
	held := map[string][]open{}
	e.walk(l, func(a, b string) {
		cost := min(e.cost(l.Limit), l.Capacity())
		n := len(held[a])
		switch {
		case n > 0 && (n == 4 || e.rnd.IntN(3) == 0):
			i := e.rnd.IntN(n)
			e.settle(held[a][i].id, held[a][i].actual)
			held[a] = append(held[a][:i:i], held[a][i+1:]...)
		case !e.peek(l, a, cost).Allowed:
			return
		case e.rnd.IntN(2) == 0:
			e.take(l, a, cost)
			e.charge(l, b, cost)
		default:
			_, id := e.reserve(l, a, cost, 100*365*24*time.Hour)
			actual := e.trueCost(l, cost)
			e.charge(l, b, actual)
			held[a] = append(held[a], open{id, actual})
		}
		if len(held[a]) == 0 {
			e.sameAnswers("when all is settled", l, a, b)
		}
	})
}

// A reservation that excuses denials no more gives back all, whatever became of later ones.
func excusesEnd(e *env, l limit) {
	if l.Capacity() < 2 || l.Algorithm().Queues() {
		return
	}
	key, brief := e.key("a"), time.Duration(e.quantum)
	_, first := e.reserveExcusing(l, key, 1, time.Hour, brief)
	e.advance(2 * e.quantum)
	_, later := e.reserveExcusing(l, key, 1, time.Hour, brief)
	e.settle(later, 0)
	if d := e.settle(first, 0); d.Remaining != l.Capacity() {
		e.Fatalf("both gave back all: %+v", d)
	}
}

func refundReturns(e *env, l limit) {
	e.walk(l, func(a, b string) {
		first := e.cost(l.Limit)
		e.equal("the take", e.take(l, a, first), e.take(l, b, first))
		cost := e.cost(l.Limit)
		if e.peek(l, a, cost).Allowed {
			e.take(l, a, cost)
			e.equal("refund", e.refund(l, a, cost), e.peek(l, b, 0))
			e.sameAnswers("after", l, a, b)
		}
		if e.rnd.IntN(8) == 0 {
			unseen := e.key("unseen")
			for _, key := range [...]string{a, b} {
				e.equal("all refunded", e.refund(l, key, math.MaxInt64), e.peek(l, unseen, 0))
				e.sameAnswers("after", l, key, unseen)
			}
		}
	})
}

func resetIsUnseen(e *env, l limit) {
	e.walk(l, func(a, b string) {
		e.take(l, a, e.cost(l.Limit))
		state := e.peek(l, b, 0)
		if e.rnd.IntN(4) == 0 {
			e.reset(l, a)
			e.sameAnswers("after", l, a, e.key("unseen"))
			e.equal("another key", e.peek(l, b, 0), state)
		}
		e.take(l, b, 1)
	})
}

// A key that is exhausted stays so when the clock steps back, by no more than
// its state can lie ahead, and is no better off when the clock has come back.
func clockStepsBack(e *env, l limit) {
	e.walk(l, func(a, _ string) {
		e.do(meter.OpTakeUpTo, l.bound, a, l.Capacity())
		before := e.peek(l, a, 1)
		t := e.now.Load()
		back := e.rnd.Int64N(min(int64(before.ResetAfter), int64(l.Period())/2) + 1)
		e.now.Add(back%e.quantum - back)
		if d := e.peek(l, a, 1); d.Allowed || d.Remaining != 0 {
			e.Fatalf("%d ns back: %+v", back, d)
		}
		if ok, err := l.bound.Allow(e.ctx, a, 1); ok || err != nil {
			e.Fatalf("%d ns back: %v, %v", back, ok, err)
		}
		e.now.Store(t)
		after := e.peek(l, a, 1)
		if after.Allowed || after.RetryAfter < before.RetryAfter || after.ResetAfter < before.ResetAfter {
			e.Fatalf("%d ns back and forth:\n got %+v\nwant %+v", back, after, before)
		}
	})
}
