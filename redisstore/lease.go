package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
)

// leases are what this node has in hand under one limit. They may be used from
// many goroutines at once; each key is guarded by its shard's lock, which is
// never held over a call.
type leases struct {
	of    *single
	most  int64 // S
	table *table[lease]
}

// A lease is what this node has in hand of one key.
type lease struct {
	left  int64 // units in hand
	out   int64 // units taken for requests that are not decided yet; see hold
	end   int64 // from then on nothing in hand may be spent, on the node's clock
	epoch int64 // how often what was in hand ended

	low   int64 // with less in hand, more is asked for
	asked int64 // units that were asked of this node since
	since int64
	want  int64 // as many are asked for in leaseAhead

	until  int64 // before that, costs from denied on are denied:
	denied int64 // the server had no more
	early  int64 // before that, more is asked for only with too little in hand
	capped int64 // before that, there is no room among the leases
	used   int64 // the server's backlog in 1/div µs, when it last told,
	told   int64 // and when that was

	sequence int64
	asking   chan struct{} // closed when the call on its way is answered; nil without
	failed   error         // of the last call
	touched  int64         // when it was last asked for
}

const (
	leaseLife   = 2 * time.Second       // for the server
	leaseHeld   = leaseLife * 7 / 8     // for the node, from before it asked
	leaseAhead  = 50 * time.Millisecond // what is asked for should last so long
	leaseIdle   = 500 * time.Millisecond
	leasePause  = 10 * time.Millisecond // between calls of which one got less than it wanted
	leaseNoRoom = time.Millisecond      // until room among the leases is asked for again
	leaseLeast  = 16                    // units: for fewer it is not worth while
)

// leased returns S of a limit: 0 if it cannot be leased.
func (m *modes) leased(l stint.Limit) int64 {
	if l.Algorithm() != stint.GCRA || l.Validate() != nil {
		return 0
	}
	s := int64(float64(l.Burst()) * m.LeaseShare)
	if s < leaseLeast || s >= l.Burst() {
		return 0
	}
	return s
}

func newLeases(of *single, most int64) *leases {
	return &leases{of: of, most: most, table: newTable[lease]()}
}

// empty implements sweeper.
func (ls *leases) empty() bool { return ls.table.empty() }

// What became of an attempt to decide by a lease.
type outcome uint8

const (
	passed   outcome = iota
	refused          // nothing in hand, and the server has none
	byServer         // to be decided by the server
	wait             // for the answer of the call that is on its way
)

// A hold is what a request took of a layer here, which other layers may still
// deny.
type hold struct {
	kept     bool // it may be put back
	units    int64
	epoch    int64
	token    stint.Token // mode Share
	deadline time.Time   // of the operation, once it has waited
}

// take decides cost units of a key. With byServer it has decided nothing. What
// passes while there is enough in hand asks nobody and allocates nothing.
func (ls *leases) take(ctx context.Context, key string, cost int64, h *hold) (outcome, stint.Decision, error) {
	if cost > ls.most || !ls.of.current() {
		return byServer, stint.Decision{}, nil
	}
	shard := ls.table.of(key)
	for try := range 4 {
		shard.Lock()
		l := ls.get(shard, key)
		if l == nil {
			shard.Unlock()
			return byServer, stint.Decision{}, nil
		}
		now := ls.of.clock()
		if l.touched = now; try == 0 {
			l.asked += cost
		}
		result := l.try(now, cost, h)
		if result == passed && l.left >= l.low {
			shard.Unlock()
			return passed, stint.Decision{}, nil
		}
		d, answered, call := ls.look(shard, l, key, now, cost, result)
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
		if err := ls.of.await(ctx, answered, h); err != nil {
			return refused, d, err
		}
		shard.Lock()
		err := l.failed
		shard.Unlock()
		if err != nil {
			return refused, d, err
		}
	}
	return byServer, stint.Decision{}, nil // others were faster, again and again
}

// await waits for an answer that all who wait for the key share, until the
// operation's deadline.
func (m *modes) await(ctx context.Context, answered chan struct{}, h *hold) error {
	if h.deadline.IsZero() {
		h.deadline = time.Now().Add(m.store.timeout)
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

// get returns the key's lease, new if need be; nil if there are too many.
func (ls *leases) get(shard *tableShard[lease], key string) *lease {
	if shard.closed {
		return nil
	}
	l := shard.all[key]
	if l == nil {
		if ls.of.held.Load() >= int64(ls.of.LeaseKeys) {
			return nil
		}
		ls.of.held.Add(1)
		l = &lease{since: ls.of.clock()}
		shard.all[key] = l
		ls.of.once.Do(ls.of.start)
	}
	return l
}

// try decides by what is in hand and known. The shard is locked.
func (l *lease) try(now, cost int64, h *hold) outcome {
	if now >= l.end && l.left+l.out > 0 {
		l.left, l.out = 0, 0
		l.epoch++
	}
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

// look says what else there is to do when something passed with little left,
// or did not pass: what to answer, what to wait for, whom to ask. The shard is
// locked.
func (ls *leases) look(shard *tableShard[lease], l *lease, key string, now, cost int64, result outcome) (d stint.Decision, answered chan struct{}, call func(context.Context)) {
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
	call = ls.ask(shard, l, key, now, need)
	return d, l.asking, call
}

// expect notes how much will be asked of this node in leaseAhead: quick to see
// that it grows, slow that it shrinks.
func (l *lease) expect(now int64) {
	elapsed := now - l.since
	seen := float64(l.asked) * float64(leaseAhead) / float64(max(elapsed, int64(leasePause)))
	rate := int64(min(seen, 1<<50))
	switch {
	case elapsed >= int64(leaseAhead):
		l.want = max(rate, l.want-(l.want-rate)/4)
		l.asked, l.since = 0, now
	case rate > l.want:
		l.want = rate
	}
}

// denial returns the answer of the server's bucket, as it was told.
func (ls *leases) denial(l *lease, now, cost int64) stint.Decision {
	f := ls.of.form
	d := f.quick.answer(f.capacity, cost-l.left, -1-ls.backlog(l, now), false, true)
	d.Remaining = min(d.Remaining+l.left, f.capacity)
	d.RetryAfter = max(d.RetryAfter, stint.Wait(l.until-now))
	return d
}

// backlog returns the server's backlog as far as this node knows it.
func (ls *leases) backlog(l *lease, now int64) int64 {
	return max(l.used-max(now-l.told, 0)/1000*ls.of.form.quick.div, 0)
}

// describe returns the whole answer for what has passed.
func (ls *leases) describe(key string, cost int64) stint.Decision {
	f := ls.of.form
	d := stint.Decision{Allowed: true, Limit: f.capacity, Taken: cost}
	shard := ls.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	l := shard.all[key]
	if l == nil {
		return d
	}
	backlog := ls.backlog(l, ls.of.clock())
	d.Remaining = min(max(f.quick.full-backlog, 0)/f.quick.step+l.left, f.capacity)
	d.ResetAfter = f.quick.duration(backlog)
	return d
}

// settle ends a hold: what was not needed goes back, unless what it was from
// has ended.
func (ls *leases) settle(key string, h hold, needed bool) {
	shard := ls.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if l := shard.all[key]; l != nil && l.epoch == h.epoch {
		l.out -= h.units
		if !needed {
			l.left += h.units
		}
	}
}

// drop forgets what this node has in hand of a key.
func (ls *leases) drop(key string) {
	shard := ls.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if l := shard.all[key]; l != nil {
		l.left, l.out, l.until, l.denied = 0, 0, 0, 0
		l.epoch++
	}
}

// renew forgets that the server had no more of a key.
func (ls *leases) renew(key string) {
	shard := ls.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if l := shard.all[key]; l != nil {
		l.until = 0
	}
}
