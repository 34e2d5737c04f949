package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
)

const (
	defaultLease = 10 * time.Second
	renewals     = 3                      // in each lease
	pollInFlight = 100 * time.Millisecond // how often the first of a line asks: others give back, too
	mostAsks     = 64                     // requests in a call
	mostRenewing = 64                     // calls on their way that renew

	fromElsewhere = 1 << 52 // above the number of any call of the process that took the units
)

// flights are the units in flight that this process holds on the server, which counts them
// as lua/inflight.lua says. They implement [inflight.Counts].
//
// One call for a key is on its way at a time. It says how many units the process holds, and
// takes those of all requests that came since the one before. So no call that is lost or
// late has an effect that lasts: the next one says again what is true.
//
// Units that have a lease are held under the lease's name and for its time, not for the
// process: they outlive it, and any process gives them back.
type flights struct {
	of      *Store
	process string
	lease   time.Duration
	room    *inflight.Room

	mu      sync.Mutex // guards what follows, and all flights
	keys    map[string]*flight
	calls   int64 // so far: the number of each
	beating bool
}

// A flight is a key of which this process, or a lease, holds units or asks for some.
type flight struct {
	key       string
	at        string // in flights.keys
	lease     string // the name of the lease; "" is the process
	life      time.Duration
	held      int64 // by requests
	told      int64 // what the server was told last
	calling   bool
	due       bool // to be renewed by the next call
	elsewhere bool // another process took the units
	waiting   []*ask
	doubt     time.Time // until then a call that was lost may still run; zero for none
}

// An ask is a request for units of a key.
type ask struct {
	hold *inflight.Hold
	done chan struct{}
	err  error
	left bool // whoever asked has gone
}

var _ stint.RoomStore = (*Store)(nil)

// InFlight implements [stint.RoomStore]. Each process holds units on the server for a lease
// that it renews, Options.Lease: those of a process that is killed come back when it ends.
// Taking units is one call for each limit, in the order of the limits from the smallest, and
// giving them back is one, beside the request. Requests for one key share calls, except
// those that have a lease.
func (s *Store) InFlight() *inflight.Room { return s.flights.room }

func newFlights(s *Store, lease time.Duration) *flights {
	if lease <= 0 {
		lease = defaultLease
	}
	f := &flights{of: s, process: rand.Text(), lease: max(lease, time.Millisecond), keys: make(map[string]*flight)}
	f.room = inflight.NewRoom(f, pollInFlight)
	return f
}

// Acquire implements [inflight.Counts].
func (f *flights) Acquire(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	order := make([]*inflight.Hold, len(holds))
	for i := range holds {
		order[i] = &holds[i]
		order[i].Running, order[i].Denied = 0, false
	}
	// What a client of a small limit is denied touches no pool that all share.
	slices.SortStableFunc(order, func(a, b *inflight.Hold) int { return cmp.Compare(a.Limit, b.Limit) })
	deadline := f.of.until(ctx)
	for i, h := range order {
		if err = f.take(ctx, h, deadline); err == nil && !h.Denied {
			continue
		}
		for _, taken := range order[:i] {
			f.giveBack(taken)
		}
		return false, err
	}
	return true, nil
}

// Look implements [inflight.Counts].
func (f *flights) Look(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	ok = true
	deadline := f.of.until(ctx)
	for i := range holds {
		h := &holds[i]
		reply, err := f.of.evalBy(ctx, deadline, []string{f.key(h)}, f.args(&flight{life: f.lease}, 0, 0, []*ask{{hold: h}}))
		if err != nil {
			return false, err
		}
		answers, err := readNumbers(reply, 1)
		if err != nil {
			return false, err
		}
		if setHold(h, answers[0]); h.Denied {
			ok = false
		}
	}
	return ok, nil
}

// Release implements [inflight.Counts].
func (f *flights) Release(holds []inflight.Hold) {
	for i := range holds {
		f.giveBack(&holds[i])
	}
}

// key returns the key of a hold on the server.
func (f *flights) key(h *inflight.Hold) string {
	begin, end := f.of.names.place(h.Key)
	name, id, _ := strings.Cut(h.Name, "\x00")
	return begin + ":flight:" + strings.ReplaceAll(escape(name), ".", "%2E") + "." + escape(id) + end
}

// flight returns what holds a hold's units of a key. The lock is held.
func (f *flights) flight(key string, h *inflight.Hold) (one *flight, found bool) {
	at := key
	if h.Lease != "" {
		at += "\x00" + h.Lease
	}
	if one, found = f.keys[at]; !found {
		one = &flight{key: key, at: at, lease: h.Lease, life: f.lease}
		if h.Lease != "" {
			one.life = h.TTL // 0 is not known
		}
	}
	return one, found
}

func (f *flights) args(one *flight, call, held int64, asks []*ask) []string {
	life := one.life.Milliseconds()
	switch {
	case held == 0 && len(asks) == 0 && !one.elsewhere:
		life = 0 // nothing is kept
	case one.life > 0:
		life = max(life, 1)
	}
	args := []string{"F", cmp.Or(one.lease, f.process), number(call), number(held), number(life)}
	for _, a := range asks {
		args = append(args, number(a.hold.Limit), number(a.hold.Units))
	}
	return args
}

// take asks for the units of a hold, and waits for the answer.
func (f *flights) take(ctx context.Context, h *inflight.Hold, deadline time.Time) error {
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	a := &ask{hold: h, done: make(chan struct{})}
	key := f.key(h)
	f.mu.Lock()
	one, _ := f.flight(key, h)
	f.keys[one.at] = one
	one.waiting = append(one.waiting, a)
	f.call(one)
	f.beat()
	f.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-within.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	default: // what it still gets is given back by whoever gets it
		a.left, a.hold = true, &inflight.Hold{Limit: h.Limit, Units: h.Units}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrNotExecuted, within.Err())
}

// Add implements [inflight.Counts]: the server is told with the next call for the key, or by
// the beat once it answers.
func (f *flights) Add(holds []inflight.Hold) {
	for i := range holds {
		h := &holds[i]
		key := f.key(h)
		f.mu.Lock()
		one, _ := f.flight(key, h)
		f.keys[one.at] = one
		one.held += h.Units
		f.beat()
		f.mu.Unlock()
	}
}

// giveBack gives back the units of a hold.
func (f *flights) giveBack(h *inflight.Hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one, found := f.flight(f.key(h), h)
	switch {
	case h.Lease != "":
		if one.held = 0; !found { // another process has taken it
			one.told, one.elsewhere = h.Units, true
			f.keys[one.at] = one
			f.beat()
		}
	case !found:
		return
	default:
		one.held -= h.Units
	}
	f.call(one)
}

// call makes calls for a key until there is nothing to ask and nothing to tell, unless that
// is being done. The lock is held.
func (f *flights) call(one *flight) {
	if one.calling {
		return
	}
	one.calling = f.of.background(func(life context.Context) {
		for f.callOnce(life, one) {
		}
	})
	if !one.calling { // the store is closed
		one.fail(stint.ErrClosed)
	}
}

// fail answers all that wait. The lock is held.
func (one *flight) fail(err error) {
	for _, a := range one.waiting {
		a.err = err
		close(a.done)
	}
	one.waiting = nil
}

// callOnce makes a call for a key, and reports whether another is needed.
func (f *flights) callOnce(life context.Context, one *flight) (more bool) {
	f.mu.Lock()
	renews := one.due
	one.due = false
	one.waiting = slices.DeleteFunc(one.waiting, func(a *ask) bool { return a.left })
	asks := one.waiting[:min(len(one.waiting), mostAsks)]
	if renews {
		asks = nil
	}
	if len(asks) == 0 && one.told == one.held && !renews {
		one.calling = false
		f.forget(one)
		f.mu.Unlock()
		return false
	}
	one.waiting = one.waiting[len(asks):]
	held, settled := one.held, !one.doubt.IsZero() && time.Now().After(one.doubt)
	args := f.args(one, f.callNumber(one), held, asks)
	f.mu.Unlock()

	deadline := f.of.until(life)
	if len(asks) == 0 { // nobody waits for it
		deadline = by(max(patience, f.of.timeout))
	}
	reply, err := f.of.evalBy(life, deadline, []string{one.key}, args)
	var answers []int64
	ended := reply == "stale" && one.lease != "" && len(asks) == 0 // another process gave it back
	if err == nil && !ended {
		answers, err = readNumbers(reply, len(asks))
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && !errors.Is(err, ErrNotExecuted) && !errors.Is(err, ErrConfiguration) {
		one.doubt = time.Now().Add(2 * max(patience, f.of.timeout))
	}
	if ended {
		one.held, held = 0, 0
	}
	if err == nil && settled {
		one.doubt = time.Time{}
	}
	if err == nil {
		one.told = held
	}
	for i, a := range asks {
		if a.err = err; err == nil {
			if setHold(a.hold, answers[i]); !a.hold.Denied {
				one.told += a.hold.Units
				if !a.left {
					one.held += a.hold.Units
				}
			}
		}
		close(a.done)
	}
	if err != nil && len(one.waiting) == 0 {
		one.calling = false // the beat tells again
		f.forget(one)
		return false
	}
	return true
}

// forget drops a key of which there is nothing to tell. The lock is held.
func (f *flights) forget(one *flight) {
	if one.held == 0 && one.told == 0 && one.doubt.IsZero() {
		delete(f.keys, one.at)
	}
}

// callNumber returns the number of the next call for a key. What gives back units that
// another process took comes after all that this one tells. The lock is held.
func (f *flights) callNumber(one *flight) int64 {
	f.calls++
	if one.elsewhere {
		return fromElsewhere + f.calls
	}
	return f.calls
}

// setHold writes the answer of the script into a hold.
func setHold(h *inflight.Hold, n int64) {
	if h.Running, h.Denied = n, false; n < 0 {
		h.Running, h.Denied = -n-1, true
	}
}

// beat renews what this process holds, until the store is closed or it holds nothing. The
// lock is held.
func (f *flights) beat() {
	if f.beating {
		return
	}
	f.beating = f.of.background(func(life context.Context) {
		for pause(life, f.lease/renewals) {
			if !f.renew(life) {
				return
			}
		}
	})
}

// renew makes a call for each key, and reports whether there are any.
func (f *flights) renew(life context.Context) bool {
	f.mu.Lock()
	due := slices.DeleteFunc(slices.Collect(maps.Values(f.keys)), (*flight).settled)
	f.beating = len(f.keys) > 0
	going := f.beating
	f.mu.Unlock()
	room := make(chan struct{}, mostRenewing)
	var all sync.WaitGroup
	for _, one := range due {
		room <- struct{}{}
		all.Go(func() {
			if f.turn(one) && f.callOnce(life, one) {
				f.mu.Lock()
				one.calling = false
				f.call(one) // beside: no key waits for another's requests
				f.mu.Unlock()
			}
			<-room
		})
	}
	all.Wait()
	return going
}

// settled reports whether the server need not be told again: a lease is not renewed.
func (one *flight) settled() bool {
	return one.lease != "" && one.told == one.held && one.doubt.IsZero()
}

// turn has a key renewed whose turn has come, and reports whether by the caller: else whoever
// makes calls for it does, or it is gone.
func (f *flights) turn(one *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys[one.at] != one {
		return false
	}
	one.due = true
	if one.calling {
		return false
	}
	one.calling = true
	return true
}
