package redisstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
)

// accounts are what this node has let through under one limit in mode Async. A limit with
// another count or burst that takes its place goes on with them.
type accounts struct {
	ledger[account]
	most int64  // U, see [Async]
	node string // the name that Redis knows the pushes by
}

// An account is what this node has let through of one key, and knows of the server's sum.
type account struct {
	of        *compiled   // the limit of the server's last answer, which follows; nil if there is none
	remaining int64       // includes all that was sent
	drain     *fastBucket // the parameters that the state drains by, if it is a bucket
	reset     int64       // ns
	retry     int64       // ns until one unit passes; 0 if it does
	at        int64       // when the answer came, on the node's clock

	decided  bool // requests have been decided since the last call
	unsent   int64
	sent     int64 // units on their way, or lost on it
	out      int64 // units of requests that another limit may still deny
	sequence int64 // the number of the call with the sent units
	asking   chan struct{}
	failed   error
	next     int64 // no call before that, unless a caller waits
	touched  int64
}

// newAccounts returns the accounts of a limit. If before is not nil, they go on with its state.
func newAccounts(of *boundLimit, before *accounts) *accounts {
	as := &accounts{newLedger[account](of), of.AsyncUnsent, of.newName()}
	if before != nil {
		as.table, as.node = before.table, before.node
	}
	if as.most <= 0 {
		as.most = max(of.limit.Capacity()/100, 1)
	}
	return as
}

// take decides about cost units of a key; with peek it changes nothing. If it returns
// byServer, it has decided nothing, and the server must.
func (as *accounts) take(ctx context.Context, key string, cost int64, peek bool, h *localCharge) (outcome, stint.Decision, error) {
	if cost > min(as.most, as.of.compiled.capacity) || !as.of.current() {
		return byServer, stint.Decision{}, nil
	}
	shard := as.table.of(key)
	for {
		shard.Lock()
		a := as.get(shard, key, func() *account {
			if as.of.store.flooded(as.partOf(key)) {
				return nil
			}
			return new(account)
		})
		if a == nil {
			shard.Unlock()
			return byServer, stint.Decision{}, nil
		}
		now := as.of.clock()
		a.touched, a.decided = now, a.decided || !peek
		result, d := as.try(a, now, cost, peek, h)
		call := as.due(shard, a, key, now, result == wait)
		answered := a.asking
		shard.Unlock()
		as.send(shard, a, call)
		if result != wait {
			return result, d, nil
		}
		if err := as.of.awaitShared(ctx, answered, h); err != nil {
			return refused, d, err
		}
		shard.Lock()
		err := a.failed
		shard.Unlock()
		if err != nil {
			return refused, d, err
		}
	}
}

// try decides by the last known sum and what this node has let through since.
// The shard is locked.
func (as *accounts) try(a *account, now, cost int64, peek bool, h *localCharge) (outcome, stint.Decision) {
	if a.of != as.of.compiled {
		return wait, stint.Decision{}
	}
	d := as.stands(a, now)
	if cost > d.Remaining {
		if d.RetryAfter = as.retry(a, now, cost); d.RetryAfter <= 0 && h.deadline.IsZero() {
			return wait, d // the sum is out of date: ask for it
		}
		d.Denied, d.RetryAfter = 1, max(d.RetryAfter, stint.Wait(time.Microsecond))
		return refused, d
	}
	if !peek {
		switch {
		case a.unsent+a.sent+cost > as.most:
			return wait, d
		case a.unsent+a.sent+a.out+cost > as.most:
			return byServer, d // the room is held by other requests: waiting for an answer gives none
		case h.kept:
			h.units = cost
			a.out += cost
		default:
			a.unsent += cost
		}
		d.Remaining -= cost
		d.Taken = cost
	}
	d.Allowed = true
	return passed, d
}

// held returns how many units this node has let through since the server answered.
func (a *account) held() int64 { return a.unsent + a.sent + a.out }

// empties returns how many µs it takes until nothing is in use.
func (a *account) empties(now int64) int64 { return (max(a.reset-max(now-a.at, 0), 0) + 999) / 1000 }

// stands returns the state as this node knows it now: a bucket has drained since the
// answer, and any other limit is free again after its reset.
func (as *accounts) stands(a *account, now int64) stint.Decision {
	capacity, remaining, reset := as.of.compiled.capacity, a.remaining, a.empties(now)
	if reset == 0 {
		remaining = capacity
	} else if a.drain != nil {
		remaining = a.drain.room(reset)
	}
	return stint.Decision{Limit: capacity, Remaining: max(remaining-a.held(), 0), ResetAfter: duration(reset)}
}

// retry returns when a cost may pass. Under a bucket, whose drain is known, it is exact. Under
// other limits it is the least wait, until the next answer of the server; 0 or less if that is due.
func (as *accounts) retry(a *account, now, cost int64) stint.Wait {
	if a.drain != nil {
		return a.drain.wait(a.empties(now), a.held()+cost)
	}
	return stint.Wait(max(a.retry, int64(as.of.AsyncPeriod)) - max(now-a.at, 0))
}

// due returns the call to make now, nil if none is due. The shard is locked.
func (as *accounts) due(shard *tableShard[account], a *account, key string, now int64, awaited bool) func(context.Context) {
	if a.asking == nil && (awaited || now >= a.next && (a.unsent > as.most/2 || now-a.at >= int64(as.of.AsyncPeriod))) {
		return as.push(shard, a, key, now)
	}
	return nil
}

// send makes a call, if there is one, in the background.
func (as *accounts) send(shard *tableShard[account], a *account, call func(context.Context)) {
	if call != nil && !as.of.background(call) {
		as.answered(shard, a, nil, stint.ErrClosed)
	}
}

// push returns the call that sends unsent units and asks for the sum. Units that may
// have been lost on their way are sent again first, under the same number, so that they
// count once. A call that only asks has number 0. The shard is locked.
func (as *accounts) push(shard *tableShard[account], a *account, key string, now int64) func(context.Context) {
	a.asking = make(chan struct{})
	if a.sent == 0 {
		a.sent, a.unsent = a.unsent, 0
		a.sequence = max(a.sequence+1, now/1000)
	}
	units, sequence := a.sent, a.sequence
	if !a.decided && units == 0 {
		sequence = 0
	}
	a.decided = false
	return func(ctx context.Context) {
		s := as.of.store
		one := as.partOf(key)
		last := one.begin + ":pushed:" + as.node + ":" + one.limit.segment + one.end
		reply, err := s.longAnswer(ctx, []part{*one}, []string{last}, "n", number(sequence), number(units))
		as.answered(shard, a, reply, err)
	}
}

// partOf returns a key under the limit as a part of a request.
func (as *accounts) partOf(key string) *part {
	begin, end := as.of.store.names.around(key)
	return &part{compiled: as.of.compiled, begin: begin, end: end, key: key, limit: as.of.strict.limits[0], weight: 1}
}

// answered stores the answer, and wakes those that wait for it.
func (as *accounts) answered(shard *tableShard[account], a *account, reply answer, err error) {
	shard.Lock()
	defer shard.Unlock()
	a.failed = uncharged(err)
	close(a.asking)
	a.asking = nil
	if err != nil {
		a.next = as.of.clock() + int64(as.of.AsyncPeriod)
		return
	}
	a.of, a.sent, a.at = as.of.compiled, 0, as.of.clock()
	one := reply[1:]
	a.remaining, a.drain = one[answersRemaining], a.of.drain(one)
	a.reset, a.retry = int64(duration(one[answersReset])), int64(duration(one[answersRetry]))
}

// settle ends the hold of a request of several limits: needed if it was let through. If
// another limit denied it, nothing is sent.
func (as *accounts) settle(key string, h localCharge, needed bool) {
	shard := as.table.of(key)
	shard.Lock()
	a := shard.all[key] // it is there while units are out
	a.out -= h.units
	var call func(context.Context)
	if needed {
		a.unsent += h.units
		call = as.due(shard, a, key, as.of.clock(), false)
	}
	shard.Unlock()
	as.send(shard, a, call)
}

// drop forgets the server's answer for a key, and the unsent units.
func (as *accounts) drop(key string) {
	as.known(key, func(a *account) { a.of, a.unsent = nil, 0 })
}

// renew makes the next decision about a key ask for the sum first.
func (as *accounts) renew(key string) {
	as.known(key, func(a *account) { a.of = nil })
}

// pushedAtOnce is how many pushes of a sweep may be on their way or wait to share a call:
// two full calls.
const pushedAtOnce = 2 * maxBatch

// sweep implements sweeper: it sends unsent units, and forgets idle keys.
func (as *accounts) sweep(last bool) {
	as.sweepBy(last, pushedAtOnce, func(shard *tableShard[account], key string, a *account, now int64) (call func(context.Context), forget bool) {
		switch {
		case a.asking != nil:
		case a.held() > a.out && (last || now-a.at >= int64(as.of.AsyncPeriod)):
			return as.push(shard, a, key, now), false
		case a.held() == 0 && (last || now-a.touched >= 10*int64(as.of.AsyncPeriod)):
			return nil, true
		}
		return nil, false
	})
}
