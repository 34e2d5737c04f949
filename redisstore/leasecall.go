package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

// ask returns the call that asks the server for more of a key, at least need.
// The shard is locked; the call is made when it no longer is.
func (ls *leases) ask(shard *tableShard[lease], l *lease, key string, now, need int64) func(context.Context) {
	l.asking = make(chan struct{})
	held := l.left + l.out
	want := max(need, l.want-l.left)
	sequence := l.next(now)
	return func(ctx context.Context) {
		reply, err := ls.eval(ctx, key, sequence, 0, held, need, want)
		begin, _ := ls.of.store.names.place(key)
		ls.answered(shard, l, now, &grant{reply: reply, begin: begin, need: need, want: want}, err)
	}
}

// giveBack returns the call that gives back what is in hand.
func (ls *leases) giveBack(shard *tableShard[lease], l *lease, key string, now int64) func(context.Context) {
	l.asking = make(chan struct{})
	back, held := l.left, l.out
	l.left = 0
	sequence := l.next(now)
	return func(ctx context.Context) {
		_, _ = ls.eval(ctx, key, sequence, back, held, 0, 0) // what is lost counts as spent
		ls.answered(shard, l, now, nil, nil)
	}
}

// next returns the number of the next call, greater than those of earlier
// leases of the key: of calls that overtake each other the later counts.
func (l *lease) next(now int64) int64 {
	l.sequence = max(l.sequence+1, now/1000)
	return l.sequence
}

// eval runs the script's part lease.lua.
func (ls *leases) eval(ctx context.Context, key string, sequence, back, held, need, want int64) (any, error) {
	s := ls.of.store
	begin, end := s.names.place(key)
	known := ls.of.strict.limits[0]
	keys := []string{state(begin, end, known), begin + ":lease:" + known.segment + end}
	args := append(append(make([]string, 0, 14), "L"), ls.of.form.args...)
	args = append(args, ls.of.node, number(sequence), number(ls.most), number(back), number(held),
		number(need), number(want), number(int64(leaseLife/time.Microsecond)))
	return s.eval(ctx, keys, s.clock(args))
}

// uncharged returns an error of a call that was not made for one request: none
// was charged.
func uncharged(err error) error {
	if err == nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrConfiguration) {
		return err
	}
	return fmt.Errorf("%w: %v", ErrNotExecuted, err)
}

// A grant is an answer of the server, and what it was to.
type grant struct {
	reply      any
	begin      string // of the key's names
	need, want int64
}

// answered takes the answer in, and wakes who waits for it. Of a failed call it
// is not known whether it ran: if so, what it was granted is lost, and counts
// as in hand until it ends.
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
	numbers, ok := g.reply.([]any)
	var granted, used, room int64
	if ok && len(numbers) == 3 {
		granted, _ = numbers[0].(int64)
		used, _ = numbers[1].(int64)
		room, _ = numbers[2].(int64)
	} else { // a state of another form: a strict decision mends it
		l.capped = now + int64(leaseNoRoom)
		return
	}
	ls.of.store.spendLease(&part{form: ls.of.form, begin: g.begin}, granted, used)
	l.used, l.told = used, now
	l.end = asked + int64(leaseHeld)
	l.left += granted
	l.low = l.left / 2
	if granted < g.want {
		ls.short(l, g, granted, room, now)
	}
}

// short notes why less was granted than was wanted, and until when asking again
// would not help.
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
	q := ls.of.form.quick
	retry := int64(q.duration(max(l.used+l.denied*q.step-q.full, 0)))
	l.until = max(pause, now+min(retry, int64(max(ls.of.DenialCache, 0))))
}

// sweep implements sweeper: what is idle is given back, and what ends soon; a
// key that has nothing in hand is forgotten.
func (ls *leases) sweep(last bool) {
	var calls []func(context.Context)
	for i := range ls.table.shards {
		shard := &ls.table.shards[i]
		shard.Lock()
		shard.closed = shard.closed || last
		now := ls.of.clock()
		for key, l := range shard.all {
			idle := now - l.touched
			switch {
			case l.asking != nil:
			case !ls.of.current(): // what it has in hand is of a limit that was: nobody spends it
				delete(shard.all, key)
				ls.of.held.Add(-1)
			case l.left > 0 && now < l.end && (last || idle >= int64(leaseIdle) || l.end-now < int64(leaseHeld/4)):
				calls = append(calls, ls.giveBack(shard, l, key, now))
			case last || idle >= int64(leaseLife) && l.out == 0:
				delete(shard.all, key)
				ls.of.held.Add(-1)
			}
		}
		shard.Unlock()
	}
	within := time.Minute
	if last {
		within = time.Second
	}
	each(calls, within)
}

// each makes calls, a few at a time. Those that are not made within so long
// fail.
func each(calls []func(context.Context), within time.Duration) {
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var wg sync.WaitGroup
	turns := make(chan struct{}, 32)
	for _, call := range calls {
		turns <- struct{}{}
		wg.Go(func() {
			call(ctx)
			<-turns
		})
	}
	wg.Wait()
}
