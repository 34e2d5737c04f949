package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
)

// leases are the units that this node has in hand under one limit in mode Lease.
type leases struct {
	ledger[lease]
	most int64 // S, see [Lease]
}

// A lease is the units that this node has in hand of one key.
type lease struct {
	left  int64 // units in hand
	out   int64 // units taken for requests that other limits may still deny
	end   int64 // when units in hand can no longer be spent, on the node's clock
	epoch int64 // how often units in hand have ended

	low    int64 // with fewer units in hand, more are asked for
	demand int64 // units that requests asked for, from the time since on
	since  int64
	want   int64 // how many units requests are expected to ask for in leaseAhead

	until  int64 // until then, costs of denied units or more are denied here,
	denied int64 // since the server had no more
	early  int64 // until then, more units are asked for only if too few are in hand
	capped int64 // until then, there is no room among the leases
	used   int64 // the server's backlog in 1/div µs at its last answer
	usedAt int64 // when that answer came

	sequence int64
	asking   chan struct{} // closed when the call on its way is answered; nil without a call
	failed   error         // of the last call
	touched  int64         // when it was last asked for
}

const (
	leaseLife   = 2 * time.Second       // how long a lease counts for the server
	leaseHeld   = leaseLife * 7 / 8     // how long it counts for the node, from before the call
	leaseAhead  = 50 * time.Millisecond // how long the units of one call should last
	leaseIdle   = 500 * time.Millisecond
	leasePause  = 10 * time.Millisecond // the pause after a call that got fewer units than it wanted
	leaseNoRoom = time.Millisecond      // the pause after a call that found no room among the leases
	leaseLeast  = 16                    // the least units worth a lease
)

// leased returns S of a limit, 0 if the limit cannot be leased.
func (m *modes) leased(l stint.Limit) int64 {
	if !l.Algorithm().Evenly() || l.Algorithm().Queues() || l.Ban() > 0 || l.Validate() != nil || l.Debt() > 0 && l.Debt() < l.Burst() {
		return 0
	}
	s := int64(float64(l.Burst()) * m.LeaseShare)
	if s < leaseLeast || s >= l.Burst() {
		return 0
	}
	return s
}

func newLeases(of *boundLimit, most int64) *leases {
	return &leases{newLedger[lease](of), most}
}

// units returns how many units are in hand, of all keys together.
func (ls *leases) units() (n int64) {
	for shard := range ls.table.locked() {
		for _, l := range shard.all {
			n += l.left
		}
	}
	return n
}

// An outcome is the result of an attempt to decide in this process.
type outcome uint8

const (
	passed   outcome = iota
	refused          // too little is in hand, and the server has no more
	byServer         // the server must decide
	wait             // the answer of a call is needed
)

// A localCharge is what a request took in this process from a layer. It is put back if
// another layer denies the request.
type localCharge struct {
	kept     bool // it can be put back
	units    int64
	epoch    int64
	id       stint.ReservationID // in mode Share
	deadline time.Time           // the deadline of the operation, once it has waited
}

// within returns a context for the rest of the operation, with its deadline if it has waited.
func (h *localCharge) within(ctx context.Context, s *Store) (context.Context, context.CancelFunc) {
	if h.deadline.IsZero() {
		return ctx, func() {}
	}
	return s.by(ctx, h.deadline)
}

// take decides about cost units of a key. If it returns byServer, it has decided nothing,
// and the server must. A request that passes while enough is in hand makes no call and
// allocates nothing.
func (ls *leases) take(ctx context.Context, key string, cost int64, h *localCharge) (outcome, stint.Decision, error) {
	if cost > ls.most || !ls.of.current() {
		return byServer, stint.Decision{}, nil
	}
	shard := ls.table.of(key)
	for try := range 4 {
		shard.Lock()
		l := ls.get(shard, key, func() *lease { return &lease{since: ls.of.clock()} })
		if l == nil {
			shard.Unlock()
			return byServer, stint.Decision{}, nil
		}
		now := ls.of.clock()
		if l.touched = now; try == 0 {
			l.demand += cost
		}
		result := l.try(now, cost, h)
		if result == passed && l.left >= l.low {
			shard.Unlock()
			return passed, stint.Decision{}, nil
		}
		d, answered, call := ls.next(shard, l, key, now, cost, result)
		shard.Unlock()
		if call != nil && !ls.of.background(call) {
			ls.answered(shard, l, now, nil, stint.ErrClosed)
		}
		if result != wait {
			return result, d, nil
		}
		if answered == nil {
			return byServer, d, nil
		}
		if err := ls.of.awaitShared(ctx, answered, h); err != nil {
			return refused, d, err
		}
		shard.Lock()
		err := l.failed
		shard.Unlock()
		if err != nil {
			return refused, d, err
		}
	}
	return byServer, stint.Decision{}, nil // other requests took the units each time
}

// awaitShared waits for an answer that all waiting requests of a key share, until the
// operation's deadline.
func (m *modes) awaitShared(ctx context.Context, answered chan struct{}, h *localCharge) error {
	if h.deadline.IsZero() {
		h.deadline = m.store.until(ctx)
	}
	within, cancel := context.WithDeadline(ctx, h.deadline)
	defer cancel()
	select {
	case <-answered:
		return nil
	case <-within.Done():
		return fmt.Errorf("%w: no answer to who waits for it: %w", ErrNotExecuted, within.Err())
	}
}

// try decides by what is in hand and what is known of the server. The shard is locked.
func (l *lease) try(now, cost int64, h *localCharge) outcome {
	l.lapse(now)
	switch {
	case l.left >= cost:
		l.left -= cost
		if h.kept {
			h.units, h.epoch = cost, l.epoch
			l.out += cost
		}
		return passed
	case now < l.until && cost >= l.denied:
		return refused
	}
	return wait
}

// lapse voids units in hand whose time has ended. The shard is locked.
func (l *lease) lapse(now int64) {
	if now >= l.end && l.left+l.out > 0 {
		l.left, l.out = 0, 0
		l.epoch++
	}
}

// next says how to go on when a request passed with little left, or did not pass: with
// the answer d, by waiting for answered, and by making call. The shard is locked.
func (ls *leases) next(shard *tableShard[lease], l *lease, key string, now, cost int64, result outcome) (d stint.Decision, answered chan struct{}, call func(context.Context)) {
	switch {
	case result == refused:
		return ls.denial(l, now, cost), nil, nil
	case l.asking != nil:
		return d, l.asking, nil
	case result == wait && now < l.capped, result == passed && now < max(l.until, l.early):
		return d, nil, nil
	}
	if l.expect(now); l.want < leaseLeast {
		return d, nil, nil
	}
	need := int64(1)
	if result == wait {
		need = cost
	}
	call = ls.extend(shard, l, key, now, need)
	return d, l.asking, call
}

// expect estimates how many units requests will ask for in leaseAhead. The estimate grows
// at once, and shrinks slowly.
func (l *lease) expect(now int64) {
	elapsed := now - l.since
	seen := float64(l.demand) * float64(leaseAhead) / float64(max(elapsed, int64(leasePause)))
	rate := int64(min(seen, 1<<50))
	switch {
	case elapsed >= int64(leaseAhead):
		l.want = max(rate, l.want-(l.want-rate)/4)
		l.demand, l.since = 0, now
	case rate > l.want:
		l.want = rate
	}
}

// denial returns the decision of the server's bucket, computed from its last answer.
func (ls *leases) denial(l *lease, now, cost int64) stint.Decision {
	f := ls.of.compiled
	d := f.fast.answer(f.capacity, cost-l.left, -1-ls.backlog(l, now), false, true)
	d.Remaining = min(d.Remaining+l.left, f.capacity)
	d.RetryAfter = max(d.RetryAfter, stint.Wait(l.until-now))
	return d
}

// backlog returns the server's backlog now, computed from its last answer.
func (ls *leases) backlog(l *lease, now int64) int64 {
	return max(l.used-max(now-l.usedAt, 0)/1000*ls.of.compiled.fast.div, 0)
}

// describe returns the decision for a request that has passed.
func (ls *leases) describe(key string, cost int64) stint.Decision {
	f := ls.of.compiled
	d := stint.Decision{Allowed: true, Limit: f.capacity, Taken: cost}
	ls.known(key, func(l *lease) {
		backlog := ls.backlog(l, ls.of.clock())
		d.Remaining = min(max(f.fast.full-backlog, 0)/f.fast.step+l.left, f.capacity)
		d.ResetAfter = f.fast.duration(backlog)
	})
	return d
}

// settle ends a hold. If the units were not needed, they go back, unless their time has
// ended.
func (ls *leases) settle(key string, h localCharge, needed bool) {
	ls.known(key, func(l *lease) {
		if l.epoch != h.epoch {
			return
		}
		if l.out -= h.units; !needed {
			l.left += h.units
		}
	})
}

// drop forgets the units that this node has in hand of a key.
func (ls *leases) drop(key string) {
	ls.known(key, func(l *lease) {
		l.left, l.out, l.until, l.denied = 0, 0, 0, 0
		l.epoch++
	})
}

// renew forgets that the server had no more of a key.
func (ls *leases) renew(key string) {
	ls.known(key, func(l *lease) { l.until = 0 })
}

// extend returns the call that asks the server for more units of a key, at least need. The
// shard is locked; make the call after unlocking it.
func (ls *leases) extend(shard *tableShard[lease], l *lease, key string, now, need int64) func(context.Context) {
	l.asking = make(chan struct{})
	held := l.left + l.out
	want := max(need, l.want-l.left)
	sequence := l.next(now)
	return func(ctx context.Context) {
		g := &grant{need: need, want: want}
		g.begin, _ = ls.of.store.names.around(key)
		err := ls.eval(ctx, key, sequence, 0, held, need, want, func(reply any) (err error) {
			if reply != nil { // nil says that the state drains by other parameters
				g.numbers, err = readNumbers(reply, 3)
			}
			return err
		})
		ls.answered(shard, l, now, g, err)
	}
}

// returnUnused returns the call that gives units in hand back to the server.
func (ls *leases) returnUnused(shard *tableShard[lease], l *lease, key string, now int64) func(context.Context) {
	l.asking = make(chan struct{})
	back, held := l.left, l.out
	l.left = 0
	sequence := l.next(now)
	return func(ctx context.Context) {
		_ = ls.eval(ctx, key, sequence, back, held, 0, 0, unread) // if it fails, the units count as spent
		ls.answered(shard, l, now, nil, nil)
	}
}

// next returns the number of the next call. It is greater than all earlier ones of the key,
// so that the server ignores a call that a later one has overtaken.
func (l *lease) next(now int64) int64 {
	l.sequence = max(l.sequence+1, now/1000)
	return l.sequence
}

// eval runs the script's part lease.lua. The call may share a batch with other requests.
func (ls *leases) eval(ctx context.Context, key string, sequence, back, held, need, want int64, read reader) error {
	s := ls.of.store
	begin, end := s.names.around(key)
	known := ls.of.strict.limits[0]
	keys := []string{state(begin, end, known), begin + ":lease:" + known.segment + end}
	args := append(append(make([]string, 0, 14), "L"), ls.of.compiled.args...)
	args = append(args, ls.of.node, number(sequence), number(ls.most), number(back), number(held),
		number(need), number(want), number(int64(leaseLife/time.Microsecond)))
	return s.batched(ctx, true, 0, keys, args, read)
}

// uncharged converts an error of a call that serves several requests: none of them was
// charged, so it becomes ErrNotExecuted.
func uncharged(err error) error {
	if err == nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrConfiguration) {
		return err
	}
	return fmt.Errorf("%w: %v", ErrNotExecuted, err) //nolint:errorlint // what is inside may say that nothing was charged: the class is the first one alone
}

// A grant is an answer of the server, with the question.
type grant struct {
	numbers    []int64 // the answer
	begin      string  // the beginning of the key's names
	need, want int64
}

// answered stores the answer, and wakes those that wait for it. A failed call may have run:
// then the granted units are lost, and the server counts them as in hand until the lease
// ends.
func (ls *leases) answered(shard *tableShard[lease], l *lease, asked int64, g *grant, err error) {
	shard.Lock()
	defer shard.Unlock()
	l.failed = uncharged(err)
	close(l.asking)
	l.asking = nil
	if err != nil || g == nil {
		return
	}
	now := ls.of.clock()
	if g.numbers == nil { // the next strict decision converts the state to this limit
		l.capped = now + int64(leaseNoRoom)
		return
	}
	granted, used, room := g.numbers[0], g.numbers[1], g.numbers[2]
	ls.of.store.spendLease(&part{compiled: ls.of.compiled, begin: g.begin}, granted, used)
	l.lapse(now) // the server may have ended the old lease before the call, and leased its units to others
	l.used, l.usedAt = used, now
	l.end = asked + int64(leaseHeld)
	l.left += granted
	l.low = l.left / 2
	if granted < g.want {
		ls.short(l, g, granted, room, now)
	}
}

// short notes why fewer units were granted than wanted, and until when it is useless to ask
// again.
func (ls *leases) short(l *lease, g *grant, granted, room, now int64) {
	pause := now + int64(leasePause)
	if granted == 0 && room < g.need {
		l.capped = now + int64(leaseNoRoom)
		return
	}
	if granted == room {
		l.early = pause
		return
	}
	l.denied = 1
	if granted == 0 {
		l.denied = g.need
	}
	q := ls.of.compiled.fast
	retry := int64(q.duration(max(l.used+l.denied*q.step-q.full, 0)))
	l.until = max(pause, now+min(retry, int64(max(ls.of.DenialCache, 0))))
}

// sweep implements sweeper: it gives back units that are idle or end soon, and forgets keys
// with nothing in hand.
func (ls *leases) sweep(last bool) {
	ls.sweepBy(last, sweptAtOnce, func(shard *tableShard[lease], key string, l *lease, now int64) (call func(context.Context), forget bool) {
		idle := now - l.touched
		switch {
		case l.asking != nil:
		case !ls.of.current(): // the limit has changed, so its lease cannot be spent
			return nil, true
		case l.left > 0 && now < l.end && (last || idle >= int64(leaseIdle) || l.end-now < int64(leaseHeld/4)):
			return ls.returnUnused(shard, l, key, now), false
		case last || idle >= int64(leaseLife) && l.out == 0:
			return nil, true
		}
		return nil, false
	})
}

// sweptAtOnce is how many calls of a sweep may be on their way.
const sweptAtOnce = 32
