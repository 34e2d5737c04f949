package storetest

import (
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// bansLike has the limits that bans are tried under.
var bansLike = []string{"5/s", "7/1m sliding_log", "4/10s fixed_window", "3/s burst 2 leaky_queue", "9/10s sliding_buckets parts 3"}

// bansEnd holds a limit with a ban to its twin without one: a denial begins the ban, then
// everything is denied until its end, whatever is asked meanwhile, and from there on both
// answer alike.
func bansEnd(e *env) {
	for _, text := range bansLike {
		plain := e.limit(text).Limit
		for _, ban := range []time.Duration{time.Duration(e.quantum), plain.Period() / 4, 3 * plain.Period()} {
			banning := plain.WithBan(ban).WithName(fmt.Sprint("bans for ", ban))
			l, twin := e.twins(plain, banning)
			for range 3 {
				key := e.key("banned")
				e.beginBan(l, twin, key)
				e.duringBan(l, twin, key, e.now.Load()+int64(ban))
				e.equal("the ban has ended", e.peek(l, key, 1), e.peek(twin, key, 1))
			}
			key := e.key("banned")
			e.beginBan(l, twin, key)
			e.reset(l, key)
			e.sameAnswers("a reset", l, key, e.key("unseen"))
		}
	}
}

// twins binds a limit with a ban and one without it.
func (e *env) twins(plain, banning stint.Limit) (l, twin limit) {
	e.Helper()
	return limit{banning, e.bind(banning)}, limit{plain, e.bind(plain.WithName("twin " + plain.String()))}
}

// block bans a key under a limit for d, or ends its ban if that is 0.
func (e *env) block(l limit, key string, d time.Duration) {
	e.Helper()
	if err := e.store.(stint.BlockStore).Block(e.ctx, one(l, key), d); err != nil {
		e.Fatalf("Block(%q, %v): %v", key, d, err)
	}
}

// blocksLast has keys blocked, if the store can do that: each is denied until the latest of its
// ends, whatever is asked meanwhile, and what was used stays as it was.
func blocksLast(e *env) {
	if _, ok := e.store.(stint.BlockStore); !ok {
		return
	}
	quantum := time.Duration(e.quantum)
	for _, text := range bansLike {
		plain := e.limit(text).Limit
		l, twin := e.twins(plain, plain.WithBan(plain.Period()/4).WithName("blocks"))
		for _, used := range []int64{0, 1, l.Capacity()} {
			for _, lengths := range [][]time.Duration{{quantum}, {plain.Period()}, {3 * plain.Period(), quantum, plain.Period()}, {quantum, plain.Period() / 2, 3 * plain.Period()}, {meter.MaxBan, 0, plain.Period()}} {
				key, end := e.key("blocked"), int64(0)
				e.take(l, key, used)
				e.take(twin, key, used)
				if used == l.Capacity() { // a ban that began with a denial is one of them
					e.take(l, key, 1)
					end = e.now.Load() + int64(l.Ban())
				}
				for _, d := range lengths {
					e.block(l, key, d)
					if end = max(end, e.now.Load()+int64(d)); d == 0 {
						end = e.now.Load()
						e.equal("a block that is ended", e.peek(l, key, 1), e.peek(twin, key, 1))
					}
				}
				e.block(twin, key, plain.Period()) // has no ban
				e.duringBan(l, twin, key, end)
				e.equal("the block has ended", e.peek(l, key, 1), e.peek(twin, key, 1))
			}
		}
		key := e.key("blocked")
		e.block(l, key, time.Hour)
		e.reset(l, key)
		e.sameAnswers("a reset", l, key, e.key("unseen"))
	}
}

// beginBan has a key that has used all be denied; what begins no ban comes first.
func (e *env) beginBan(l, twin limit, key string) {
	e.Helper()
	neighbour := e.limit("1/365d")
	e.take(neighbour, key, 1)
	both := []stint.Layer{{Bound: neighbour.bound, Key: key}, {Bound: l.bound, Key: key}}
	if d, err := e.store.Decide(e.ctx, meter.OpTake, both, 1); err != nil || d.Denied != 1 {
		e.Fatalf("beside a limit that denies: %+v, %v", d, err)
	}
	e.take(l, key, l.Capacity())
	e.take(twin, key, l.Capacity())
	e.equal("a peek", e.peek(l, key, 1), e.peek(twin, key, 1))
	e.equal("what can never pass", e.take(l, key, l.Capacity()+1), e.take(twin, key, l.Capacity()+1))
	e.equal("a peek that follows", e.peek(l, key, 1), e.peek(twin, key, 1))
	if d := e.take(l, key, 1); d.Allowed || d.RetryAfter < stint.Wait(l.Ban()) {
		e.Fatalf("%v, the first denial, at %d: %+v", l, e.now.Load(), d)
	}
}

// openBansNobody has open reservations deny, of those who waited too: that begins no ban.
func openBansNobody(e *env) {
	reserve := []func([]stint.Layer, int64) (stint.Decision, stint.ReservationID, error){
		func(layers []stint.Layer, cost int64) (stint.Decision, stint.ReservationID, error) {
			return e.store.Reserve(e.ctx, layers, cost, time.Hour)
		},
	}
	if s, ok := e.store.(stint.TurnStore); ok {
		reserve = append(reserve, func(layers []stint.Layer, cost int64) (stint.Decision, stint.ReservationID, error) {
			return s.TakeTurn(e.ctx, layers, cost, time.Hour, 0)
		})
	}
	for _, text := range []string{"5/1m ban 1h", "7/1h sliding_log ban 1h", "4/1h fixed_window ban 1h"} {
		l := e.limit(text)
		for way := range reserve {
			key := e.key("open")
			d, id, err := reserve[way]([]stint.Layer{{Bound: l.bound, Key: key, Excuses: time.Hour}}, l.Capacity())
			if err != nil || !d.Allowed {
				e.Fatalf("%s: %+v, %v", text, d, err)
			}
			if d = e.take(l, key, 1); d.Allowed || d.Banned || d.RetryAfter > stint.Wait(time.Second) {
				e.Errorf("%s, reserved by way %d: %+v", text, way, d)
			}
			if e.settle(id, 0); !e.take(l, key, 1).Allowed {
				e.Errorf("%s, reserved by way %d, and given back: denied", text, way)
			}
		}
	}
}

// turnsAreNotDelayed has those who wait ask a leaky_queue, and reserve in it: what it would delay is denied,
// and changes nothing.
func turnsAreNotDelayed(e *env) {
	s, ok := e.store.(stint.TurnStore)
	if !ok {
		return
	}
	l := e.limit("1/1h leaky_queue burst 5")
	for way, ttl := range []time.Duration{0, time.Hour} {
		key := e.key("delayed")
		layers := []stint.Layer{{Bound: l.bound, Key: key}}
		for i := range 3 {
			if d, id, err := s.TakeTurn(e.ctx, layers, 1, ttl, 0); err != nil || d.Allowed != (i == 0) || (id != "") != (d.Allowed && ttl > 0) {
				e.Errorf("by way %d, the call at %d: %+v, %q, %v", way, i, d, id, err)
			}
		}
		if d := e.peek(l, key, 1); !d.Allowed || d.Delay > time.Hour {
			e.Errorf("by way %d, a peek: %+v", way, d)
		}
	}
}

// duringBan asks until the ban is over: at random, and a quantum before the end.
func (e *env) duringBan(l, twin limit, key string, end int64) {
	e.Helper()
	for {
		left, state := end-e.now.Load(), e.peek(twin, key, 1)
		if left == 0 {
			return
		}
		var d stint.Decision
		switch e.rnd.IntN(4) {
		case 0:
			d = e.peek(l, key, 1)
		case 1:
			d = e.do(meter.OpTakeUpTo, l.bound, key, 1)
		case 2:
			d, _ = e.reserve(l, key, 1, time.Second)
		default:
			d = e.take(l, key, 1)
		}
		retry := max(stint.Wait(left), state.RetryAfter)
		if d.Allowed || !d.Banned || d.Remaining != 0 || d.RetryAfter != retry || d.ResetAfter != max(time.Duration(left), state.ResetAfter) {
			e.Fatalf("%v, banned for %d more, at %d:\n got %+v\nthe state is %+v", l, left, e.now.Load(), d, state)
		}
		e.advance(min(left, max(e.quantum, min(e.rnd.Int64N(left/2+1), left-e.quantum))))
	}
}
