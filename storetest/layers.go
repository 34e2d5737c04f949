package storetest

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A request with layers is held against a twin of each limit that is asked and
// charged alone, in its own units.
func layersAllOrNone(e *env) {
	for range e.part(60) {
		ls := newLayered(e)
		for range 40 {
			e.advance(e.gap(ls.limits[e.rnd.IntN(len(ls.limits))].Limit))
			ls.step(e)
		}
	}
}

// layered is some limits, flattened, under the keys of a request and under
// those of its twin.
type layered struct {
	layers       []stint.Layer
	limits       []limit
	weights      []int64 // by limit
	keys, alone  []string
	leastOfCosts int64
}

func newLayered(e *env) *layered {
	ls := &layered{leastOfCosts: math.MaxInt64}
	order := e.rnd.Perm(len(limits))
	for range 1 + e.rnd.IntN(3) {
		key, weight := e.key("layer"), e.weight()
		var bound []stint.Limit
		for range 1 + e.rnd.IntN(2) {
			l := e.among(limits[order[0]])
			if slices.Contains(bound, l.Limit) {
				break
			}
			if e.rnd.IntN(4) > 0 { // else the same limit again, on another key
				order = order[1:]
			}
			bound = append(bound, l.Limit)
			ls.limits, ls.weights = append(ls.limits, l), append(ls.weights, max(weight, 1))
			ls.keys, ls.alone = append(ls.keys, key), append(ls.alone, fmt.Sprint("alone ", len(ls.alone), " of ", key))
			ls.leastOfCosts = min(ls.leastOfCosts, l.Capacity()/max(weight, 1))
		}
		ls.layers = append(ls.layers, stint.Layer{Bound: e.under("layers", bound...), Key: key, Weight: weight})
	}
	return ls
}

// weight draws a weight, mostly 1, now and then more than can pass.
func (e *env) weight() int64 {
	switch e.rnd.IntN(12) {
	case 0, 1:
		return 0 // which is 1
	case 2, 3, 4:
		return 2 + e.rnd.Int64N(6)
	case 5:
		return []int64{1 << 40, math.MaxInt64/2 + 1, math.MaxInt64}[e.rnd.IntN(3)]
	}
	return 1
}

// units is what a cost is in units of one limit, held at the greatest int64.
func (ls *layered) units(i int, cost int64) int64 {
	hi, lo := bits.Mul64(uint64(cost), uint64(ls.weights[i]))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

func (ls *layered) step(e *env) {
	cost := e.rnd.Int64N(ls.leastOfCosts + 2)
	answers := ls.room(e)
	what := fmt.Sprintf("cost %d, layers %v, weights %v", cost, ls.limits, ls.weights)
	switch n := e.rnd.IntN(6); n {
	case 4:
		ls.reserve(e, cost, answers, what)
	case 5:
		got, err := e.store.Refund(e.ctx, ls.layers, cost)
		if err != nil {
			e.Fatal(err)
		}
		for i, l := range ls.limits {
			e.refund(l, ls.alone[i], ls.units(i, cost))
		}
		e.equal("refund, "+what, got, ls.standing(e))
		for i, l := range ls.limits {
			ls.told(e, "refund, "+what, answers, i, e.peek(l, ls.alone[i], 0))
		}
	default:
		op := meter.Op(n % 3)
		got, err := e.store.Decide(e.ctx, op, ls.layers, cost)
		if err != nil {
			e.Fatal(err)
		}
		what = fmt.Sprintf("op %d, %s", op, what)
		if op == meter.OpTakeUpTo {
			cost = ls.upTo(e, cost)
		}
		e.equal(what, got, ls.want(e, what, op, cost, answers, func(i int, units int64) {
			e.take(ls.limits[i], ls.alone[i], units)
		}))
	}
	for i, l := range ls.limits {
		e.sameAnswers(fmt.Sprintf("layer %d, %v, after %s", i, l, what), l, ls.keys[i], ls.alone[i])
	}
}

// room gives some layers room for their answers, at least enough, and returns
// where the answer of each limit goes, nil for none.
func (ls *layered) room(e *env) (all []*stint.Decision) {
	for i := range ls.layers {
		n := len(ls.layers[i].Bound.Limits())
		ls.layers[i].Answers = nil
		if e.rnd.IntN(4) == 0 {
			all = append(all, make([]*stint.Decision, n)...)
			continue
		}
		answers := make([]stint.Decision, n+e.rnd.IntN(2))
		for k := range answers {
			answers[k] = stint.Decision{Limit: -1} // what is left over stays so
		}
		ls.layers[i].Answers = answers
		for k := range n {
			all = append(all, &answers[k])
		}
	}
	return all
}

// told compares the answer of one limit with that of its twin.
func (ls *layered) told(e *env, what string, answers []*stint.Decision, i int, want stint.Decision) {
	e.Helper()
	if answers[i] != nil {
		e.equal(fmt.Sprintf("the answer of limit %d, %s", i, what), *answers[i], want)
	}
}

// upTo is how much of a cost the twins let pass; 1 where they let none.
func (ls *layered) upTo(e *env, cost int64) int64 {
	most := cost
	for i, l := range ls.limits {
		most = min(most, e.peek(l, ls.alone[i], 0).Remaining/ls.weights[i])
	}
	return max(most, min(cost, 1))
}

// want carries the operation out on the twins, and joins their answers.
func (ls *layered) want(e *env, what string, op meter.Op, cost int64, answers []*stint.Decision, charge func(i int, units int64)) stint.Decision {
	var want stint.Decision
	alone := make([]stint.Decision, len(ls.limits))
	for i, l := range ls.limits {
		if alone[i] = e.peek(l, ls.alone[i], ls.units(i, cost)); !alone[i].Allowed {
			want.Denied |= 1 << i
		}
	}
	want.Allowed = want.Denied == 0
	for i, l := range ls.limits {
		units, one := ls.units(i, cost), &alone[i]
		if op != meter.OpPeek && (want.Allowed || l.CountDenied()) {
			charge(i, units)
		}
		state := e.peek(l, ls.alone[i], 0)
		one.Remaining, one.ResetAfter = state.Remaining, state.ResetAfter
		if wait := e.peek(l, ls.alone[i], units).RetryAfter; !want.Allowed {
			if wait == stint.Never || want.RetryAfter != stint.Never && wait > want.RetryAfter {
				want.RetryAfter = wait
			}
			if one.Delay = 0; !one.Allowed {
				one.RetryAfter = wait
			}
		} else if op != meter.OpPeek {
			one.Taken, want.Taken = units, cost
		}
		want.Delay = max(want.Delay, one.Delay)
		ls.told(e, what, answers, i, *one)
	}
	ls.join(&want, alone)
	return want
}

// join sets what of the joined answer is in units of the request, and when all
// are as if never seen.
func (ls *layered) join(d *stint.Decision, alone []stint.Decision) {
	for i, one := range alone {
		if left := one.Remaining / ls.weights[i]; i == 0 || left < d.Remaining {
			d.Remaining, d.Limit, d.Tightest = left, one.Limit/ls.weights[i], i
		}
		d.ResetAfter = max(d.ResetAfter, one.ResetAfter)
	}
}

// standing joins what the twins say without being charged.
func (ls *layered) standing(e *env) stint.Decision {
	d := stint.Decision{Allowed: true}
	var alone []stint.Decision
	for i, l := range ls.limits {
		alone = append(alone, e.peek(l, ls.alone[i], 0))
	}
	ls.join(&d, alone)
	return d
}

// reserve reserves on both sides and settles after a while, at more or less:
// each twin at what that is in its own units.
func (ls *layered) reserve(e *env, cost int64, answers []*stint.Decision, what string) {
	const ttl = 100 * 365 * 24 * time.Hour
	d, id, err := e.store.Reserve(e.ctx, ls.layers, cost, ttl)
	if err != nil {
		e.Fatal(err)
	}
	ids := make([]stint.ReservationID, len(ls.limits))
	e.equal("reserve, "+what, d, ls.want(e, "reserve, "+what, meter.OpTake, cost, answers, func(i int, units int64) {
		_, ids[i] = e.reserve(ls.limits[i], ls.alone[i], units, ttl)
	}))
	if !d.Allowed {
		return
	}
	e.advance(e.gap(ls.limits[e.rnd.IntN(len(ls.limits))].Limit))
	actual := e.rnd.Int64N(2*cost + 2)
	if e.rnd.IntN(8) == 0 {
		actual = math.MaxInt64 / 3
	}
	settled := e.settle(id, actual)
	for i := range ls.limits {
		e.settle(ids[i], ls.units(i, actual))
	}
	e.equal(fmt.Sprintf("settle at %d, %s", actual, what), settled, ls.standing(e))
}

// heaviest tries weights on a limit that has all, or nearly all, of an int64.
func heaviest(e *env, l limit) {
	all, a := l.Capacity(), e.key("a")
	ask := func(what string, weight, cost int64, allowed bool, taken int64) {
		var answer [1]stint.Decision
		d, err := e.store.Decide(e.ctx, meter.OpTake, []stint.Layer{{Bound: l.bound, Key: a, Weight: weight, Answers: answer[:]}}, cost)
		if err != nil {
			e.Fatal(err)
		}
		if d.Allowed != allowed || answer[0].Allowed != allowed || answer[0].Taken != taken || answer[0].Limit != all ||
			!allowed && (d.RetryAfter != stint.Never || answer[0].RetryAfter != stint.Never) {
			e.Errorf("%v, weight %d, cost %d, %s: %+v, alone %+v", l, weight, cost, what, d, answer[0])
		}
		e.reset(l, a)
	}
	ask("beyond an int64 by a bit", math.MaxInt64/2+1, 2, false, 0)
	ask("beyond by far", math.MaxInt64, math.MaxInt64, false, 0)
	ask("once around", 1<<62, 4, false, 0)
	ask("once around and one", math.MaxInt64, 3, false, 0)
	ask("all", all, 1, true, all)
	ask("half of it, twice", max(all/2, 1), min(all, 2), true, max(all/2, 1)*min(all, 2))
	var answer [1]stint.Decision
	layers := []stint.Layer{{Bound: l.bound, Key: a, Weight: all, Answers: answer[:]}}
	d, err := e.store.Decide(e.ctx, meter.OpTakeUpTo, layers, math.MaxInt64)
	if err != nil || !d.Allowed || d.Taken != 1 || d.Limit != 1 || d.Remaining != 0 || answer[0].Taken != all || answer[0].Remaining != 0 {
		e.Errorf("%v, all at once, as often as may be: %+v, alone %+v, %v", l, d, answer[0], err)
	}
	e.reset(l, a)
}
