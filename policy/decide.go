package policy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/meter"
)

// An operation is what a store does for a request: an Op, a reservation that lasts ttl, or a
// refund.
type operation struct {
	op     meter.Op
	refund bool
	local  bool          // the local store does it
	why    error         // why the main store does not
	ttl    time.Duration // of the reservation; 0 makes none
	// excuses is how long an open reservation excuses denials.
	excuses time.Duration
	// response is how long the reservations of rules that go by the response last; if 0,
	// these rules make none.
	response time.Duration
	// lease is how long places in flight are held if nobody settles the reservation; 0 holds
	// them until Result.Release.
	lease time.Duration
	// turn is set for a request that waits in line: a denial then changes nothing. age is the
	// most by which its charge may be dated back.
	turn bool
	age  time.Duration
}

func (a *operation) charges() bool { return a.op != meter.OpPeek && !a.refund }

// Decide answers whether the request may pass now, and charges it: cost times
// what each rule says it costs. The answer is in r. The error is a
// [RequestError], [stint.ErrCost], [stint.ErrLayers] for a request that is held
// to more than [stint.MaxLimits] limits, or the store's where the rules do not
// say what to do then.
func (p *Policy) Decide(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	if err := p.decide(ctx, &operation{op: meter.OpTake}, r); err != nil {
		return err
	}
	p.report(attrs, cost, r)
	return nil
}

func (p *Policy) report(attrs Attributes, cost int64, r *Result) {
	if p.opts.OnDecision != nil {
		p.callOnDecision(attrs, cost, r)
	}
}

func (p *Policy) callOnDecision(attrs Attributes, cost int64, r *Result) {
	done := false
	defer func() {
		if !done { // OnDecision panicked: nobody will release what the request holds
			r.giveBack()
		}
	}()
	p.opts.OnDecision(p.rules, attrs, cost, r)
	done = true
}

// Peek is Decide without the charge.
func (p *Policy) Peek(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	return p.decide(ctx, &operation{op: meter.OpPeek}, r)
}

// decide decides for the rules that matched: first, in one step, for those that are not in
// shadow, then for each rule in shadow by itself.
func (p *Policy) decide(ctx context.Context, a *operation, r *Result) (err error) {
	inFlight := r.inFlight
	if p.lines.Empty() || r.blocked >= 0 || r.several {
		err = p.enforce(ctx, a, r)
	} else {
		err = p.beside(ctx, a, r)
	}
	if err == nil {
		p.inShadow(ctx, a, r, inFlight)
	}
	return err
}

// enforce decides for the rules that are not in shadow, without regard to requests that wait.
func (p *Policy) enforce(ctx context.Context, a *operation, r *Result) error {
	if r.inFlight {
		return p.decideInFlight(ctx, a, r)
	}
	return p.decideTimed(ctx, a, r)
}

// inShadow decides for each rule in shadow by itself.
func (p *Policy) inShadow(ctx context.Context, a *operation, r *Result, inFlight bool) {
	if p.rules.shadow {
		p.shadows(ctx, a, r)
	}
	if inFlight && r.Decision.Allowed {
		p.shadowsInFlight(ctx, a, r)
	}
}

// decideTimed is enforce for limits over time.
func (p *Policy) decideTimed(ctx context.Context, a *operation, r *Result) error {
	r.Decision.Allowed, r.Decision.Tightest = true, -1
	if r.blocked >= 0 {
		if r.several { // the other requests' answers say where their limits stand
			r.StoreError = p.run(ctx, &operation{op: meter.OpPeek}, r)
		}
		r.Decision = stint.Decision{RetryAfter: r.Rules[r.blocked].RetryAfter, Tightest: -1}
		r.Tightest = r.blocked
	} else if err := p.ask(ctx, a, r); err != nil {
		if err = p.failed(ctx, a, r, err); err != nil {
			return err
		}
	} else if a.charges() && r.Decision.Allowed && p.local != nil {
		p.warm(a, r)
	}
	return nil
}

// run decides for all enforced matches in one store.
func (p *Policy) run(ctx context.Context, a *operation, r *Result) error {
	if r.several {
		return p.runAll(ctx, a, r)
	}
	var first *ruleMatch
	limits, free := 0, false
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() {
			if first == nil {
				first = h
			}
			limits += len(h.plan.ruleLimits)
			free = free || h.weight == 0
		}
	}
	switch {
	case first == nil:
		return nil
	case limits == 1 && first.plain(a) && r.StoreError == nil: // after an error, number must count the rules that were left out
		return p.one(ctx, a, r, first)
	case limits > stint.MaxLimits:
		return fmt.Errorf("policy: %w: the request is held to %d limits, by rule %q first: at most %d", stint.ErrLayers, limits, first.rule.Name, stint.MaxLimits)
	}
	r.layers = r.layers[:0]
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.weight > 0 {
			r.addLayer(a.local, h)
		}
	}
	d, err := stint.Decision{Allowed: true}, error(nil) // conclude names the tightest
	if len(r.layers) > 0 || r.reservesApart(a) {
		d, err = p.decideIn(ctx, a, r, r.cost, false)
	}
	if free && err == nil {
		err = p.peekFree(ctx, a.local, r, &d)
	}
	if err != nil {
		return err
	}
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() {
			r.setResult(h)
		}
	}
	r.conclude(d)
	return nil
}

// plain reports whether a match with one limit can be decided by [stint.Bound.Decide], which
// is cheaper than a layer.
func (h *ruleMatch) plain(a *operation) bool {
	turn := a.turn && (a.age > 0 || notesDenied(h))
	return a.ttl == 0 && !a.refund && !turn && h.weight > 0 && h.cost < math.MaxInt64 && !h.byResponse(a)
}

func (p *Policy) one(ctx context.Context, a *operation, r *Result, h *ruleMatch) (err error) {
	if r.Decision, err = p.bound(a.local, h).Decide(ctx, a.op, h.key, h.cost); err != nil {
		return err
	}
	r.Rules[h.first].set(&r.Decision)
	r.Tightest = h.first
	return nil
}

func (p *Policy) in(local bool) stint.Store {
	if local {
		return p.local
	}
	return p.main
}

func (p *Policy) bound(local bool, h *ruleMatch) stint.Bound {
	if local {
		return p.pairOf(h.plan).Local
	}
	return p.pairOf(h.plan).Main
}

// pairOf returns the limits of a plan in both stores.
func (p *Policy) pairOf(of *plan) *fallback.Pair {
	if of.pair != nil {
		return of.pair
	}
	return p.pairs[of.id]
}

// addLayer appends the layer of a match to r.layers.
func (r *Result) addLayer(local bool, h *ruleMatch) *stint.Layer {
	r.layers = append(r.layers, stint.Layer{})
	layer := &r.layers[len(r.layers)-1]
	r.setLayer(layer, local, h)
	return layer
}

// setLayer writes the layer of a match, with room for the answers of its limits. It is set field
// by field, as [Policy.begin] explains.
func (r *Result) setLayer(layer *stint.Layer, local bool, h *ruleMatch) {
	if missing := len(r.Rules) - len(r.answers); missing > 0 {
		r.answers = slices.Grow(r.answers, missing)[:len(r.Rules)]
	}
	layer.Bound, layer.Key, layer.Weight = r.policy.bound(local, h), h.key, h.weight
	layer.Answers = r.answers[h.first : h.first+len(h.plan.ruleLimits)]
}

// decideIn asks the store for r.layers: in one step, unless a rule that is enforced reserves
// by itself.
func (p *Policy) decideIn(ctx context.Context, a *operation, r *Result, cost int64, shadow bool) (stint.Decision, error) {
	if !shadow && r.reservesApart(a) {
		return p.reserveApart(ctx, a, r)
	}
	return p.put(ctx, a, r, cost, shadow)
}

// put asks the store for r.layers in one step.
func (p *Policy) put(ctx context.Context, a *operation, r *Result, cost int64, shadow bool) (stint.Decision, error) {
	switch {
	case a.refund:
		return p.in(a.local).Refund(ctx, r.layers, cost)
	case a.ttl == 0 && !a.turn:
		return p.in(a.local).Decide(ctx, a.op, r.layers, cost)
	case a.ttl == 0:
		d, _, err := p.takeIn(ctx, a, r, r.layers, cost, 0)
		return d, err
	}
	for i := range r.layers {
		r.layers[i].Excuses = a.excuses
	}
	d, id, err := p.takeIn(ctx, a, r, r.layers, cost, a.ttl)
	if err == nil && d.Allowed {
		r.parts = append(r.parts, reservedPart{id: id, cost: cost, local: a.local, shadow: shadow})
	}
	p.remember(a, id, err, cost, a.ttl, func() []fallback.Reserved { return p.reserved(a, r, shadow) })
	return d, err
}

// takeIn decides in one store, or reserves if ttl is above 0. For a request that waits in
// line, a denial changes nothing, and a charge counts as of the request's turn if the store
// is a [stint.TurnStore].
func (p *Policy) takeIn(ctx context.Context, a *operation, r *Result, layers []stint.Layer, cost int64, ttl time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	store := p.in(a.local)
	if ttl > 0 {
		if err = reserves(r.Reserves, len(r.parts)+1); err != nil {
			return d, "", err
		}
		defer func() {
			if err != nil || !d.Allowed {
				_ = reserves(r.Reserves, len(r.parts)) // of no more than before
			}
		}()
	}
	if turns, ok := store.(stint.TurnStore); ok && a.turn && r.held == 0 {
		return turns.TakeTurn(ctx, layers, cost, ttl, a.age)
	}
	if a.turn && r.enforces(notesDenied) {
		if d, err = store.Decide(ctx, meter.OpPeek, layers, cost); err != nil || !d.Allowed {
			return d, "", err
		}
	}
	if ttl > 0 {
		return store.Reserve(ctx, layers, cost, ttl)
	}
	d, err = store.Decide(ctx, a.op, layers, cost)
	return d, "", err
}

// peekFree asks about the enforced matches that cost this request nothing, and joins their
// reset after to d.
func (p *Policy) peekFree(ctx context.Context, local bool, r *Result, d *stint.Decision) error {
	r.layers = r.layers[:0]
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.weight == 0 {
			r.addLayer(local, h)
		}
	}
	state, err := p.decideIn(ctx, &operation{op: meter.OpPeek, local: local}, r, 0, false)
	d.ResetAfter = max(d.ResetAfter, state.ResetAfter)
	return err
}

func (r *Result) setResult(h *ruleMatch) {
	for k := range h.plan.ruleLimits {
		r.Rules[h.first+k].set(&r.answers[h.first+k])
	}
}

func (e *RuleResult) set(d *stint.Decision) {
	e.Denied, e.Banned, e.ResetAfter, e.RetryAfter = !d.Allowed, d.Banned, d.ResetAfter, d.RetryAfter
	if e.use(d.Limit, d.Limit-d.Remaining, d.Remaining); d.Banned {
		e.Used = -1
	}
}

// use notes how much of the limit that decided is used and left. Its capacity is 0 if none did,
// because a store in front lets all pass or none.
func (e *RuleResult) use(capacity, used, left int64) {
	if capacity == 0 {
		if capacity, used, left = e.capacity, -1, -1; e.Denied {
			left = 0
		}
	}
	e.Capacity, e.Used, e.Remaining = capacity, used, left
}

// conclude takes d as the joined answer, with the numbers of the tightest limit.
func (r *Result) conclude(d stint.Decision) {
	if r.number(&d); r.Tightest >= 0 {
		about := &r.answers[r.Tightest]
		d.Limit, d.Remaining, d.Taken = about.Limit, about.Remaining, about.Taken
	}
	r.Decision = d
}

// number says in d and r which limits have denied, and which is the tightest.
func (r *Result) number(d *stint.Decision) {
	d.Denied, d.Tightest, r.Tightest = 0, -1, -1
	limit := 0
	for i := range r.matches {
		h := &r.matches[i]
		if h.fixed && !h.rule.Shadow {
			limit += len(h.plan.ruleLimits)
		}
		if !h.enforced() {
			continue
		}
		for k := range h.plan.ruleLimits {
			if r.Rules[h.first+k].Denied && limit < stint.MaxLimits {
				d.Denied |= 1 << uint(limit)
			}
			if r.Tightest < 0 || r.tighter(h.first+k, r.Tightest) {
				r.Tightest, d.Tightest = h.first+k, limit
			}
			limit++
		}
	}
}

// tighter reports whether Rules[i] holds the request more than Rules[j]: by the
// longest denial, else by letting fewer such requests pass.
func (r *Result) tighter(i, j int) bool {
	a, b := &r.Rules[i], &r.Rules[j]
	switch {
	case a.Denied != b.Denied:
		return a.Denied
	case a.Denied:
		return b.RetryAfter != stint.Never && (a.RetryAfter == stint.Never || a.RetryAfter > b.RetryAfter)
	}
	return r.requests(a) < r.requests(b)
}

// requests is how many more requests of cost 1 an entry lets pass.
func (r *Result) requests(e *RuleResult) int64 {
	if w := r.matches[e.match].weight; w > 0 {
		return e.Remaining / w
	}
	return math.MaxInt64
}

// shadows decides for each rule in shadow by itself. A request that the other rules have
// denied will not happen, and so it is charged here only under plans whose limits all count
// what is denied. Once the store has failed this request, it is not asked again: the
// caller's time is limited.
func (p *Policy) shadows(ctx context.Context, a *operation, r *Result) {
	for i := range r.matches {
		h := &r.matches[i]
		if !h.limited() || !h.rule.Shadow {
			continue
		}
		now := a
		if !r.Decision.Allowed && (!a.charges() || a.ttl > 0 || !h.plan.countsDenied()) {
			now = &operation{op: meter.OpPeek}
		}
		p.shadow(ctx, h.part.operation(now), r, h)
	}
}

func (p *Policy) shadow(ctx context.Context, a *operation, r *Result, h *ruleMatch) {
	if r.StoreError != nil {
		r.shadowed(h, r.StoreError)
		return
	}
	cost, weight := h.asked, h.unit
	if r.several {
		cost, weight = h.part.cost(), h.weight
	}
	if weight == 0 {
		a, cost = &operation{op: meter.OpPeek}, 0
	}
	var d stint.Decision
	var err error
	if len(h.plan.ruleLimits) == 1 && h.plain(a) {
		if d, err = p.bound(false, h).Decide(ctx, a.op, h.key, h.cost); err == nil {
			r.Rules[h.first].set(&d)
		}
	} else {
		r.layers = r.layers[:0]
		r.addLayer(false, h).Weight = weight
		if h.apart(a) {
			_, err = p.reserveAlone(ctx, a, r, h, true)
		} else {
			_, err = p.put(ctx, a, r, cost, true)
		}
		if err == nil {
			r.setResult(h)
		}
	}
	r.shadowed(h, err)
}

// shadowed notes in r what a rule in shadow decided, or that its store failed.
func (r *Result) shadowed(h *ruleMatch, err error) {
	for k := range h.plan.ruleLimits {
		e := &r.Rules[h.first+k]
		if err != nil {
			e.Failed = FailOpen
		}
		r.ShadowDenied = r.ShadowDenied || e.Denied
	}
	if err != nil && r.StoreError == nil {
		r.StoreError = err
	}
}
