package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// The script's fast path (lua/fastpath_single.lua, lua/fastpath.lua) takes from or peeks at
// buckets, fixed windows and sliding counters without weights, which is nearly every call.
// It answers with the state of each limit; this file computes the decision from that. If a
// state is not as it expects, such as one of other parameters, the general path answers
// the same call, and the reply begins with an s.

// A fastBucket is a bucket or queue.
type fastBucket struct {
	step, full, div int64 // step and full in 1/div µs
	queue           bool
	long            bool // only the general path can decide: the limit has a ban, or a debt below its capacity, which the fast path does not check
}

// A fastWindow is a fixed window or a sliding counter.
type fastWindow struct {
	count, period int64 // period in µs; the product of a counter's fits an int64
	counter       bool
}

// isFast reports whether the fast path decides all parts.
func isFast(parts []part) bool {
	for i := range parts {
		if !parts[i].compiled.isFast() || parts[i].weight != 1 {
			return false
		}
	}
	return true
}

// evalFast runs a verb of the fast path, with overflow keys while new keys share them.
func (s *Store) evalFast(ctx context.Context, parts []part, verb string, cost int64, read cellReader) error {
	room := make([]string, 5*len(parts)+3) // for keys, arguments and the clock
	keys := room[:len(parts):len(parts)]
	args := append(room[len(parts):len(parts)], verb, number(cost))
	for i := range parts {
		keys[i] = state(parts[i].begin, parts[i].end, parts[i].limit)
		args = append(args, parts[i].compiled.args...)
	}
	if s.flooded(&parts[0]) {
		return asPeek(verb, s.evalCells(ctx, parts, keys, args, read))
	}
	return asPeek(verb, s.batched(ctx, false, 0, keys, args, read.alone))
}

// A fastState is the state of a limit after a decision.
type fastState struct {
	n      int64 // the backlog in 1/div µs, or the count of this window; −1−n if the limit denies
	before int64 // the count of the window before
	left   int64 // µs until this window ends
}

// fastState reads the script's answer for a part.
func (p *part) fastState(v any) (k fastState, ok bool) {
	if p.compiled.window == nil {
		k.n, ok = v.(int64)
		return k, ok
	}
	list, _ := v.([]any)
	if len(list) != 3 {
		return k, false
	}
	for i, to := range [...]*int64{&k.n, &k.before, &k.left} {
		if *to, ok = list[i].(int64); !ok {
			return k, false
		}
	}
	return k, true
}

// fastPath takes or peeks by the fast path.
func (s *Store) fastPath(ctx context.Context, op meter.Op, parts []part, cost int64) (d stint.Decision, err error) {
	verb := "T"
	if op == meter.OpPeek {
		verb = "P"
	}
	err = s.evalFast(ctx, parts, verb, cost, func(reply any, cells string) error {
		if k, ok := parts[0].fastState(reply); ok && len(parts) == 1 && cells == "" {
			parts[0].drain = parts[0].compiled.fast
			if op == meter.OpTake {
				s.spendFast(parts, cost, k)
			}
			d = parts[0].compiled.answer(cost, k, k.n >= 0, op != meter.OpPeek)
			if parts[0].answer != nil {
				*parts[0].answer = d
			}
			return nil
		}
		a := s.readFast(parts, strings.ToLower(verb), cost, reply, cells)
		if a.err == nil {
			d = a.join(parts, op != meter.OpPeek)
		}
		return a.err
	})
	return d, err
}

// fastAnswer peeks at the parts of a group, or charges them so that the charge can be
// given back.
func (s *Store) fastAnswer(ctx context.Context, parts []part, verb string, cost int64) (a groupAnswer) {
	err := s.evalFast(ctx, parts, strings.ToUpper(verb), cost, func(reply any, cells string) error {
		a = s.readFast(parts, verb, cost, reply, cells)
		return a.err
	})
	if err != nil {
		return groupAnswer{err: err}
	}
	return a
}

// readFast converts a reply of the fast path to an answer of the general path.
func (s *Store) readFast(parts []part, verb string, cost int64, reply any, cells string) (a groupAnswer) {
	list, ok := reply.([]any)
	if ok && len(list) > 0 && list[0] == "s" {
		if a = readGroupAnswer(list[1:], verb, len(parts)); a.err == nil {
			a.cells = cells
			s.spendLong(verb, parts, a.answer, cells != "")
			s.countCells(cells, a.denied())
		}
		return a
	}
	if _, is := parts[0].fastState(reply); is && len(parts) == 1 {
		list, ok = []any{reply}, true
	}
	charged := verb == "k" && len(list) == 2*len(parts)
	if !ok || len(list) != len(parts) && !charged {
		return groupAnswer{err: unexpected(reply)}
	}
	states, allowed := make([]fastState, len(parts)), true
	for i := range parts {
		if states[i], ok = parts[i].fastState(list[i]); !ok {
			return groupAnswer{err: unexpected(list[i])}
		}
		allowed = allowed && states[i].n >= 0
		if charged {
			mark, _ := list[len(parts)+i].(string)
			a.marks = append(a.marks, mark)
		}
	}
	if verb != "p" && allowed && cells == "" {
		s.spendFast(parts, cost, states...)
	}
	a.answer = append(make(answer, 0, 1+answersEach*len(parts)), cost)
	for i, k := range states {
		a.answer = append(a.answer, asGeneral(parts[i].compiled.answer(cost, k, allowed, verb != "p"))...)
	}
	a.cells = cells
	s.countCells(cells, a.denied())
	return a
}

// asGeneral converts a limit's decision to the numbers of the general path.
func asGeneral(d stint.Decision) []int64 {
	n := []int64{1, d.Remaining, int64(d.ResetAfter / time.Microsecond), int64(d.RetryAfter / stint.Wait(time.Microsecond)), int64(d.Delay / time.Microsecond), 0, 0}
	if d.Denied != 0 {
		n[answersOK] = 0
	}
	if d.RetryAfter == stint.Never {
		n[answersRetry] = -1
	}
	return n
}

// spendFast counts the keys that a take has created: those with nothing in use but its
// cost, unless they expire soon. A denial creates none.
func (s *Store) spendFast(parts []part, cost int64, states ...fastState) {
	if cost == 0 || s.newKeys.unit == 0 {
		return
	}
	made := int64(0)
	for i, k := range states {
		if q, w := parts[i].compiled.fast, parts[i].compiled.window; w == nil && q.fresh(cost, k.n) || w != nil && w.fresh(cost, k) {
			made++
		}
	}
	s.brought(&parts[0], made)
}

// answer returns the decision of one limit; allowed is that of the whole request.
func (f *compiled) answer(cost int64, k fastState, allowed, charges bool) stint.Decision {
	if f.window != nil {
		return f.window.answer(cost, k, allowed, charges)
	}
	return f.fast.answer(f.capacity, cost, k.n, allowed, charges)
}

// fresh reports whether a backlog is one cost alone, and does not end soon.
func (q *fastBucket) fresh(cost, backlog int64) bool {
	return backlog > int64(briefKey/time.Microsecond)*q.div && backlog == cost*q.step
}

// answer returns the decision of one limit. backlog is its backlog b after the decision in
// 1/div µs, or −1−b if it denies; allowed is that of the whole request.
func (q *fastBucket) answer(capacity, cost, backlog int64, allowed, charges bool) stint.Decision {
	d := stint.Decision{Limit: capacity, Allowed: allowed}
	if backlog < 0 {
		backlog = -1 - backlog
		d.Denied, d.RetryAfter = 1, stint.Never
		if cost <= capacity {
			d.RetryAfter = stint.Wait(q.duration(backlog + cost*q.step - q.full))
		}
	}
	if allowed && charges {
		d.Taken = cost
	}
	if allowed && q.queue && cost > 0 {
		d.Delay = q.duration(backlog - d.Taken*q.step)
	}
	d.Remaining = max(q.full-backlog, 0) / q.step
	d.ResetAfter = q.duration(backlog)
	return d
}

// drain returns the parameters that the bucket of an answer drains by, with the capacity of
// the limit; nil if the limit is no bucket.
func (f *compiled) drain(one []int64) *fastBucket {
	if one[answersStep] == 0 {
		return f.fast
	}
	full, _ := satmath.Mul(f.capacity, one[answersStep])
	return &fastBucket{step: one[answersStep], full: min(full, 2*most), div: one[answersDiv]}
}

// room returns how many units pass reset µs before the bucket is empty.
func (q *fastBucket) room(reset int64) int64 { return max(q.full-reset*q.div, 0) / q.step }

// wait returns how long units must wait reset µs before the bucket is empty.
func (q *fastBucket) wait(reset, units int64) stint.Wait {
	need, _ := satmath.Mul(units, q.step)
	return stint.Wait(q.duration(max(reset*q.div+min(need, 2*most)-q.full, 0)))
}

// duration converts n/div µs to a duration, rounded up to a µs.
func (q *fastBucket) duration(n int64) time.Duration {
	return time.Duration((n+q.div-1)/q.div) * time.Microsecond
}

// fresh reports whether a window has counted one cost alone, and does not soon end.
func (w *fastWindow) fresh(cost int64, k fastState) bool {
	return k.n == cost && k.before == 0 && k.left > int64(briefKey/time.Microsecond)
}

// answer returns the decision of one limit; allowed is that of the whole request.
func (w *fastWindow) answer(cost int64, k fastState, allowed, charges bool) stint.Decision {
	d := stint.Decision{Limit: w.count, Allowed: allowed}
	left, wait := k.left, k.left
	if k.n < 0 {
		k.n = -1 - k.n
		if w.counter {
			if room := w.count - cost - k.n; room >= 0 {
				wait = left - w.overlap(room, k.before)
			} else {
				wait = left + w.period - w.overlap(w.count-cost, k.n)
			}
		}
		d.Denied, d.RetryAfter = 1, stint.Never
		if cost <= w.count {
			d.RetryAfter = stint.Wait(duration(wait))
		}
	}
	if allowed && charges {
		d.Taken = cost
	}
	weighed := (k.before*left + w.period - 1) / w.period
	d.Remaining = max(w.count-k.n-weighed, 0)
	switch {
	case k.n > 0 && w.counter:
		d.ResetAfter = duration(left + w.period)
	case k.n > 0 || k.before > 0:
		d.ResetAfter = duration(left)
	}
	return d
}

// overlap returns by how many µs a window of n units may overlap and still count for no more
// than room.
func (w *fastWindow) overlap(room, n int64) int64 {
	if n == 0 {
		return w.period
	}
	return min(room*w.period/n, w.period)
}
