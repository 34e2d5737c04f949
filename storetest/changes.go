package storetest

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// changes are pairs of limits, forms of one.
var changes = []struct {
	from, to string
}{
	{"10/s", "5/s"},
	{"5/s", "10/s"},
	{"10/s burst 20", "10/s burst 5"},
	{"7/1m", "3/10s burst 9"},
	{"3/1us", "7/1m burst 100"},
	{"5/s burst 10 leaky_queue", "7/s burst 2 leaky_queue"},
	{"5/s burst 10 token_bucket_interval", "8/s burst 4 token_bucket_interval"},
	{"5/s burst 10 token_bucket_interval", "5/10s burst 30 token_bucket_interval"},
	{"10/1m fixed_window", "4/1m fixed_window"},
	{"4/1m fixed_window", "10/1m fixed_window count_denied"},
	{"10/1m sliding_log", "4/1m sliding_log"},
	{"4/1m sliding_log", "10/1m sliding_log"},
	{"10/1m sliding_counter", "4/1m sliding_counter"},
	{"4/1m sliding_counter", "10/1m sliding_counter relaxed"},
	{"10/1m sliding_buckets", "4/1m sliding_buckets parts 7"},
	{"4/1m sliding_buckets parts 3", "10/1m sliding_buckets parts 100"},
	{"6 per day in Europe/Paris", "9 per day in Europe/Paris"},
	{"10 per day", "10/1m"},
	{"10/s", "10/s sliding_log"},
	{"10/s sliding_log", "10/s"},
	{"10/s", "10/s leaky_queue"},
	{"10/1m fixed_window", "10/1h fixed_window"},
	{"10/1m fixed_window", "10 per day in UTC"},
	{"6 per day in Europe/Paris", "6 per day in UTC"},
	{"10/1m sliding_log", "10/1h sliding_log"},
	{"10/1m sliding_counter", "10/59s sliding_counter"},
	{"10/1m sliding_buckets", "10/1h sliding_buckets"},
}

// form returns one form of a limit, bound when it is first asked for.
func (e *env) form(name, text string) limit {
	e.Helper()
	if known, ok := e.forms[name+"\x00"+text]; ok {
		return known
	}
	l, err := stint.Parse(text)
	if err != nil {
		e.Fatal(err)
	}
	l = l.WithName("limit")
	made := limit{l, e.under(name, l)}
	if e.forms == nil {
		e.forms = make(map[string]limit)
	}
	e.forms[name+"\x00"+text] = made
	return made
}

// Another form of a limit starts with the units that are in use, and each form
// that a key has met counts what the other lets pass.
func changingALimit(e *env) {
	for i, c := range changes {
		name := fmt.Sprint("changing ", i)
		from := e.form(name, c.from)
		used := make([]int64, from.Capacity()+1)
		before := make([]stint.Decision, len(used))
		for n := range used {
			before[n] = e.take(from, fmt.Sprint(n), int64(n))
		}
		again := e.form(name, c.from) // changes nothing
		for n := range used {
			e.equal(c.from+" bound again", e.peek(again, fmt.Sprint(n), 0), e.peek(from, fmt.Sprint(n), 0))
		}
		for n := range used {
			key := fmt.Sprint(n)
			from := e.form(name, c.from)
			state := e.peek(from, key, 0)
			to := e.form(name, c.to)
			d := e.peek(to, key, 0)
			if reason := badChange(e, from, to, int64(n), d); reason != "" {
				e.Errorf("%s to %s, %d used: %s: %+v, was %+v", c.from, c.to, n, reason, d, before[n])
			}
			e.equal("what only asks", e.peek(e.form(name, c.from), key, 0), state)
			took := e.take(e.form(name, c.to), key, 1)
			after := e.peek(e.form(name, c.from), key, 0)
			if took.Allowed {
				e.equal("the form before", atLeast(after), atLeast(less(state, 1)))
			} else if !from.CountDenied() {
				e.equal("the form before a denial", after, state)
			}
		}
	}
}

// badChange says what is wrong with the state after a change, if anything: the
// units that were used are, at most the new capacity. In a queue, delays that
// requests have got may take more of it.
func badChange(e *env, from, to limit, used int64, after stint.Decision) string {
	unseen := e.peek(to, e.key("unseen"), 0)
	want := max(to.Capacity()-used, 0)
	queues := from.Algorithm() == meter.LeakyQueue && to.Algorithm() == meter.LeakyQueue
	switch {
	case after.Limit != to.Capacity():
		return "not the new limit"
	case used == 0 && after != unseen:
		return "does not start as if never seen"
	case after.Remaining > want || after.Remaining < want && !queues:
		return fmt.Sprintf("the units are not kept: want %d to remain", want)
	}
	return ""
}

// less is a state with some more units used.
func less(d stint.Decision, units int64) stint.Decision {
	d.Remaining = max(d.Remaining-units, 0)
	return d
}

// atLeast is what of a state does not depend on when units were used.
func atLeast(d stint.Decision) stint.Decision {
	return stint.Decision{Limit: d.Limit, Remaining: d.Remaining}
}

// While requests come under two forms in turn, each counts all that pass, as if
// it had decided itself: so going back mints nothing.
func thereAndBack(e *env) {
	for i, c := range changes {
		name := fmt.Sprint("there and back ", i)
		first := e.form(name, c.from)
		gap, twin := e.gap(first.Limit), e.form(name+" twin", c.from)
		e.take(first, "key", 1)
		e.take(twin, "key", 1)
		for range 40 {
			now := c.from
			if e.rnd.IntN(3) > 0 && e.peek(e.form(name, c.from), "key", 0).ResetAfter > 0 {
				now = c.to // else the key may be as if never seen, and the second would be first
			}
			cost := 1 + e.rnd.Int64N(3)
			d := e.take(e.form(name, now), "key", cost)
			if d.Allowed || first.CountDenied() {
				e.charge(twin, "key", cost)
			}
			e.equal(fmt.Sprintf("%s beside %s, after %d: %+v", c.from, c.to, cost, d),
				e.peek(e.form(name, c.from), "key", 1), e.peek(twin, "key", 1))
			e.advance(e.rnd.Int64N(gap + 1))
		}
	}
}

// A key that is exhausted under one form is so under another, and passes there
// as soon as that says, however often it asked under both meanwhile.
func changeLocksNobodyOut(e *env) {
	for i, c := range changes {
		name := fmt.Sprint("locked ", i)
		from := e.form(name, c.from)
		if e.form(name, c.to).CountDenied() || from.CountDenied() {
			continue // asking counts
		}
		key := e.filled(e.form(name, c.from))
		to := e.form(name, c.to)
		d := e.take(to, key, min(from.Capacity(), to.Capacity()))
		if d.Allowed && from.Capacity() >= to.Capacity() {
			e.Errorf("%s, exhausted, to %s: %+v", c.from, c.to, d)
		}
		if d.Allowed {
			continue
		}
		full := e.peek(to, key, 0).ResetAfter
		for range 5 {
			e.advance(int64(full)/5 + e.quantum)
			e.now.Store(e.now.Load() / e.quantum * e.quantum)
			if from := e.form(name, c.from); !e.peek(from, key, 1).Allowed {
				e.take(from, key, 1)
			}
			if wait, _ := e.peek(e.form(name, c.to), key, 1).RetryAfter.Duration(); wait > full {
				e.Errorf("%s, exhausted, to %s: locked out for %v", c.from, c.to, wait)
			}
		}
		if d := e.peek(e.form(name, c.to), key, 1); !d.Allowed {
			e.Errorf("%s, exhausted, to %s: locked out after %v: %+v", c.from, c.to, full, d)
		}
	}
}
