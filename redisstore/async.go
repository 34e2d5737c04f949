package redisstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
)

// accounts are what this node has let through under one limit in mode Async. One of other
// numbers that takes the limit's place goes on with them.
type accounts struct {
	ledger[account]
	most int64  // U
	node string // whose pushes Redis numbers
}

// An account is one key's.
type account struct {
	of        *compiled   // the limit that got the answer which follows; nil: it is not known
	remaining int64       // the server's, with all that was sent
	drain     *fastBucket // by which it drains, if it is a bucket
	reset     int64       // ns
	retry     int64       // ns until one unit passes; 0 if it does
	at        int64       // when that came, on the node's clock

	decided  bool // something, since the last call
	unsent   int64
	sent     int64 // on their way, or lost on it
	out      int64 // of requests that another limit may still deny
	sequence int64 // theirs
	asking   chan struct{}
	failed   error
	next     int64 // no call before that, unless a caller waits
	touched  int64
}

// newAccounts returns those of a limit, which takes the place of another unless before is nil.
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

// take decides cost units of a key; peek changes nothing. With byServer it has
// decided nothing.
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
			return wait, d // for a sum that is not out of date
		}
		d.Denied, d.RetryAfter = 1, max(d.RetryAfter, stint.Wait(time.Microsecond))
		return refused, d
	}
	if !peek {
		switch {
		case a.unsent+a.sent+cost > as.most:
			return wait, d
		case a.unsent+a.sent+a.out+cost > as.most:
			return byServer, d // to wait for other requests would be in vain
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

// held is what this node has let through since the server answered.
func (a *account) held() int64 { return a.unsent + a.sent + a.out }

// empties returns how many µs it takes until nothing is in use.
func (a *account) empties(now int64) int64 { return (max(a.reset-max(now-a.at, 0), 0) + 999) / 1000 }

// stands returns the state as this node knows it: a bucket drains meanwhile,
// other kinds are free again when their reset has come.
func (as *accounts) stands(a *account, now int64) stint.Decision {
	capacity, remaining, reset := as.of.compiled.capacity, a.remaining, a.empties(now)
	if reset == 0 {
		remaining = capacity
	} else if a.drain != nil {
		remaining = a.drain.room(reset)
	}
	return stint.Decision{Limit: capacity, Remaining: max(remaining-a.held(), 0), ResetAfter: duration(reset)}
}

// retry returns when a cost may pass: under a bucket, whose drain is known, when it does; under
// others at the least, when the sum is known anew, and not above 0 if it may by now.
func (as *accounts) retry(a *account, now, cost int64) stint.Wait {
	if a.drain != nil {
		return a.drain.wait(a.empties(now), a.held()+cost)
	}
	return stint.Wait(max(a.retry, int64(as.of.AsyncPeriod)) - max(now-a.at, 0))
}

// due returns the call that is to be made now, if any. The shard is locked.
func (as *accounts) due(shard *tableShard[account], a *account, key string, now int64, awaited bool) func(context.Context) {
	if a.asking == nil && (awaited || now >= a.next && (a.unsent > as.most/2 || now-a.at >= int64(as.of.AsyncPeriod))) {
		return as.push(shard, a, key, now)
	}
	return nil
}

// send makes a call, if there is one, beside the request.
func (as *accounts) send(shard *tableShard[account], a *account, call func(context.Context)) {
	if call != nil && !as.of.background(call) {
		as.answered(shard, a, nil, stint.ErrClosed)
	}
}

// push returns the call that sends what is unsent, and asks how the sum stands.
// What may have been lost on its way is sent again, under its number, before
// anything else. A call that comes of looks alone has number 0. The shard is locked.
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

// partOf returns a key as a part of a request.
func (as *accounts) partOf(key string) *part {
	begin, end := as.of.store.names.place(key)
	return &part{compiled: as.of.compiled, begin: begin, end: end, key: key, limit: as.of.strict.limits[0], weight: 1}
}

// answered takes the answer in, and wakes who waits for it.
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

// settle ends what a request of several limits held: it was let through, or another
// limit denied it, and nothing was sent.
func (as *accounts) settle(key string, h localCharge, needed bool) {
	shard := as.table.of(key)
	shard.Lock()
	a := shard.all[key] // which is there while something is out
	a.out -= h.units
	var call func(context.Context)
	if needed {
		a.unsent += h.units
		call = as.due(shard, a, key, as.of.clock(), false)
	}
	shard.Unlock()
	as.send(shard, a, call)
}

// drop forgets what is known of a key, and what was not sent.
func (as *accounts) drop(key string) {
	as.known(key, func(a *account) { a.of, a.unsent = nil, 0 })
}

// renew has the sum asked for before anything else is decided.
func (as *accounts) renew(key string) {
	as.known(key, func(a *account) { a.of = nil })
}

// pushedAtOnce is how many pushes of a sweep are on their way or wait to travel
// together: two full calls.
const pushedAtOnce = 2 * maxBatch

// sweep implements sweeper: what was not sent is, and what is idle forgotten.
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
