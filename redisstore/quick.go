package redisstore

import (
	"context"
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
	if s.flooded() {
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
