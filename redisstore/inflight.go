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
	renewals     = 3                      // how often units are renewed during a lease
	pollInFlight = 100 * time.Millisecond // how often the first waiter asks again, since other processes give back too
	mostOpen     = 100_000                // the most units of a key: each may have a lease of its own
	mostAsks     = 64                     // the most requests in a call
	mostRenewing = 64                     // the most renewing calls at once

	fromElsewhere = 1 << 52 // added to numbers of calls, to exceed any number of the process that took the units
)

// flights are the units in flight that this process holds on the server; lua/inflight.lua
// says how the server counts them. They implement [inflight.Counts].
//
// One call for a key is on its way at a time. It says how many units the process holds, and
// asks for the units of all requests since the last call. So a call that is lost or late has
// no lasting effect: the next one says again how many are held.
//
// Units with a lease are held under the name of the lease and for its time, not for the
// process: they outlive it, and any process may give them back.
type flights struct {
	of      *Store
	process string
	lease   time.Duration
	room    *inflight.Room

	mu      sync.Mutex // guards what follows, and all flights
	keys    map[string]*flight
	calls   int64 // how many calls were made: the number of the last one
	beating bool
}

// A flight is the units of a key that this process, or a lease, holds or asks for.
type flight struct {
	keys      []string // the keys on the server
	at        string   // its key in flights.keys
	lease     string   // the name of the lease; "" for units of the process
	life      time.Duration
	held      int64 // how many units requests hold
	told      int64 // how many the server was told last
	calling   bool
	due       bool // the next call renews
	elsewhere bool // another process took the units
	waiting   []*ask
	doubt     time.Time // a lost call may still run until then; zero if none is lost
}

// An ask is a request for units of a key.
type ask struct {
	hold *inflight.Hold
	done chan struct{}
	err  error
	left bool // the caller has gone
}

var _ stint.RoomStore = (*Store)(nil)

// InFlight implements [stint.RoomStore]. Each process holds units on the server for
// Options.Lease, and renews that; the units of a killed process come back when it ends. To
// take units is one call for each limit, from the smallest limit to the largest, and to give
// them back is one in the background. Requests for one key share calls, except those with a
// lease.
func (s *Store) InFlight() *inflight.Room { return s.flights.room }

func newFlights(s *Store, lease time.Duration) *flights {
	if lease <= 0 {
		lease = defaultLease
	}
	f := &flights{of: s, process: rand.Text(), lease: max(lease, time.Millisecond), keys: make(map[string]*flight)}
	f.room = inflight.NewRoom(f, pollInFlight)
	return f
}

// Most implements [inflight.Counts].
func (f *flights) Most() int64 { return mostOpen }

// Acquire implements [inflight.Counts].
func (f *flights) Acquire(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	order := make([]*inflight.Hold, len(holds))
	for i := range holds {
		order[i] = &holds[i]
		order[i].Running, order[i].Of, order[i].Denied = 0, 0, false
	}
	// Smallest limit first: a denied client does not touch a larger limit that others share.
	slices.SortStableFunc(order, func(a, b *inflight.Hold) int { return cmp.Compare(a.Limit, b.Limit) })
	deadline := f.of.until(ctx)
	for i, h := range order {
		if err = f.take(ctx, h, deadline); err == nil && !h.Denied {
			continue
		}
		for _, taken := range order[:i] {
			f.giveBack(taken)
			taken.Running -= taken.Units
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
		err := f.of.evalBy(ctx, deadline, f.keysOf(h), f.args(&flight{life: f.lease}, 0, 0, []*ask{{hold: h}}), func(reply any) error {
			answers, err := readNumbers(reply, 1)
			if err == nil {
				setHold(h, answers[0])
			}
			return err
		})
		if err != nil {
			return false, err
		}
		if !h.Denied { // the script counts what fits as taken
			h.Running -= h.Units
		}
		ok = ok && !h.Denied
	}
	return ok, nil
}

// Release implements [inflight.Counts].
func (f *flights) Release(holds []inflight.Hold) {
	for i := range holds {
		f.giveBack(&holds[i])
	}
}

// keysOf returns the two keys of a hold on the server: the units held, and until when.
func (f *flights) keysOf(h *inflight.Hold) []string {
	begin, end := f.of.names.around(h.Key)
	name, id, _ := strings.Cut(h.Name, "\x00")
	end = strings.ReplaceAll(escape(name), ".", "%2E") + "." + escape(id) + end
	return []string{begin + ":flight:" + end, begin + ":until:" + end}
}

// flight returns the flight of a hold, a new one if none is found. The lock is held.
func (f *flights) flight(keys []string, h *inflight.Hold) (one *flight, found bool) {
	at := keys[0]
	if h.Lease != "" {
		at += "\x00" + h.Lease
	}
	if one, found = f.keys[at]; !found {
		one = &flight{keys: keys, at: at, lease: h.Lease, life: f.lease}
		if h.Lease != "" {
			one.life = h.TTL // 0 if the caller does not know it
		}
	}
	return one, found
}

func (f *flights) args(one *flight, call, held int64, asks []*ask) []string {
	life := one.life.Milliseconds()
	switch {
	case held == 0 && len(asks) == 0 && !one.elsewhere:
		life = 0 // without units, the server keeps no field
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
	keys := f.keysOf(h)
	f.mu.Lock()
	one, _ := f.flight(keys, h)
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
	default: // callOnce gives back units that the call still gets
		a.left, a.hold = true, &inflight.Hold{Limit: h.Limit, Units: h.Units}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrNotExecuted, within.Err())
}

// Add implements [inflight.Counts]. The next call for the key tells the server, or the next
// beat that it answers.
func (f *flights) Add(holds []inflight.Hold) {
	for i := range holds {
		h := &holds[i]
		keys := f.keysOf(h)
		f.mu.Lock()
		one, _ := f.flight(keys, h)
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
	one, found := f.flight(f.keysOf(h), h)
	switch {
	case h.Lease != "":
		if one.held = 0; !found { // another process took the lease
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

// call starts a goroutine that makes calls for a key until there is nothing to ask and
// nothing to tell, unless there is one already. The lock is held.
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

// fail answers all waiting asks with an error. The lock is held.
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
	if len(asks) == 0 { // no caller waits for this call
		deadline = by(max(patience, f.of.timeout))
	}
	var answers []int64
	ended := false // another process gave the lease back
	err := f.of.evalBy(life, deadline, one.keys, args, func(reply any) (err error) {
		if ended = reply == "stale" && one.lease != "" && len(asks) == 0; !ended {
			answers, err = readNumbers(reply, len(asks))
		}
		return err
	})

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
		one.calling = false // the next beat tells the server again
		f.forget(one)
		return false
	}
	return true
}

// forget drops a flight without units that the server must still be told of. The lock is held.
func (f *flights) forget(one *flight) {
	if one.held == 0 && one.told == 0 && one.doubt.IsZero() {
		delete(f.keys, one.at)
	}
}

// callNumber returns the number of the next call for a key. A call that gives back units of
// another process counts as later than all calls of that process. The lock is held.
func (f *flights) callNumber(one *flight) int64 {
	f.calls++
	if one.elsewhere {
		return fromElsewhere + f.calls
	}
	return f.calls
}

// setHold writes the answer of the script into a hold.
func setHold(h *inflight.Hold, n int64) {
	if h.Running, h.Of, h.Denied = n, h.Limit, false; n < 0 {
		h.Running, h.Denied = -n-1, true
	}
}

// beat starts a goroutine that renews what this process holds, until the store is closed or
// nothing is held. The lock is held.
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

// renew makes a call for each flight that is due, and reports whether there are any flights.
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
				f.call(one) // in a goroutine of its own, so that no key waits for another's requests
				f.mu.Unlock()
			}
			<-room
		})
	}
	all.Wait()
	return going
}

// settled reports whether the server need not be told again: leases are not renewed.
func (one *flight) settled() bool {
	return one.lease != "" && one.told == one.held && one.doubt.IsZero()
}

// turn marks a key as due, and reports whether the caller must make the call. If not, the
// goroutine that makes calls for it does, or the key is gone.
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
