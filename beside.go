package stint

import (
	"context"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/meter"
)

// A diverter is a [Bound] that can let another Bound answer instead, which asks the store
// by [Store.Decide].
type diverter interface{ Divert(to Bound) }

// divert makes calls that do not wait respect those that do, while there are some.
func (l *Limiter) divert(waiting bool) {
	switch d, ok := l.bound.(diverter); {
	case ok && waiting:
		d.Divert(besides{l})
	case ok:
		d.Divert(nil)
	}
}

// A besides decides for calls that do not wait, while others wait: as if the units that the
// waiters need were taken.
type besides struct{ *Limiter }

// Allow implements [Bound].
func (b besides) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [Bound].
func (b besides) Decide(ctx context.Context, op meter.Op, key string, cost int64) (Decision, error) {
	if cost <= 0 || b.lines.None(at(key)) {
		return b.direct(ctx, op, key, cost)
	}
	if op == meter.OpTakeUpTo {
		d, err := b.direct(ctx, meter.OpPeek, key, 0)
		if err != nil {
			return d, err
		}
		most := uint128.From(uint64(d.Remaining)).Sub(b.lines.Needed(at(key)))
		cost = max(1, min(cost, int64(most.Lo)))
	}
	ask := func(op meter.Op) func() (Decision, error) {
		return func() (Decision, error) { return b.direct(ctx, op, key, cost) }
	}
	return beside(ctx, b.store, []Part{{b.Limiter, key, cost}}, ask(meter.OpPeek), ask(op))
}

// beside answers a request that does not wait. If it would pass after all waiters of its
// keys, decide decides; if not, it is denied.
func beside(ctx context.Context, store Store, parts []Part, look, decide func() (Decision, error)) (Decision, error) {
	claims, end := claim(parts)
	defer end()
	ahead, err := store.Decide(ctx, meter.OpPeek, claims.layers(), 1)
	if err != nil || ahead.Allowed && !claims.over() {
		return or(err, decide)
	}
	d, err := look()
	if err != nil || d.RetryAfter == Never || !d.Allowed && records(parts) {
		return or(err, decide) // the store must deny it, to begin a ban or to count it
	}
	d.Allowed, d.Remaining, d.Taken, d.Delay = false, 0, 0, 0
	d.RetryAfter = max(d.RetryAfter, ahead.RetryAfter, Wait(claims.after(&ahead)), 1)
	if d.Denied = ahead.Denied; d.Denied == 0 {
		d.Denied = 1 << uint(max(d.Tightest, 0))
	}
	d.ResetAfter = max(d.ResetAfter, time.Duration(d.RetryAfter))
	return d, nil
}

// or returns err, or if it is nil the answer of decide.
func or(err error, decide func() (Decision, error)) (Decision, error) {
	if err != nil {
		return Decision{}, err
	}
	return decide()
}

// records reports whether a denial changes a limit of the parts: by count_denied or a ban.
func records(parts []Part) bool {
	for _, p := range parts {
		if t := p.limiter.terms.Load(); t.counts || t.bans {
			return true
		}
	}
	return false
}

// A claimed is a part of a request, together with the waiters of its key.
type claimed struct {
	part  Part
	terms *terms
	all   uint128.Int // the units that it and the waiters need
}

type claims []claimed

// claim makes other requests count the cost of the parts as needed, until end is called.
func claim(parts []Part) (all claims, end func()) {
	stands := make([]arrivals.Part, len(parts))
	for i, p := range parts {
		stands[i] = p.stand()
	}
	needed, end := arrivals.Beside(stands)
	for i, p := range parts {
		all = append(all, claimed{part: p, terms: p.limiter.terms.Load(), all: needed[i].Add(uint128.From(uint64(p.cost)))})
	}
	return all, end
}

// fits returns how many of the claimed units can pass at one instant.
func (c *claimed) fits() uint128.Int {
	return uint128.Min(c.all, uint128.From(uint64(max(c.terms.capacity, c.part.cost))))
}

// over reports whether a part claims more units than can pass at one instant.
func (c claims) over() bool {
	return slices.ContainsFunc(c, func(one claimed) bool { return one.fits().Less(one.all) })
}

func (c claims) layers() []Layer {
	layers := make([]Layer, len(c))
	for i := range c {
		layers[i] = Layer{Bound: c[i].part.limiter.bound, Key: c[i].part.key, Weight: int64(c[i].fits().Lo)}
	}
	return layers
}

// after returns when the last of the claimed units pass, if ahead is the answer for those that fit.
func (c claims) after(ahead *Decision) (longest time.Duration) {
	for i := range c {
		if one := &c[i]; one.fits().Less(one.all) {
			longest = max(longest, one.terms.after(one.all, one.fits(), ahead))
		}
	}
	return longest
}
