package redisstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// isQuick reports whether all parts are buckets of small numbers, in units of the
// request: then the script's short way answers with backlogs, from which
// all else follows.
func isQuick(parts []part) bool {
	for i := range parts {
		if parts[i].form.quick == nil || parts[i].weight != 1 {
			return false
		}
	}
	return true
}

// quick takes or peeks the short way.
func (s *Store) quick(ctx context.Context, op stint.Op, parts []part, cost int64) (d stint.Decision, err error) {
	verb := "T"
	if op == stint.OpPeek {
		verb = "P"
	}
	room := make([]string, 5*len(parts)+3) // of both, and the clock's
	keys := room[:len(parts):len(parts)]
	args := append(room[len(parts):len(parts)], verb, number(cost))
	for i := range parts {
		keys[i] = state(parts[i].begin, parts[i].end, parts[i].limit)
		args = append(args, parts[i].form.args...)
	}
	if s.flooded(&parts[0]) {
		return s.quickOverflow(ctx, op, parts, cost, keys, args)
	}
	reply, err := s.batched(ctx, false, 0, keys, args)
	if err != nil {
		return d, err
	}
	s.spendQuick(op, parts, cost, reply)
	if one, ok := reply.(int64); ok && len(parts) == 1 {
		d := parts[0].form.quick.answer(parts[0].form.capacity, cost, one, one >= 0, op != stint.OpPeek)
		if parts[0].answer != nil {
			*parts[0].answer = d
		}
		return d, nil
	}
	list, ok := reply.([]any)
	if !ok || len(list) != len(parts) {
		return d, unexpected(reply)
	}
	return joinQuick(parts, list, cost, op != stint.OpPeek)
}

// askQuick looks at the parts of a group, or charges them so that it can be given
// back.
func (s *Store) askQuick(ctx context.Context, parts []part, verb string, cost int64) (a asked) {
	keys, args := make([]string, len(parts)), make([]string, 0, 4*len(parts)+5)
	args = append(args, strings.ToUpper(verb), number(cost))
	for i := range parts {
		keys[i] = state(parts[i].begin, parts[i].end, parts[i].limit)
		args = append(args, parts[i].form.args...)
	}
	var reply any
	var err error
	if s.flooded(&parts[0]) {
		reply, a.cells, err = s.evalCells(ctx, parts, keys, args)
	} else {
		reply, err = s.batched(ctx, false, 0, keys, args)
	}
	if err != nil {
		return asked{err: err}
	}
	list, ok := reply.([]any)
	if one, is := reply.(int64); is {
		list, ok = []any{one}, true
	}
	charged := verb == "k" && len(list) == len(parts)+1
	if !ok || len(list) != len(parts) && !charged {
		return asked{err: unexpected(reply)}
	}
	backlogs, at := list[:len(parts)], int64(0)
	if charged {
		at, _ = list[len(parts)].(int64)
		if a.cells == "" {
			s.spendQuick(stint.OpTake, parts, cost, backlogs)
		}
	}
	allowed := !slices.ContainsFunc(backlogs, func(b any) bool { n, _ := b.(int64); return n < 0 })
	a.answer = append(make(answer, 0, 1+answersEach*len(parts)), cost)
	for i, b := range backlogs {
		n, ok := b.(int64)
		if !ok {
			return asked{err: unexpected(b)}
		}
		q := parts[i].form.quick
		a.answer = append(a.answer, numbers(q.answer(parts[i].form.capacity, cost, n, allowed, verb == "k"))...)
		if charged {
			a.marks = append(a.marks, number(at+n/q.div)+":"+number(n%q.div))
		}
	}
	s.countCells(a.cells, a.denied())
	return a
}

// numbers returns a limit's answer as the long way has it.
func numbers(d stint.Decision) []int64 {
	n := []int64{1, d.Remaining, int64(d.ResetAfter / time.Microsecond), int64(d.RetryAfter / stint.Wait(time.Microsecond)), int64(d.Delay / time.Microsecond)}
	if d.Denied != 0 {
		n[answersOK] = 0
	}
	if d.RetryAfter == stint.Never {
		n[answersRetry] = -1
	}
	return n
}

// joinQuick makes one decision of several backlogs, and tells each limit its
// own.
func joinQuick(parts []part, backlogs []any, cost int64, charges bool) (d stint.Decision, err error) {
	var denied stint.Mask
	for i, b := range backlogs {
		n, ok := b.(int64)
		if !ok {
			return d, unexpected(b)
		}
		if n < 0 {
			denied |= 1 << uint(i)
		}
	}
	for i, b := range backlogs {
		p := &parts[i]
		of := p.form.quick.answer(p.form.capacity, cost, b.(int64), denied == 0, charges)
		if p.answer != nil {
			*p.answer = of
			p.answer.Allowed = !denied.Has(i)
		}
		if of.Tightest = i; i == 0 {
			d = of
		} else {
			d.Join(&of)
		}
	}
	d.Denied = denied
	return d, nil
}

// answer returns what one limit says: backlog is what it is in 1/div µs after the
// decision, or −1 less that where the limit denies; allowed is for the request.
func (q *quick) answer(capacity, cost, backlog int64, allowed, charges bool) stint.Decision {
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

// duration rounds a stretch of 1/div µs up to whole ones.
func (q *quick) duration(n int64) time.Duration {
	return time.Duration((n+q.div-1)/q.div) * time.Microsecond
}
