package storetest

import (
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// bansEnd holds a limit with a ban to its twin without one: a denial begins the ban, then
// everything is denied until its end, whatever is asked meanwhile, and from there on both
// answer alike.
func bansEnd(e *env) {
	for _, text := range []string{"5/s", "7/1m sliding_log", "4/10s fixed_window", "3/s burst 2 leaky_queue", "9/10s sliding_buckets parts 3"} {
		plain := e.limit(text).Limit
		for _, ban := range []time.Duration{time.Duration(e.quantum), plain.Period() / 4, 3 * plain.Period()} {
			banning := plain.WithBan(ban).WithName(fmt.Sprint("bans for ", ban))
			l, twin := limit{banning, e.bind(banning)}, limit{plain, e.bind(plain.WithName("twin " + text))}
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
