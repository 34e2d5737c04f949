package storetest

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// changes are limits of one identity.
var changes = [][2]string{
	{"10/s", "5/s"},
	{"10/s burst 20", "10/s burst 5"},
	{"7/1m", "3/1m burst 9"},
	{"100/1m", "10/1m"},
	{"1_000_000_007/1h burst 50", "13/1h burst 60"},
	{"5/s burst 10 leaky_queue", "7/s burst 2 leaky_queue"},
	{"5/s burst 10 token_bucket_interval", "8/s burst 4 token_bucket_interval"},
	{"10/1m fixed_window", "4/1m fixed_window"},
	{"10/1m fixed_window from first", "4/1m fixed_window from first"},
	{"10/1m sliding_log", "4/1m sliding_log"},
	{"10/1m sliding_counter", "4/1m sliding_counter relaxed"},
	{"10/1m sliding_buckets", "4/1m sliding_buckets"},
	{"6 per day in Europe/Paris", "9 per day in Europe/Paris"},
}

// others are limits that are not of one identity.
var others = [][2]string{
	{"10 per day", "10/1m"},
	{"10/s", "10/s sliding_log"},
	{"10/s", "10/s leaky_queue"},
	{"10/1m fixed_window", "10 per day in UTC"},
	{"10/1m fixed_window", "10/1m fixed_window from first"},
	{"6 per day in Europe/Paris", "6 per day in UTC"},
	{"10/1m sliding_counter", "10/59s sliding_counter"},
	{"10/1m sliding_buckets", "10/1m sliding_buckets parts 7"},
}

// sharing returns a limit under a name that it shares with others.
func (e *env) sharing(name, text string) limit {
	e.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		e.Fatal(err)
	}
	return limit{l, e.under(name, l)}
}

// bothWays calls check with each pair of limits, both ways round.
func (e *env) bothWays(what string, check func(from, to limit)) {
	for i, c := range changes {
		name := fmt.Sprint(what, " ", i)
		check(e.sharing(name, c[0]), e.sharing(name, c[1]))
		name += " back"
		check(e.sharing(name, c[1]), e.sharing(name, c[0]))
	}
}

// drains reports whether states of a limit drain by its numbers.
func drains(l limit) bool { return l.Algorithm().Takes(meter.Burst) }

// What is in use under one limit is under another of its identity, and neither a look
// nor a denial of one frees a unit of the other.
func changingALimit(e *env) {
	e.bothWays("changing", func(from, to limit) {
		what := fmt.Sprintf("%v to %v", from.Limit, to.Limit)
		for n := range from.Capacity() + 1 {
			key := fmt.Sprint(n)
			e.take(from, key, n)
			before := e.peek(from, key, 1)
			if d := e.peek(to, key, 1); d.Remaining != max(to.Capacity()-n, 0) || d.Limit != to.Capacity() {
				e.Errorf("%s, %d used: %+v", what, n, d)
			}
			e.equal(what+", what only asks", e.peek(from, key, 1), before)
			d := e.take(to, key, 1)
			if d.Allowed != (n < to.Capacity()) {
				e.Errorf("%s, %d used: %+v", what, n, d)
			}
			after := e.peek(from, key, 1)
			if after.Remaining != max(before.Remaining-d.Taken, 0) {
				e.Errorf("%s and back, %d used: %d remain, and %d did, after %+v", what, n, after.Remaining, before.Remaining, d)
			}
			if !d.Allowed && (!drains(to) || n > to.Capacity()) {
				e.equal(what+", no room for what is in use", after, before)
			}
		}
		looked, twin := e.filled(from), e.filled(from)
		e.peek(to, looked, 1)
		e.advance(int64(from.Period())/from.Count()/3 + e.quantum)
		e.equal(what+", after a look", e.peek(from, looked, 1), e.peek(from, twin, 1))
	})
	for i, c := range others {
		name := fmt.Sprint("apart ", i)
		one, other := e.sharing(name, c[0]), e.sharing(name, c[1])
		e.take(one, "key", one.Capacity())
		before := e.peek(one, "key", 1)
		if d := e.take(other, "key", other.Capacity()); !d.Allowed {
			e.Errorf("%v does not start unused beside %v: %+v", other.Limit, one.Limit, d)
		}
		e.equal(fmt.Sprintf("%v beside %v", one.Limit, other.Limit), e.peek(one, "key", 1), before)
	}
}

// However two limits of one identity alternate, a key gets at most the larger capacity
// and the faster rate.
func alternatingMintsNothing(e *env) {
	e.bothWays("in turns", func(one, other limit) {
		both, begun := [2]limit{one, other}, e.now.Load()
		least := min(int64(one.Period())/one.Count(), int64(other.Period())/other.Count())
		passed := int64(0)
		for range 300 {
			passed += e.take(both[e.rnd.IntN(2)], "key", 1+e.rnd.Int64N(3)).Taken
			e.advance(e.rnd.Int64N(least + 1))
		}
		period := max(int64(one.Period()), 1)
		most := max(one.Count(), other.Count()) * ((e.now.Load()-begun)/period + 2)
		if drains(one) {
			most = max(one.Capacity(), other.Capacity()) + max(one.Count(), other.Count())*((e.now.Load()-begun)/period+1)
		}
		if passed > most {
			e.Errorf("%v and %v in turns: %d passed, at most %d may", one.Limit, other.Limit, passed, most)
		}
	})
}

// A key that is exhausted under one limit passes under another at the latest when the
// first has forgotten what it used, and a unit's time later where its own numbers came
// into force before; however often it asked meanwhile.
func changeLocksNobodyOut(e *env) {
	e.bothWays("locked", func(from, to limit) {
		key := e.filled(from)
		full := int64(e.peek(from, key, 0).ResetAfter)
		for range 7 {
			e.take(to, key, 1+to.Capacity()) // never passes, but decides
			e.peek(from, key, 1)
			e.advance(full/7 + e.quantum)
		}
		wait, _ := e.peek(to, key, 1).RetryAfter.Duration()
		if own := int64(to.Period())/to.Count() + 2*e.quantum; !drains(to) && wait > 0 || int64(wait) > own && to.Algorithm().Evenly() {
			e.Errorf("%v, exhausted, to %v: locked out for %v after %d ns", from.Limit, to.Limit, wait, full)
		}
	})
}
