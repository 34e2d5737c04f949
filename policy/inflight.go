package policy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/meter"
)

// Stores decide under limits over time alone. So a request first takes its places under
// limits in flight, since these can be given back without a trace, and then asks the store
// for all other limits. If the store denies it, it gives its places back at once.

// A holding is units in flight that a request gives back when it ends.
type holding struct {
	room  *inflight.Room
	holds []inflight.Hold
}

// Release returns a function that gives back the places in flight that the request holds,
// once, however often it is called; nil if the request holds none. The function may be called
// after the Result has been used again.
func (r *Result) Release() func() {
	if len(r.holdings) == 0 {
		return nil
	}
	all := slices.Clone(r.holdings)
	r.holdings = r.holdings[:0]
	return sync.OnceFunc(func() { release(all) })
}

// Finish returns how long the request holds its places after its client has left: the longest time
// that a rule says whose limit in flight holds the request; 0 if none says one.
func (r *Result) Finish() (longest time.Duration) {
	for i := range r.matches {
		if h := &r.matches[i]; !h.fixed && !h.rule.Shadow && h.cost > 0 && h.plan.inFlight != nil {
			longest = max(longest, h.rule.Finish)
		}
	}
	return longest
}

func (r *Result) giveBack() {
	release(r.holdings)
	r.holdings = r.holdings[:0]
}

func release(all []holding) {
	for _, one := range all {
		one.room.Release(one.holds)
	}
}

// lease moves the places that the request holds into a part of its reservation.
func (r *Result) lease() {
	for _, one := range r.holdings {
		var b []byte
		for _, h := range one.holds {
			for _, text := range [...]string{h.Lease, h.Name, h.Key} {
				b = appendText(b, text)
			}
			if !h.Added {
				h.TTL = 0 // no other room needs to be told when it is settled
			}
			b = binary.AppendVarint(binary.AppendVarint(b, h.Units), int64(h.TTL))
		}
		r.parts = append(r.parts, reservedPart{id: stint.ReservationID(b), inFlight: true, local: one.room != r.policy.room})
	}
	r.holdings = r.holdings[:0]
}

// endLease gives back the places that lease moved into a part. Its answer has no numbers,
// because those are about limits over time.
func (p *Policy) endLease(part reservedPart) (stint.Decision, error) {
	one := holding{room: p.room}
	if part.local {
		one.room = p.localRoom
	}
	for b := []byte(part.id); len(b) > 0; {
		var h inflight.Hold
		for _, to := range [...]*string{&h.Lease, &h.Name, &h.Key} {
			var ok bool
			if *to, b, ok = cutText(b); !ok {
				return stint.Decision{}, stint.ErrReservation
			}
		}
		units, n := binary.Varint(b)
		ttl, m := binary.Varint(b[max(n, 0):])
		if n <= 0 || m <= 0 || h.Lease == "" {
			return stint.Decision{}, stint.ErrReservation
		}
		h.Units, h.TTL, b = units, time.Duration(ttl), b[n+m:]
		one.holds = append(one.holds, h)
	}
	if one.room != nil { // nil if the policy has a store without limits in flight by now
		release([]holding{one})
	}
	return stint.Decision{Allowed: true, Tightest: -1}, nil
}

// decideInFlight is enforce for a request that is held to limits in flight.
func (p *Policy) decideInFlight(ctx context.Context, a *operation, r *Result) error {
	r.inFlight = false // decideTimed decides under the other limits
	if r.blocked >= 0 {
		return p.decideTimed(ctx, a, r)
	}
	holds, entries := r.holdsOf(false)
	if len(holds) > 0 && a.charges() && !r.ends(a) {
		return fmt.Errorf("policy: rule %q: %w", r.Rules[entries[0]].Rule, stint.ErrInFlight)
	}
	if a.turn && len(holds) > 0 && r.enforces(func(*ruleMatch) bool { return true }) {
		// first: giving back a place just taken would wake others in vain
		if err := p.decideTimed(ctx, &operation{op: meter.OpPeek}, r); err != nil || !r.Decision.Allowed {
			_, _ = p.acquire(ctx, &operation{op: meter.OpPeek}, holds, entries, r)
			return err
		}
	}
	passes, err := p.acquire(ctx, a, holds, entries, r)
	if err != nil {
		passes, err = p.acquireWithout(ctx, a, holds, entries, r, err)
	}
	if err != nil {
		return err
	}
	if !passes {
		r.Decision = stint.Decision{Tightest: -1}
		r.tightestRunning(holds, entries)
		return nil
	}
	if err := p.decideTimed(ctx, a, r); err != nil || !r.Decision.Allowed {
		r.giveBack()
		return err
	}
	if r.Tightest < 0 {
		r.tightestRunning(holds, entries)
	}
	return nil
}

// ask is run, unless asking for limits in flight has used up the time that the store may
// take, or the store must learn something first.
func (p *Policy) ask(ctx context.Context, a *operation, r *Result) error {
	if errors.Is(r.StoreError, context.DeadlineExceeded) {
		return fmt.Errorf("policy: not asked, after: %v", r.StoreError) //nolint:errorlint // not wrapped: these limits have surely charged nothing
	}
	if p.failover.Settling() {
		if err := p.unsettled(r); err != nil {
			return err
		}
	}
	return p.run(ctx, a, r)
}

// ends reports whether the places of the request will be given back.
func (r *Result) ends(a *operation) bool { return a.lease > 0 || r.WillRelease && !r.several }

// holdsOf returns the places that the request takes under limits in flight, of rules in
// shadow or of the others, and for each its entry's index in Rules.
func (r *Result) holdsOf(shadow bool) (holds []inflight.Hold, entries []int) {
	for i := range r.matches {
		h := &r.matches[i]
		places := h.places()
		if h.fixed || h.rule.Shadow != shadow || places == 0 {
			continue
		}
		for k, l := range h.plan.inFlight {
			hold := inflight.Hold{Name: l.inFlight, Key: h.key, Limit: l.Limit.Count(), Units: places}
			holds, entries = append(holds, hold), append(entries, h.first+len(h.plan.ruleLimits)+k)
		}
	}
	return holds, entries
}

// acquire takes the places in holds, or looks at them if the operation does not charge.
// Places that a shared store grants are counted in the local store as well, which decides
// while the shared one fails.
func (p *Policy) acquire(ctx context.Context, a *operation, holds []inflight.Hold, entries []int, r *Result) (passes bool, err error) {
	if a.lease > 0 {
		id := rand.Text()
		for i := range holds {
			holds[i].Lease, holds[i].TTL = id, a.lease
		}
	}
	if passes, err = p.acquireIn(ctx, p.room, a, holds, r); err != nil {
		return false, err
	}
	r.setRunning(holds, entries)
	if passes && p.localRoom != nil && len(holds) > 0 && a.charges() {
		r.add(p.localRoom, holds)
	}
	return passes, nil
}

func (p *Policy) acquireIn(ctx context.Context, room *inflight.Room, a *operation, holds []inflight.Hold, r *Result) (passes bool, err error) {
	switch {
	case len(holds) == 0 || a.refund:
		return true, nil
	case !a.charges():
		return room.Look(ctx, holds)
	}
	if passes, err = room.Acquire(ctx, holds); passes {
		r.holdings = append(r.holdings, holding{room, holds})
	}
	if errors.Is(err, inflight.ErrFull) {
		err = fmt.Errorf("policy: %w: %w", stint.ErrFull, err)
	}
	return passes, err
}

// acquireWithout decides by each rule's on_store_failure, because the store could not. Under
// local, this process's share decides; the store is told of its places later.
func (p *Policy) acquireWithout(ctx context.Context, a *operation, holds []inflight.Hold, entries []int, r *Result, why error) (passes bool, err error) {
	if ctx.Err() != nil || !p.failover.Fails(why) {
		return false, why
	}
	r.StoreError = why
	var local []inflight.Hold
	var localEntries []int
	passes = true
	for i, h := range holds {
		e := &r.Rules[entries[i]]
		switch e.fail(r.matches[e.match].rule.failure); e.Failed {
		case FailClosed:
			passes = false
		case FailOpen:
		default:
			h.Limit, h.Denied = max(h.Limit/p.failover.Nodes(), 1), false
			local, localEntries = append(local, h), append(localEntries, entries[i])
		}
	}
	switch {
	case !passes:
		return false, nil
	case len(local) > 0 && p.localRoom == nil:
		return false, why
	}
	passes, err = p.acquireIn(ctx, p.localRoom, a, local, r)
	r.setRunning(local, localEntries)
	if passes && len(local) > 0 && a.charges() {
		r.add(p.room, local)
	}
	return passes, err
}

// add counts in one room the places that the other room has granted.
func (r *Result) add(room *inflight.Room, holds []inflight.Hold) {
	told := slices.Clone(holds)
	for i := range told {
		told[i].Added = true
	}
	room.Add(told)
	r.holdings = append(r.holdings, holding{room, told})
}

func (r *Result) setRunning(holds []inflight.Hold, entries []int) {
	for i := range holds {
		h, e := &holds[i], &r.Rules[entries[i]]
		if e.Denied, e.RetryAfter = h.Denied, 0; h.Denied {
			e.RetryAfter = stint.RetryOf(h)
		}
		e.use(h.Of, h.Running, h.Left())
	}
}

// tightestRunning makes the answer one about a limit in flight, if that is tighter than the
// limit it was about.
func (r *Result) tightestRunning(holds []inflight.Hold, entries []int) {
	for _, at := range entries {
		e := &r.Rules[at]
		if e.Remaining < 0 { // the limit was not asked
			continue
		}
		if e.Denied {
			r.Decision.RetryAfter = longer(r.Decision.RetryAfter, e.RetryAfter)
		}
		if r.Tightest < 0 || r.tighter(at, r.Tightest) {
			r.Tightest, r.Decision.Limit, r.Decision.Remaining = at, e.Capacity, e.Remaining
		}
	}
}

// shadowsInFlight decides for each rule in shadow by itself, under its limits in flight. A
// request whose places will not be given back takes none. A store that has failed the request
// is not asked again.
func (p *Policy) shadowsInFlight(ctx context.Context, a *operation, r *Result) {
	if !r.ends(a) {
		a = &operation{op: meter.OpPeek}
	}
	holds, entries := r.holdsOf(true)
	for i := range holds {
		one := holds[i : i+1 : i+1]
		if r.StoreError == nil {
			_, r.StoreError = p.acquire(ctx, a, one, entries[i:i+1], r)
		}
		if r.StoreError != nil {
			r.Rules[entries[i]].Failed = FailOpen
			continue
		}
		r.ShadowDenied = r.ShadowDenied || one[0].Denied
	}
}

func (p *Policy) look(ctx context.Context, r *Result) {
	for _, shadow := range [...]bool{false, true} {
		holds, entries := r.holdsOf(shadow)
		if len(holds) == 0 {
			continue
		}
		if _, err := p.room.Look(ctx, holds); err == nil {
			r.setRunning(holds, entries)
			continue
		} else if r.StoreError == nil {
			r.StoreError = err
		}
		for _, at := range entries {
			e, how := &r.Rules[at], FailOpen // as where a rule in shadow decides
			if !shadow {
				how = r.matches[e.match].rule.failure
			}
			e.fail(how)
		}
	}
}

// InFlight returns how many places the requests of this process hold, by rule: of every rule
// that has a limit in flight, or whose requests still hold places.
func (p *Policy) InFlight() map[string]int64 {
	all := make(map[string]int64)
	for _, one := range p.rules.plans {
		if len(one.inFlight) > 0 {
			all[one.rule] = 0
		}
	}
	room := p.room
	if p.localRoom != nil { // it counts the places that either store grants
		room = p.localRoom
	}
	if room == nil {
		return all
	}
	for name, units := range room.Held {
		rule, _, _ := strings.Cut(name, "\x00")
		if _, ok := all[rule]; ok || units > 0 {
			all[rule] += units
		}
	}
	return all
}
