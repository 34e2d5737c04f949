package redisstore

import (
	"time"

	"github.com/stint-dev/stint"
)

// denials are what one limit has denied, each kept until the denied cost would
// pass, at most Modes.DenialCache. They may be used from many goroutines at
// once.
type denials struct {
	of    *single
	table *table[denial]
}

// A denial is the server's answer to the least cost that it has denied.
type denial struct {
	cost     int64
	at       int64 // when the answer came, on the node's clock
	until    int64
	settled  int64 // modes.settled then
	decision stint.Decision
}

// deniedPerShard bounds the table: 16,384 keys of a limit.
const deniedPerShard = 256

func newDenials(of *single) *denials {
	if of.DenialCache < 0 || of.limit.CountDenied() {
		return nil
	}
	return &denials{of, newTable[denial]()}
}

// answer returns what is known of a take: that it is denied.
func (d *denials) answer(key string, cost int64) (stint.Decision, bool) {
	if d == nil || cost <= 0 {
		return stint.Decision{}, false
	}
	shard := d.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	known := shard.all[key]
	if known == nil {
		return stint.Decision{}, false
	}
	now := d.of.clock()
	if now >= known.until || now < known.at || known.settled != d.of.settled.Load() || !d.of.current() {
		delete(shard.all, key)
		return stint.Decision{}, false
	}
	if cost < known.cost {
		return stint.Decision{}, false
	}
	return known.after(d.of.form, cost, (now-known.at)/1000*1000), true
}

// after returns the answer for a cost so many ns later. What a bucket answers
// follows from its backlog; of other kinds the wait for a greater cost than the
// denied one, and what has become free for a lesser one, are not known: they
// are the least that they can be.
func (d *denial) after(f *form, cost, elapsed int64) stint.Decision {
	out := d.decision
	out.ResetAfter -= time.Duration(elapsed)
	if q := f.quick; q != nil {
		backlog := max(int64(out.ResetAfter), 0) / 1000 * q.div
		of := q.answer(f.capacity, cost, -1-backlog, false, true)
		if cost == d.cost && d.decision.RetryAfter != stint.Never {
			of.RetryAfter = d.decision.RetryAfter - stint.Wait(elapsed)
		}
		return of
	}
	switch {
	case cost > f.capacity:
		out.RetryAfter = stint.Never
	case out.RetryAfter != stint.Never:
		out.RetryAfter -= stint.Wait(elapsed)
	}
	return out
}

// learn keeps a denial of the server, and drops what is known when something
// passed.
func (d *denials) learn(key string, cost, settled int64, answer stint.Decision) {
	if d == nil || cost <= 0 {
		return
	}
	shard := d.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if answer.Allowed {
		delete(shard.all, key)
		return
	}
	wait := d.of.DenialCache
	if retry, ok := answer.RetryAfter.Duration(); ok {
		wait = min(wait, retry)
	}
	if len(shard.all) >= deniedPerShard && shard.all[key] == nil {
		for other := range shard.all { // any will do
			delete(shard.all, other)
			break
		}
	}
	now := d.of.clock()
	shard.all[key] = &denial{cost: cost, at: now, until: now + int64(wait), settled: settled, decision: answer}
}
