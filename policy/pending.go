package policy

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// responseWithin is how long the reservation of a rule that goes by the response is
// kept. What a response says later, above what was reserved, is charged still.
const responseWithin = 10 * time.Minute

// statusPanicked is the status of a handler that has panicked.
const statusPanicked = 500

// A Pending is a request that has passed and that its response may yet change: what rules
// with count, or with a cost of the response, have charged is settled when it ends. It
// belongs to one goroutine.
type Pending struct {
	policy     *Policy
	parts      []reservedPart // all that can be given back
	cost       int64          // of the request
	rules      []settling
	status     int
	written    int64
	compressed bool
	unseen     bool // bytes of the body are not counted
}

// A settling is the charge of one rule.
type settling struct {
	*rulesfile.Response
	part     reservedPart
	pair     *fallback.Pair
	key      string
	reserved int64
	reader   *usage.Reader
	header   int64
	found    bool
	room     int64 // under a rule with cut: what the response may cost until the store is asked
}

// Begin is [Policy.Wait] for who sees the response: it returns what rules have to settle
// by it when it has ended, nil if the request was denied or there is nothing. A negative
// most does not wait. With giveBack above 0, all that the request was charged can be
// given back within that time.
//
// Price: that of Wait where no rule goes by the response. Else each such rule has a
// reservation of its own. Where a request meets one beside other rules, all are
// asked together whether they would let it pass, before each is charged. What others
// take in between may deny it; what it was charged by then is given back, and may
// meanwhile have denied others. [stint.ErrFull] says that the store has no room for
// another reservation; nothing was charged.
func (p *Policy) Begin(ctx context.Context, attrs Attributes, cost int64, giveBack, most time.Duration, r *Result) (*Pending, time.Duration, error) {
	if err := p.match(attrs, cost, r); err != nil {
		return nil, 0, err
	}
	a := &operation{op: meter.OpTake, ttl: giveBack}
	if p.rules.response && r.settles() {
		a.response = responseWithin
	}
	waited, err := p.waitMatched(ctx, attrs, cost, most, a, r)
	if err != nil || !r.Decision.Allowed || giveBack == 0 && a.response == 0 || len(r.parts) == 0 {
		return nil, waited, err
	}
	return p.pending(r), waited, nil
}

// settles reports whether a rule that matched goes by the response.
func (r *Result) settles() bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.rule.Response != nil && h.limited() && h.weight > 0 {
			return true
		}
	}
	return false
}

// pending returns what has been reserved.
func (p *Policy) pending(r *Result) *Pending {
	d := &Pending{policy: p, cost: r.cost, parts: append([]reservedPart(nil), r.parts...)}
	for _, part := range d.parts {
		if part.match == 0 {
			continue
		}
		h := &r.matches[part.match-1]
		one := settling{Response: h.rule.Response, part: part, pair: p.pairOf(h.plan), key: h.key, reserved: h.cost, room: h.cost}
		for i := range d.rules { // many rules read the same
			if other := &d.rules[i]; one.Usage != nil && other.Usage != nil && one.Usage.Same(other.Usage) {
				one.reader = other.reader
			}
		}
		if one.Usage != nil && one.reader == nil {
			one.reader = usage.New(one.Usage)
		}
		d.rules = append(d.rules, one)
	}
	return d
}

// ErrCompressed is for a response that a rule must read, and that is compressed: it is
// charged as one that does not say its cost.
var ErrCompressed = errors.New("policy: the response is compressed, so that its cost cannot be read")

// Reads reports whether a rule must read the body of the response, which it cannot if
// that is compressed.
func (d *Pending) Reads() bool {
	for i := range d.rules {
		if d.rules[i].Usage != nil {
			return true
		}
	}
	return false
}

// Header is told the status and the header of the response, when they are final: names
// are as package net/http keeps them.
func (d *Pending) Header(status int, h map[string][]string) {
	d.status = status
	if coding := h["Content-Encoding"]; len(coding) > 0 && coding[0] != "" && coding[0] != "identity" {
		d.compressed = true
	}
	for i := range d.rules {
		one := &d.rules[i]
		if values := h[one.Response.Header]; one.Response.Header != "" && len(values) > 0 {
			one.header, one.found = rulesfile.ParseDigits(values[0])
		}
	}
}

// Write is told the next bytes of the body, which have been sent. It never fails, and
// keeps nothing of them.
func (d *Pending) Write(p []byte) (int, error) {
	d.written += int64(len(p))
	for i := range d.rules {
		one := &d.rules[i]
		if one.reader != nil && !d.compressed && (i == 0 || !d.readBefore(i)) {
			_, _ = one.reader.Write(p)
		}
	}
	return len(p), nil
}

// Passed is told of bytes of the body that it is not shown: it needs to see them only
// where a rule reads the body.
func (d *Pending) Passed(n int64) { d.written += n }

// Unseen is told that bytes of the body go where nobody counts them, as on a connection
// that the handler has taken over: how many there are is not known.
func (d *Pending) Unseen() { d.unseen = true }

// Cuts reports whether a rule may cut the body, and Cut whether one does: the body has cost
// more than was reserved, and its limits have no room for the rest now. Responses that
// have not ended do not see what each other cost above that.
func (d *Pending) Cuts() bool {
	for i := range d.rules {
		if d.rules[i].Cut {
			return true
		}
	}
	return false
}

// Cut asks the store once what was reserved is used up, and again when the room that it
// found is. A store that does not answer cuts nothing.
func (d *Pending) Cut(ctx context.Context) bool {
	for i := range d.rules {
		one := &d.rules[i]
		if !one.Cut || one.part.shadow {
			continue
		}
		units := one.units(d, false, false)
		if units <= one.room {
			continue
		}
		on, bound := one.held(d.policy)
		a, err := on.Decide(ctx, meter.OpPeek, []stint.Layer{{Bound: bound, Key: one.key}}, units-one.reserved)
		if err == nil && !a.Allowed {
			return true
		}
		if err == nil {
			one.room = one.reserved + min(a.Remaining, math.MaxInt64-one.reserved)
		}
	}
	return false
}

// held is what has the charge of a rule.
func (s *settling) held(p *Policy) (stint.Store, stint.Bound) {
	if s.part.local {
		return p.local, s.pair.Local
	}
	return p.main, s.pair.Main
}

// readBefore reports whether a rule before reads by the same reader.
func (d *Pending) readBefore(i int) bool {
	for k := range i {
		if d.rules[k].reader == d.rules[i].reader {
			return true
		}
	}
	return false
}

// End settles what the request has been charged. A response that is not whole, because
// the client or the server has gone, costs what it has said so far, and at least
// what was reserved. The status of a handler that has panicked is 500 as well
// as the one that it has sent: the request counts if one of them does.
func (d *Pending) End(ctx context.Context, whole, panicked bool) (err error) {
	if d.compressed && d.Reads() {
		err = ErrCompressed
	}
	for i := range d.rules {
		one := &d.rules[i]
		units := one.units(d, whole, panicked)
		if failed := d.policy.settleAt(ctx, one, units); err == nil {
			err = failed
		}
	}
	return err
}

// Cancel gives back all that the request was charged, whatever rules say.
func (d *Pending) Cancel(ctx context.Context) (err error) {
	for _, part := range d.parts {
		if _, failed := d.policy.settle(ctx, part, 0); err == nil {
			err = failed
		}
	}
	return err
}

// units returns what a rule charges for the response.
func (s *settling) units(d *Pending, whole, panicked bool) int64 {
	if s.Count != nil && !s.Count.Has(d.status) && !(panicked && s.Count.Has(statusPanicked)) {
		return 0
	}
	value, ok := s.header, s.found
	switch {
	case s.Truth() == "":
		return s.reserved
	case s.Bytes:
		value, ok = d.written, !d.unseen
	case s.reader != nil:
		value, ok = s.reader.Sum()
		whole = whole || s.reader.Ended()
	}
	if !ok {
		if value = s.Missing; value < 0 || !whole {
			return s.reserved
		}
	}
	units, _ := satmath.Mul(value, d.cost)
	if !whole {
		return max(units, s.reserved)
	}
	return units
}

// settleAt settles the charge of one rule. What is above it is charged even where the
// reservation has ended.
func (p *Policy) settleAt(ctx context.Context, s *settling, units int64) error {
	_, err := p.settle(ctx, s.part, units)
	if !errors.Is(err, stint.ErrReservation) || units <= s.reserved {
		return err
	}
	on, bound := s.held(p)
	_, id, failed := on.Reserve(ctx, []stint.Layer{{Bound: bound, Key: s.key}}, 0, time.Minute)
	if failed != nil || id == "" {
		return errors.Join(err, failed)
	}
	_, err = p.settle(ctx, reservedPart{id: id, local: s.part.local}, units-s.reserved)
	return err
}

// reserveApart reserves the layers that were gathered: each rule that goes by the response
// by itself, so that it can be settled by itself, and then the others, together.
func (p *Policy) reserveApart(ctx context.Context, a *operation, r *Result) (d stint.Decision, err error) {
	if !r.enforces(func(h *ruleMatch) bool { return h.rule.Response != nil }) {
		return p.decideIn(ctx, a.apart(), r, r.cost, false)
	}
	all := append([]stint.Layer(nil), r.layers...)
	if len(all) > 1 {
		if d, err := p.askAll(ctx, a, r, all); err != nil || !d.Allowed {
			return d, err
		}
	}
	d, began, layer := stint.Decision{Allowed: true}, len(r.parts), 0
	defer func() {
		if err != nil || !d.Allowed {
			p.drop(ctx, r.parts[began:], false)
			r.parts = r.parts[:began]
		}
	}()
	r.layers = r.layers[:0]
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() || h.weight == 0 {
			continue
		}
		if layer++; h.rule.Response == nil {
			r.layers = append(r.layers, all[layer-1])
			continue
		}
		one, err := p.reserveAlone(ctx, a, r, h, all[layer-1], false)
		if err != nil || !one.Allowed {
			return one, err
		}
		d.Join(&one)
	}
	if len(r.layers) == 0 {
		return d, nil
	}
	rest, err := p.decideIn(ctx, a.apart(), r, r.cost, false)
	if err != nil || !rest.Allowed {
		return rest, err
	}
	d.Join(&rest)
	return d, nil
}

// reserveAlone reserves the layer of one rule, in units of its limits.
func (p *Policy) reserveAlone(ctx context.Context, a *operation, r *Result, h *ruleMatch, layer stint.Layer, shadow bool) (stint.Decision, error) {
	layer.Weight = 1
	ttl := a.response + min(a.ttl, math.MaxInt64-a.response) // of a queue
	d, id, err := p.in(a.local).Reserve(ctx, []stint.Layer{layer}, h.cost, ttl)
	if err == nil && d.Allowed {
		r.parts = append(r.parts, reservedPart{id: id, local: a.local, shadow: shadow, match: r.Rules[h.first].match + 1})
		var of []fallback.Reserved
		if h.local() && !shadow {
			of = append(of, fallback.Reserved{Pair: p.pairOf(h.plan), Key: h.key, Weight: 1})
		}
		p.failover.Reserve(id, h.cost, ttl, of)
	}
	return d, err
}

// askAll asks whether all layers would let the request pass. A denial is counted by the
// limits that count those, and begins a ban under those that have one.
func (p *Policy) askAll(ctx context.Context, a *operation, r *Result, all []stint.Layer) (stint.Decision, error) {
	d, err := p.in(a.local).Decide(ctx, meter.OpPeek, all, r.cost)
	if err != nil || d.Allowed || !r.enforces(notesDenied) {
		return d, err
	}
	d, id, err := p.in(a.local).Reserve(ctx, all, r.cost, a.response)
	if err == nil && d.Allowed { // there is room by now
		_, err = p.settle(ctx, reservedPart{id: id, local: a.local}, 0)
	}
	return d, err
}

// notesDenied reports whether a match has a limit that charges or bans what it denies.
func notesDenied(h *ruleMatch) bool {
	return slices.ContainsFunc(h.plan.limits, func(l stint.Limit) bool { return l.CountDenied() || l.Ban() > 0 })
}

// enforces reports whether one of the matches that the request is charged by is such.
func (r *Result) enforces(such func(*ruleMatch) bool) bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.weight > 0 && such(h) {
			return true
		}
	}
	return false
}
