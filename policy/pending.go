package policy

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// responseLasts is how long a reservation waits for the end of the response: longer than any
// response takes. If this process is killed, its open reservations stay charged. A response
// that goes on for longer is still charged its cost above the reservation.
const responseLasts = 24 * time.Hour

// headerWithin is how long a reservation excuses denials if a status or a header settles it.
// One that a body settles excuses them as long as it is open.
const headerWithin = 10 * time.Second

// A Pending is a request that has passed, and whose charges still depend on its response:
// those of rules with count, or with a cost of the response. They are settled as soon as the
// response has said enough. A Pending belongs to one goroutine.
type Pending struct {
	// Settled, if it is set before Header, is called by End for each rule whose cost the
	// response says. r says how the rule's key stands after that, and has the cost of the
	// response as Cost; Settled must not keep r. Price: a decision of the store that charges
	// nothing.
	Settled func(r *Result)
	// Reserves, if it is set, is that of the [Result] for what is settled and what Cut reserves.
	Reserves func(open int) error

	policy     *Policy
	matches    []ruleMatch
	parts      []reservedPart // all that can be given back
	rules      []settling
	status     int // 0 if it is not known
	written    int64
	trailers   bool // a gRPC call: its status and further fields follow the body
	open       bool // the status of the gRPC call is not known yet
	compressed bool
	unseen     bool // some bytes of the body were not counted
	cut        bool // the last bytes of the body did not pass
	changed    bool // a settlement has changed what a key has used
}

// A settling is the charge of one rule.
type settling struct {
	*rulesfile.Response
	match    ruleMatch
	reserved int64 // before the first raise
	raised
	asked   int64 // the cost that the request's caller gave, times the price
	reader  *usage.Reader
	header  int64
	found   bool
	settled bool
}

// Begin is [Policy.Wait] for callers that see the response. The Pending settles what the
// rules charge by the response; it is nil if the request was denied, or there is nothing to
// settle or give back. A negative most does not wait. With giveBack, [Pending.Cancel] can
// give back all that the request was charged, until its header is known.
//
// Price: that of Wait where no rule goes by the response. Otherwise each rule that does has a
// reservation of its own. If other rules match as well, the store is first asked whether all
// of them would let the request pass, and then each is charged. Requests that take the room
// in between can make a later rule deny; then the request gives back what it was charged,
// which may meanwhile have denied others. [stint.ErrFull] says that the store has no room for
// another reservation; nothing was charged.
func (p *Policy) Begin(ctx context.Context, attrs Attributes, cost int64, giveBack bool, most time.Duration, r *Result) (*Pending, time.Duration, error) {
	if err := p.match(attrs, cost, r); err != nil {
		return nil, 0, err
	}
	a := &operation{op: meter.OpTake}
	if giveBack {
		a.ttl, a.excuses = responseLasts, headerWithin
	}
	if p.rules.response && r.settles() {
		a.response = responseLasts
	}
	waited, err := p.waitMatched(ctx, attrs, cost, most, a, r)
	if err != nil || !r.Decision.Allowed || !giveBack && a.response == 0 || len(r.parts) == 0 {
		return nil, waited, err
	}
	return p.pending(r), waited, nil
}

func (r *Result) settles() bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.rule.Response != nil && h.limited() && h.weight > 0 {
			return true
		}
	}
	return false
}

func (p *Policy) pending(r *Result) *Pending {
	d := &Pending{policy: p, matches: slices.Clone(r.matches), parts: append([]reservedPart(nil), r.parts...)}
	for i, part := range d.parts {
		if part.match == 0 {
			continue
		}
		h := &r.matches[part.match-1]
		one := settling{Response: h.rule.Response, match: *h, reserved: h.cost, raised: raised{parts: d.parts[i : i+1 : i+1], room: h.cost}}
		one.asked, _ = satmath.Mul(h.asked, h.price)
		for i := range d.rules { // rules that read the same share one reader
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

// ErrCompressed says that a response which a rule must read is compressed. It is charged as a
// response that does not say its cost.
var ErrCompressed = errors.New("policy: the response is compressed, so that its cost cannot be read")

// Reads reports whether a rule must read the body of the response. A compressed body cannot
// be read: ask for an uncompressed one.
func (d *Pending) Reads() bool {
	for i := range d.rules {
		if d.rules[i].Usage != nil {
			return true
		}
	}
	return false
}

// Header is told the status and the header of the response, when they are final; names are as
// package net/http keeps them. Status 0 says that the client left before there was one: each rule
// counts such a response. Header settles all charges but those whose cost the body says. In
// a gRPC call the trailer says the status: rules that count by status wait for it, and so do
// rules whose cost is a field that the header does not have. Nothing later in the response
// changes a settled charge.
//
// Price: a settlement of the store for each rule settled here, before the header goes on.
func (d *Pending) Header(ctx context.Context, status int, h map[string][]string) (err error) {
	d.status = status
	if coding := h["Content-Encoding"]; len(coding) > 0 && coding[0] != "" && coding[0] != "identity" {
		d.compressed = true
	}
	kind := h["Content-Type"]
	d.trailers = len(kind) > 0 && request.IsGRPC(kind[0])
	d.open = d.trailers && status == statuses[0]
	d.fields(h)
	for _, part := range d.parts {
		if part.match == 0 {
			if failed := gone(d.policy.settle(ctx, part, part.cost)); err == nil {
				err = failed
			}
		}
	}
	err = errors.Join(err, d.settle(ctx, false, true))
	_ = d.reserves(0)
	return err
}

// reserves tells Reserves how many reservations are open, and more that are to be made.
func (d *Pending) reserves(more int) error {
	for i := range d.rules {
		if one := &d.rules[i]; !one.settled {
			more += len(one.parts)
		}
	}
	return reserves(d.Reserves, more)
}

// reserves tells a Reserves, which may be nil, how many reservations are open.
func reserves(tell func(int) error, open int) error {
	if tell == nil {
		return nil
	}
	return tell(open)
}

// Trailer is told the fields that follow the body, before End.
func (d *Pending) Trailer(h map[string][]string) {
	if d.trailers {
		d.fields(h)
	}
}

// fields takes from a header or trailer what rules look for.
func (d *Pending) fields(h map[string][]string) {
	if code := h["Grpc-Status"]; d.open && len(code) > 0 {
		n, ok := rulesfile.ParseDigits(code[0])
		if d.open, d.status = false, statuses[2]; ok && n < int64(len(statuses)) {
			d.status = statuses[n]
		}
	}
	for i := range d.rules {
		one := &d.rules[i]
		if values := h[one.Response.Header]; one.Response.Header != "" && len(values) > 0 {
			one.header, one.found = rulesfile.ParseDigits(values[0])
		}
	}
}

// statuses are the statuses of HTTP that google.rpc.Code gives to the codes of gRPC, by code.
// The exceptions are CANCELLED and DEADLINE_EXCEEDED: clients can bring them about before the
// call has failed, so its status is not known.
var statuses = [...]int{200, 0, 500, 400, 0, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// LooksAtFields reports whether a rule looks for a field of the response.
func (d *Pending) LooksAtFields() bool {
	return slices.ContainsFunc(d.rules, func(one settling) bool { return one.Response.Header != "" })
}

// late reports whether the cost is known only when the body has ended.
func (s *settling) late(d *Pending) bool {
	switch {
	case s.Count != nil && d.open:
		return true
	case !s.counts(d):
		return false
	case s.Response.Header != "":
		return d.trailers && !s.found
	}
	return s.OfBody()
}

// counts reports whether a rule counts the response. It counts one whose status is not known.
func (s *settling) counts(d *Pending) bool {
	return s.Count == nil || d.status == 0 || s.Count.Has(d.status)
}

// settle settles the charges whose cost is known; once the body has ended, these are all.
func (d *Pending) settle(ctx context.Context, ended, whole bool) (err error) {
	for i := range d.rules {
		one := &d.rules[i]
		if one.settled || !ended && one.late(d) {
			continue
		}
		one.settled = true
		if !d.cut {
			one.cost = one.units(d, whole, one.least())
		}
		d.changed = d.changed || one.cost != one.reserved && one.match.enforced()
		if failed := d.policy.settleAt(ctx, one, one.cost); err == nil {
			err = failed
		}
	}
	return err
}

// gone drops the error of a reservation that does not exist any more because its key was
// reset: there is nothing to give back.
func gone(_ stint.Decision, err error) error {
	if errors.Is(err, stint.ErrReservation) {
		return nil
	}
	return err
}

// Write is told the next bytes of the body, which have been sent. It never fails, and does
// not keep p.
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

// Passed is told how many bytes of the body were sent without Write, which must see them only
// if a rule reads the body.
func (d *Pending) Passed(n int64) { d.written += n }

// Unseen is told that bytes of the body are not counted, as on a connection that the handler
// has taken over: its length is then unknown.
func (d *Pending) Unseen() { d.unseen = true }

// readBefore reports whether an earlier rule has the same reader, which must see each byte
// once.
func (d *Pending) readBefore(i int) bool {
	for k := range i {
		if d.rules[k].reader == d.rules[i].reader {
			return true
		}
	}
	return false
}

// End settles the charges whose cost the body says, when it has ended. whole is false if the
// client or the server went away before its end: then the response costs what it has said so
// far, and at least what was reserved.
func (d *Pending) End(ctx context.Context, whole bool) error {
	if d.open { // the gRPC call ended without its status
		d.status = 0
	}
	err := d.settle(ctx, true, whole)
	_ = d.reserves(0)
	d.tell(ctx)
	if d.compressed && d.Reads() {
		return errors.Join(err, ErrCompressed)
	}
	return err
}

func (d *Pending) tell(ctx context.Context) {
	if d.Settled == nil {
		return
	}
	r := new(Result)
	for i := range d.rules {
		one := &d.rules[i]
		if one.Truth() == "" || !one.match.enforced() || d.policy.stand(ctx, &one.match, r) != nil {
			continue
		}
		for k := range r.Rules {
			r.Rules[k].Cost = one.cost
		}
		d.Settled(r)
	}
}

// Cancel gives back all that the request was charged, whatever the rules say. Call it in
// place of Header; nothing is settled after it.
func (d *Pending) Cancel(ctx context.Context) (err error) {
	d.changed = true
	for _, part := range d.parts {
		if failed := gone(d.policy.settle(ctx, part, 0)); err == nil {
			err = failed
		}
	}
	_ = reserves(d.Reserves, 0)
	return err
}

// Remains says in r, after Header or Cancel, what remains under all the rules that the request
// is held to. It returns false if the settlement has changed nothing, or if that is not known,
// as when the store fails.
//
// Price: a decision of the store that charges nothing.
func (d *Pending) Remains(ctx context.Context, r *Result) bool {
	if !d.changed {
		return false
	}
	d.policy.begin(r, 0)
	for _, h := range d.matches {
		h.cost, h.first = 0, len(r.Rules)
		r.matches = append(r.matches, h)
		r.addEntries(&h)
	}
	r.Decision.Allowed = true
	return d.policy.ask(ctx, &operation{op: meter.OpPeek, local: d.parts[0].local}, r) == nil
}

// least returns the least that a response costs that is not whole.
func (s *settling) least() int64 {
	if s.reader == nil {
		return s.reserved
	}
	missing, _ := satmath.Mul(max(s.Missing, 0), s.asked)
	return max(s.reserved, missing)
}

// units returns what a rule charges for the response; for one that is not whole, at least the
// last argument.
func (s *settling) units(d *Pending, whole bool, least int64) int64 {
	if !s.counts(d) {
		return 0
	}
	value, ok := s.header, s.found
	switch {
	case s.Truth() == "":
		return s.reserved
	case ok: // whatever became of the response
		whole = true
	case s.Bytes:
		value, ok = d.written, !d.unseen
	case s.reader != nil:
		value, ok = s.reader.Sum()
		whole = (whole || s.reader.Ended()) && !s.reader.Open()
	}
	if !ok {
		value, whole = 0, whole && s.Missing >= 0
		if whole {
			value = s.Missing
		}
	}
	if !whole { // usage reported midway is only a part
		value = max(value, s.estimate(d))
	}
	units, _ := satmath.Mul(value, s.asked)
	if !whole {
		return max(units, least)
	}
	return units
}

// estimate returns what a body seems to cost that does not say its cost.
func (s *settling) estimate(d *Pending) int64 {
	if !s.Estimate || d.status < 200 || d.status > 299 {
		return 0
	}
	return s.reader.Estimate(d.written)
}

// settleAt settles what one rule charges for the response. What is given back comes off the
// newest part first.
func (p *Policy) settleAt(ctx context.Context, s *settling, units int64) (err error) {
	units = max(units-s.used, 0)
	before := int64(0)
	for i := range s.parts {
		before += s.parts[i].cost
	}
	for _, part := range slices.Backward(s.parts) {
		before -= part.cost
		if failed := p.settlePart(ctx, s, part, max(units-before, 0)); err == nil {
			err = failed
		}
		units = min(units, before)
	}
	return err
}

// settlePart settles one part. If it does not exist any more, the units above it are still
// charged.
func (p *Policy) settlePart(ctx context.Context, s *settling, part reservedPart, units int64) error {
	_, err := p.settle(ctx, part, units)
	if !errors.Is(err, stint.ErrReservation) {
		return err
	}
	if units <= part.cost {
		return nil
	}
	a := operation{local: part.local}
	_, id, err := p.in(a.local).Reserve(ctx, []stint.Layer{{Bound: p.bound(a.local, &s.match), Key: s.match.key}}, 0, time.Minute)
	if err != nil || id == "" {
		return err
	}
	p.remember(&a, id, nil, 0, time.Minute, func() []fallback.Reserved { return p.reservedBy(&s.match, 1, 0) })
	_, err = p.settle(ctx, reservedPart{id: id, local: a.local}, units-part.cost)
	return err
}

// reservesApart reports whether an enforced rule needs a reservation of its own.
func (r *Result) reservesApart(a *operation) bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.unit > 0 && h.apart(a) {
			return true
		}
	}
	return a.ttl > 0 && len(r.Costs) > 0 // the rules not named in Costs then reserve the plain cost
}

// reserveApart reserves for r.layers: by itself for each rule that is settled by itself, then
// once for all others. If one is denied or fails, it gives the earlier ones back.
func (p *Policy) reserveApart(ctx context.Context, a *operation, r *Result) (d stint.Decision, err error) {
	all := append([]stint.Layer(nil), r.layers...)
	if len(all) > 1 {
		if d, err := p.askAll(ctx, a, r, all); err != nil || !d.Allowed {
			return d, err
		}
	}
	d, began := stint.Decision{Allowed: true}, len(r.parts)
	defer func() {
		if err != nil || !d.Allowed {
			p.drop(ctx, r.parts[began:], false)
			r.parts = r.parts[:began]
			_ = reserves(r.Reserves, began) // of no more than before
		}
	}()
	r.layers = r.layers[:0]
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() || h.unit == 0 {
			continue
		}
		if !h.apart(a) {
			r.addLayer(a.local, h).Weight = h.unit
			continue
		}
		one, err := p.reserveAlone(ctx, a, r, h, false)
		if err != nil || !one.Allowed {
			return one, err
		}
		d.Join(&one)
	}
	if len(r.layers) == 0 {
		return d, nil
	}
	rest, err := p.put(ctx, a, r, r.plain, false)
	if err != nil || !rest.Allowed {
		return rest, err
	}
	d.Join(&rest)
	return d, nil
}

// reserveAlone reserves for one rule: in units of its limits if the response will say the
// cost in these, else in units of the caller's cost.
func (p *Policy) reserveAlone(ctx context.Context, a *operation, r *Result, h *ruleMatch, shadow bool) (stint.Decision, error) {
	layers, cost := make([]stint.Layer, 1), h.asked
	layer := &layers[0]
	r.setLayer(layer, a.local, h)
	part := reservedPart{local: a.local, shadow: shadow}
	layer.Weight, layer.Excuses = h.unit, a.excuses
	if h.byResponse(a) {
		layer.Weight, cost, part.match = 1, h.cost, r.Rules[h.first].match+1
		if layer.Excuses = headerWithin; h.rule.Response.OfBody() {
			layer.Excuses = responseLasts
		}
	}
	if h.named {
		part.name = h.rule.Name
	}
	ttl := a.response + min(a.ttl, math.MaxInt64-a.response) // a.ttl is for the time in a queue
	d, id, err := p.takeIn(ctx, a, r, layers, cost, ttl)
	if err == nil && d.Allowed {
		part.id, part.cost = id, cost
		r.parts = append(r.parts, part)
	}
	p.remember(a, id, err, cost, ttl, func() []fallback.Reserved { return p.reservedBy(h, layer.Weight, layer.Excuses) })
	return d, err
}

// askAll asks whether all layers would let the request pass. A denial is charged under limits
// that count denials, and begins a ban under limits that have bans: only a reservation does
// that, not a peek.
func (p *Policy) askAll(ctx context.Context, a *operation, r *Result, all []stint.Layer) (stint.Decision, error) {
	d, err := p.in(a.local).Decide(ctx, meter.OpPeek, all, r.cost)
	if err != nil || d.Allowed || a.turn || !r.enforces(notesDenied) {
		return d, err
	}
	d, id, err := p.in(a.local).Reserve(ctx, all, r.cost, max(a.response, a.ttl))
	if err == nil && d.Allowed { // there is room by now
		_, err = p.settle(ctx, reservedPart{id: id, local: a.local}, 0)
	}
	p.failover.Lost(err, func() []fallback.Reserved { return p.reserved(&operation{}, r, false) })
	return d, err
}

// notesDenied reports whether a match has a limit that counts or bans what it denies.
func notesDenied(h *ruleMatch) bool {
	return slices.ContainsFunc(h.plan.limits, func(l stint.Limit) bool { return l.CountDenied() || l.Ban() > 0 })
}

// enforces reports whether is holds for a match that the request is charged by.
func (r *Result) enforces(is func(*ruleMatch) bool) bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.weight > 0 && is(h) {
			return true
		}
	}
	return false
}
