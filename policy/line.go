package policy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
	"github.com/stint-dev/stint/meter"
)

// mostWaiting is how many requests may wait for one key of a limit: each of them holds a
// connection or the like.
const mostWaiting = 1000

// askAgain is how often the first request of a line asks a store that does not say when it
// has room again.
const askAgain = time.Second

// errTooLate ends the wait of a request that would wait longer than it may.
var errTooLate = errors.New("policy: it would wait too long")

// A lineOwner is what the lines of a policy need of its stores.
type lineOwner struct {
	store stint.Store
	room  *inflight.Room
}

// Watch implements [arrivals.Owner]. Only the names of limits in flight have a NUL.
func (o lineOwner) Watch(at arrivals.Place, wake func()) (stop func(), poll time.Duration) {
	if strings.Contains(at.Name, "\x00") {
		return o.room.Watch(at.Name, at.Key, wake)
	}
	if w, ok := o.store.(interface {
		Watch(b stint.Bound, key string, wake func()) (stop func())
	}); ok {
		return w.Watch(nil, at.Key, wake), 0
	}
	return nil, askAgain
}

// Divert implements [arrivals.Owner]. It has nothing to do: each decision looks for lines by
// itself.
func (o lineOwner) Divert(bool) {}

// Newcomer implements [arrivals.Owner]. Nothing delays newcomers: requests under a
// leaky_queue stand in Policy.queued.
func (o lineOwner) Newcomer(context.Context, arrivals.Place) (delay time.Duration, pace waitqueue.Pace, err error) {
	return delay, pace, err
}

// GiveBack implements [arrivals.Owner].
func (o lineOwner) GiveBack(context.Context, string, int64) {}

// A place is what a request waits for at one place in line: a limit in flight, or all limits
// over time of a rule.
type place struct {
	layer  stint.Layer    // of limits over time
	hold   *inflight.Hold // of a limit in flight, else nil
	limits []stint.Limit
	cost   int64
	first  int // of its entries in Result.Rules
}

// places returns what a request is held to, and for each of these where in line it stands.
func (p *Policy) places(r *Result) (all []place, stands []arrivals.Part) {
	add := func(name, key string, one place) {
		all = append(all, one)
		stands = append(stands, arrivals.Part{Lines: p.lines, At: arrivals.Place{Name: name, Key: key}, Cost: one.cost})
	}
	for i := range r.matches {
		h := &r.matches[i]
		if h.enforced() && h.cost > 0 {
			layer := stint.Layer{Bound: p.bound(false, h), Key: h.key}
			add(p.stateName(h.plan), h.key, place{layer: layer, limits: h.plan.limits, cost: h.cost, first: h.first})
		}
		if units := h.places(); units > 0 && !h.fixed && !h.rule.Shadow {
			for k, l := range h.plan.inFlight {
				hold := &inflight.Hold{Name: l.inFlight, Key: h.key, Limit: l.Limit.Count(), Units: units}
				add(l.inFlight, h.key, place{hold: hold, limits: []stint.Limit{l.Limit}, cost: units, first: h.first + len(h.plan.ruleLimits) + k})
			}
		}
	}
	return all, stands
}

// ahead says how the limits would answer the request if so much more were taken at each of
// its places: d is the answer of the limits over time, and lacks has a bit for each place
// without room.
func (p *Policy) ahead(ctx context.Context, all []place, more []uint128.Int) (d stint.Decision, lacks uint64, err error) {
	if d, lacks, err = p.together(ctx, all, fits(all, more)); err == nil {
		lacks |= p.afterwards(&d, all, more)
	}
	return d, lacks, err
}

// together is ahead for what can pass at one moment.
func (p *Policy) together(ctx context.Context, all []place, more []int64) (d stint.Decision, lacks uint64, err error) {
	var layers []stint.Layer
	var holds []inflight.Hold
	var at []int // of layers, then of holds
	for i, one := range all {
		if one.hold == nil {
			one.layer.Weight, one.layer.Answers = one.cost+more[i], make([]stint.Decision, len(one.limits))
			all[i].layer = one.layer
			layers, at = append(layers, one.layer), append(at, i)
		}
	}
	d.Allowed = true
	if len(layers) > 0 {
		if d, err = p.main.Decide(ctx, meter.OpPeek, layers, 1); err != nil {
			return d, 0, err
		}
	}
	for i := range layers {
		if slices.ContainsFunc(layers[i].Answers, func(d stint.Decision) bool { return !d.Allowed }) {
			lacks |= 1 << uint(at[i])
		}
	}
	for i, one := range all {
		if one.hold != nil {
			hold := *one.hold
			hold.Units += more[i]
			holds, at = append(holds, hold), append(at, i)
		}
	}
	if len(holds) > 0 {
		if _, err = p.room.Look(ctx, holds); err != nil {
			return d, 0, err
		}
	}
	for i := range holds {
		if holds[i].Denied {
			lacks |= 1 << uint(at[len(layers)+i])
		}
	}
	return d, lacks, nil
}

// fits returns how much of more, the units that others take before a request, could pass together with the
// request at one moment.
func fits(all []place, more []uint128.Int) []int64 {
	fit := make([]int64, len(all))
	for i, one := range all {
		most := capacity(one.limits)
		if one.hold == nil {
			most -= one.cost
		}
		fit[i] = max(min(saturated(more[i]), most), 0)
	}
	return fit
}

// afterwards extends the answer d from the units that fit at one moment to all units, and returns a bit for each place where some
// are above the capacity of a limit.
func (p *Policy) afterwards(d *stint.Decision, all []place, more []uint128.Int) (lacks uint64) {
	told, least := stint.Wait(0), stint.Wait(0)
	for i, one := range all {
		if one.hold != nil {
			continue
		}
		needs, fits := more[i].Add(uint128.From(uint64(one.cost))), uint128.From(uint64(one.layer.Weight))
		for k, l := range one.limits {
			a := &one.layer.Answers[k]
			wait := arrivals.After(l, l.Algorithm(), needs, fits, arrivals.Outlook{First: time.Duration(a.RetryAfter), Reset: a.ResetAfter, Edge: !a.Banned})
			if !a.Allowed && p.drains(l, a.ResetAfter) {
				wait = 1
			}
			if uint128.From(uint64(l.Capacity())).Less(needs) {
				lacks, wait, d.Allowed = lacks|1<<uint(i), max(wait, 1), false
			}
			told, least = longer(told, a.RetryAfter), max(least, stint.Wait(wait))
		}
	}
	switch d.RetryAfter {
	case stint.Never:
		return lacks
	case told:
		d.RetryAfter = 0 // the wait of a single limit, for which least is exact
	}
	d.RetryAfter = max(d.RetryAfter, least)
	return lacks
}

// drains reports whether more is in use than a limit holds, which comes back by the numbers of rules from
// before. It may be a debt, too.
func (p *Policy) drains(l stint.Limit, reset time.Duration) bool {
	return reset > arrivals.Longest(l, l.Algorithm()) && p.lines.Old()
}

func saturated(n uint128.Int) int64 {
	if n.Hi > 0 || n.Lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n.Lo)
}

func capacity(limits []stint.Limit) int64 {
	least := int64(math.MaxInt64)
	for _, l := range limits {
		least = min(least, l.Capacity())
	}
	return least
}

// beside decides for a request that does not wait, as if the requests in its lines had taken
// what they wait for: it must not pass before them.
func (p *Policy) beside(ctx context.Context, a *operation, r *Result) error {
	all, stands := p.places(r)
	needed, end := arrivals.Beside(stands)
	defer end()
	if !slices.ContainsFunc(needed, func(n uint128.Int) bool { return !n.Zero() }) {
		return p.enforce(ctx, a, r)
	}
	joined, lacks, err := p.ahead(ctx, all, needed)
	if err != nil || lacks == 0 {
		return p.enforce(ctx, a, r) // if the store fails, by each rule's on_store_failure
	}
	inFlight := r.inFlight
	if err = p.enforce(ctx, &operation{op: meter.OpPeek}, r); err != nil {
		return err
	}
	d := &r.Decision
	if d.RetryAfter == stint.Never || !d.Allowed && r.enforces(notesDenied) {
		r.inFlight = inFlight
		return p.enforce(ctx, a, r) // this denial begins a ban, or is counted
	}
	*d = stint.Decision{ResetAfter: max(d.ResetAfter, joined.ResetAfter), RetryAfter: max(d.RetryAfter, joined.RetryAfter, 1)}
	for i, one := range all {
		if e := &r.Rules[one.first]; lacks>>uint(i)&1 != 0 {
			e.Denied, e.Remaining, e.RetryAfter = true, 0, d.RetryAfter
		}
	}
	r.number(d)
	for i, one := range all {
		if lacks>>uint(i)&1 != 0 && one.hold != nil {
			d.RetryAfter = longer(d.RetryAfter, stint.Wait(time.Second))
			if r.Rules[one.first].RetryAfter = stint.Wait(time.Second); r.Tightest < 0 || r.tighter(one.first, r.Tightest) {
				r.Tightest, d.Tightest = one.first, -1
			}
		}
	}
	d.Limit = r.Rules[r.Tightest].Capacity
	return nil
}

// waitInLine decides for a request that may wait. Requests pass in the order of arrival, each
// when all its limits let it pass at one moment. One that would wait longer than it may is
// denied, like one that does not wait.
func (p *Policy) waitInLine(ctx context.Context, attrs Attributes, cost int64, most time.Duration, a *operation, r *Result) (waited time.Duration, err error) {
	inFlight, turn, began, asked := r.inFlight, *a, time.Now(), p.lines.Empty()
	if turn.turn = true; asked {
		err = p.enforce(ctx, &turn, r)
	}
	if err == nil && !r.Decision.Allowed {
		w := &waiting{p: p, attrs: attrs, cost: cost, most: most, a: turn, r: r, began: began}
		err = w.wait(ctx, asked)
		waited = w.Age()
	}
	switch {
	case err == nil:
		p.inShadow(ctx, a, r, inFlight)
		return waited, nil
	case !errors.Is(err, errTooLate):
		return 0, err
	}
	if err := p.match(attrs, cost, r); err != nil {
		return 0, err
	}
	return 0, p.decide(context.WithoutCancel(ctx), a, r)
}

// A waiting is a request that waits in the lines of its policy.
type waiting struct {
	arrivals.Waiter
	p        *Policy
	attrs    Attributes
	cost     int64
	most     time.Duration
	a        operation
	r        *Result
	places   []place
	before   []uint128.Int // at each place, those that have been counted before it
	free     time.Time     // since when its places in flight have all been found free
	began    time.Time
	deadline time.Time   // of its caller, or zero
	end      *time.Timer // of the wait
}

// wait waits in line. asked says that the store has just denied the request; else others wait
// already.
func (w *waiting) wait(ctx context.Context, asked bool) (err error) {
	var a arrivals.Answer
	var stands []arrivals.Part
	w.places, stands = w.p.places(w.r)
	w.before = make([]uint128.Int, len(stands))
	if w.deadline, _ = ctx.Deadline(); asked {
		a, err = w.answer()
	} else {
		a, err = w.comesBehind(ctx, stands)
	}
	if err != nil {
		return err
	}
	if !w.Join(w, a.Lacks, stands...) {
		return errTooLate
	}
	waits, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.end = time.AfterFunc(w.left(), func() { end(context.DeadlineExceeded) })
	defer w.end.Stop()
	_, err = w.Drive(waits, false)
	ends := ctx.Err()
	if err != nil && (ends == nil && errors.Is(context.Cause(waits), context.DeadlineExceeded) || errors.Is(ends, context.DeadlineExceeded)) {
		return errTooLate
	}
	return err // nil even at the deadline, if the turn came with it
}

// ask asks for all that the request needs, and notes since when its places in flight have
// been free.
func (w *waiting) ask(ctx context.Context) error {
	if err := w.p.match(w.attrs, w.cost, w.r); err != nil {
		return err
	}
	now := time.Now()
	if w.a.age = w.Age(); len(w.r.Rules) > 1 {
		w.a.age = w.Free()
	}
	if flies := slices.ContainsFunc(w.places, func(one place) bool { return one.hold != nil }); flies {
		w.a.age = 0 // unknown: a place may have become free just now
		if !w.free.IsZero() {
			w.a.age = now.Sub(w.free)
		}
	}
	w.free = now
	err := w.p.enforce(ctx, &w.a, w.r)
	for _, one := range w.places {
		if one.hold != nil && one.first < len(w.r.Rules) && w.r.Rules[one.first].Denied {
			w.free = time.Time{}
		}
	}
	return err
}

// left returns how long the request may still wait for the limits that deny it, by their
// rules or else by its caller. If none does, and it waits for its turn alone, that is as long as
// any of its rules lets it wait.
func (w *waiting) left() time.Duration {
	least := time.Duration(math.MaxInt64)
	for i := range w.r.Rules {
		e := &w.r.Rules[i]
		if !e.Denied || e.Shadow {
			continue
		}
		within := w.r.matches[e.match].rule.within(w.most)
		if e.RetryAfter == stint.Never || e.Limit.Algorithm().Queues() {
			within = 0
		}
		least = min(least, within)
	}
	if least == math.MaxInt64 {
		least = 0
		for i := range w.r.matches {
			least = max(least, w.r.matches[i].rule.within(w.most))
		}
	}
	end := w.began.Add(least)
	if !w.deadline.IsZero() && w.deadline.Before(end) {
		end = w.deadline
	}
	return time.Until(end)
}

// within returns how long a request may wait for room under the rule. most is how long its
// caller lets it wait, 0 if the caller leaves that to the rules.
func (r *rule) within(most time.Duration) time.Duration {
	if r.Wait == 0 || most > 0 && most < r.Wait {
		return most
	}
	return r.Wait
}

// mayWait reports whether a limit that takes something from the request lets it wait.
func (r *Result) mayWait(most time.Duration) bool {
	return r.blocked < 0 && slices.ContainsFunc(r.matches, func(h ruleMatch) bool {
		return !h.rule.Shadow && !h.fixed && h.plan.id >= 0 && h.cost > 0 && h.rule.within(most) > 0
	})
}

// comesBehind returns errTooLate if the request would wait too long behind those that wait
// already.
func (w *waiting) comesBehind(ctx context.Context, stands []arrivals.Part) (a arrivals.Answer, err error) {
	lacks, err := w.behind(ctx, func() []uint128.Int { return arrivals.Before(stands) })
	if err != nil && !errors.Is(err, errTooLate) {
		return arrivals.Answer{Lacks: arrivals.All}, w.fails(ctx, err)
	}
	needed, end := arrivals.Beside(stands)
	end()
	for i, n := range needed {
		if !n.Zero() { // earlier requests pass first, even where there is room for all
			lacks |= 1 << uint(i)
		}
	}
	return arrivals.Answer{Lacks: lacks}, err
}

// looks is how often a request asks how it would be answered behind others, while these come and
// go.
const looks = 4

// behind returns a bit for each place where the request lacks room behind those that count counts.
// The error is errTooLate if it would wait too long. Who has left by the time of the answer is not
// counted, since the store may have charged it.
func (w *waiting) behind(ctx context.Context, count func() []uint128.Int) (lacks uint64, err error) {
	var d stint.Decision
	w.before = count()
	asked := fits(w.places, w.before)
	for n := 1; ; n++ {
		if d, lacks, err = w.p.together(ctx, w.places, asked); err != nil {
			return 0, err
		}
		w.before = count()
		now := fits(w.places, w.before)
		if !fewer(now, asked, cmp.Less) {
			break
		}
		if asked = now; n == looks {
			clear(asked) // then by what is certain
		}
	}
	lacks |= w.p.afterwards(&d, w.places, w.before)
	w.lacks(lacks)
	if left := w.left(); d.RetryAfter == stint.Never || time.Duration(d.RetryAfter) > left || left <= 0 {
		err = errTooLate
	}
	return lacks, err
}

// fewer reports whether a has less than b at one place.
func fewer[T any](a, b []T, less func(T, T) bool) bool {
	for i := range a {
		if less(a[i], b[i]) {
			return true
		}
	}
	return false
}

// Ahead implements [arrivals.Asker]. Those who came at the same moment are in line only now.
func (w *waiting) Ahead(ctx context.Context) error {
	count := func() []uint128.Int {
		counts := make([]uint128.Int, len(w.places))
		for i := range counts {
			counts[i] = w.Before(i).Cost
		}
		return counts
	}
	if !fewer(w.before, count(), uint128.Int.Less) {
		return nil
	}
	_, err := w.behind(ctx, count)
	if err != nil && !errors.Is(err, errTooLate) {
		return w.fails(ctx, err)
	}
	return err
}

// fails returns err unless the store has failed: then each attempt is decided by
// on_store_failure.
func (w *waiting) fails(ctx context.Context, err error) error {
	if ctx.Err() == nil && w.p.failover.Fails(err) {
		return nil
	}
	return err
}

// answer says when the denied request may pass, and at which places it lacks room. The error
// is errTooLate.
func (w *waiting) answer() (a arrivals.Answer, err error) {
	a.Again = time.Duration(w.r.Decision.RetryAfter)
	drains := false
	for i, one := range w.places {
		for k := one.first; k < min(one.first+len(one.limits), len(w.r.Rules)); k++ {
			if e := &w.r.Rules[k]; e.Denied {
				a.Lacks |= 1 << uint(i)
				drains = drains || one.hold == nil && w.p.drains(e.Limit, e.ResetAfter)
				if one.hold != nil {
					a.Again = arrivals.Unknown
				}
			}
		}
	}
	if drains {
		a.Again = min(a.Again, askAgain)
		return a, w.inTime(arrivals.Unknown)
	}
	return a, w.inTime(a.Again)
}

// inTime returns errTooLate if the request may pass again only when it may not wait any more for the
// limits that deny it; else it waits no longer than that.
func (w *waiting) inTime(again time.Duration) error {
	left := w.left()
	if left <= 0 || again != arrivals.Unknown && again > left {
		return errTooLate
	}
	if w.end != nil {
		w.end.Reset(left)
	}
	return nil
}

// lacks notes the places where the request lacks room, by their bits: their rules deny it, and no others.
func (w *waiting) lacks(bits uint64) {
	for i := range w.r.Rules {
		w.r.Rules[i].Denied = false
	}
	for i, one := range w.places {
		if bits>>uint(i)&1 != 0 {
			w.r.Rules[one.first].Denied = true
		}
	}
}

// Take implements [arrivals.Asker].
func (w *waiting) Take(ctx context.Context, later time.Duration, to uint64) (a arrivals.Answer, err error) {
	if later > 0 {
		w.lacks(to)
		return arrivals.Answer{Again: later}, w.inTime(arrivals.Unknown) // it may start before
	}
	if err := w.ask(ctx); err != nil || w.r.Decision.Allowed {
		return arrivals.Answer{Passes: err == nil}, err
	}
	return w.answer()
}

// Look implements [arrivals.Asker].
func (w *waiting) Look(ctx context.Context, part int) (a arrivals.Answer, err error) {
	d, lacks, err := w.p.ahead(ctx, w.places[part:part+1], make([]uint128.Int, 1))
	if err != nil {
		return arrivals.Answer{Passes: true}, w.fails(ctx, err)
	}
	if a.Passes, a.Again = lacks == 0, time.Duration(d.RetryAfter); w.places[part].hold != nil {
		a.Again = arrivals.Unknown
	}
	return a, nil
}

// With implements [arrivals.Asker].
func (w *waiting) With(ctx context.Context, more []int64) (lacks uint64, again time.Duration, err error) {
	wide := make([]uint128.Int, len(more))
	for i, n := range more {
		wide[i] = uint128.From(uint64(n))
	}
	d, lacks, err := w.p.together(ctx, w.places, fits(w.places, wide))
	if err != nil {
		return 0, 0, w.fails(ctx, err)
	}
	now := d
	beyond := w.p.afterwards(&d, w.places, wide)
	unknown := beyond != 0 || now.RetryAfter == stint.Never // more than fits at one moment
	for i, one := range w.places {
		unknown = unknown || lacks>>uint(i)&1 != 0 && one.hold != nil
	}
	if again = time.Duration(now.RetryAfter); unknown {
		again = arrivals.Unknown
	}
	return lacks | beyond, again, nil
}

// Refill implements [arrivals.Asker].
func (w *waiting) Refill(part int, d time.Duration) int64 {
	least := int64(math.MaxInt64)
	for _, l := range w.places[part].limits {
		if l.InFlight() || !l.Algorithm().Evenly() || d <= 0 {
			return 0
		}
		least = min(least, saturated(uint128.From(uint128.Mul(uint64(d), uint64(l.Count())).Floor(uint64(l.Period())))))
	}
	return least
}
