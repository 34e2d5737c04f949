package model

import "math/big"

// bucket is "gcra": a theoretical arrival time.
type bucket struct {
	spec Spec
	tat  *big.Rat // ns; any instant that has passed means full
}

func (b *bucket) limitOf() Spec { return b.spec }
func (b *bucket) most() int64   { return b.spec.Burst }

// unit is T, the time that one unit takes: ns, a rational.
func (b *bucket) unit() *big.Rat { return ratio(b.spec.Period, b.spec.Count) }

// backlog is max(tat − t, 0): ns until the bucket is full.
func (b *bucket) backlog(t *big.Int) *big.Rat {
	d := new(big.Rat).Sub(b.tat, whole(t))
	if d.Sign() < 0 {
		return new(big.Rat)
	}
	return d
}

// admits: max(tat, t) + c·T − t ≤ B·T.
func (b *bucket) admits(t *big.Int, c int64) bool {
	after := b.backlog(t)
	after.Add(after, times(c, b.unit()))
	return after.Cmp(times(b.spec.Burst, b.unit())) <= 0
}

func (b *bucket) charge(t *big.Int, c int64) receipt {
	return b.fill(t, c, b.most())
}

// fill charges c to a bucket of the given capacity. Its debt is at most one
// more drain.
func (b *bucket) fill(t *big.Int, c, capacity int64) receipt {
	after := b.backlog(t)
	after.Add(after, times(c, b.unit()))
	deepest := times(2, times(capacity, b.unit()))
	if after.Cmp(deepest) > 0 {
		after = deepest
	}
	b.tat = after.Add(after, whole(t))
	return receipt{at: t, end: new(big.Rat).Set(b.tat)}
}

func (b *bucket) resetAfter(t *big.Int) *big.Int { return ceil(b.backlog(t)) }
func (b *bucket) delay(*big.Int) *big.Int        { return new(big.Int) }

func (b *bucket) giveBack(t *big.Int, r receipt, g int64) {
	back := new(big.Rat).Sub(r.end, whole(t)) // what time has not yet forgiven
	if back.Sign() <= 0 {
		return
	}
	if given := times(g, b.unit()); given.Cmp(back) < 0 {
		back = given
	}
	b.drain(t, back)
}

func (b *bucket) refund(t *big.Int, c int64) {
	b.drain(t, times(c, b.unit()))
}

// drain takes ns off the backlog.
func (b *bucket) drain(t *big.Int, ns *big.Rat) {
	b.tat = new(big.Rat).Sub(b.tat, ns)
	b.tat = new(big.Rat).Add(b.backlog(t), whole(t))
}

func (b *bucket) become(t *big.Int, to Spec) state {
	return &bucket{spec: to, tat: b.carry(t, to, to.Burst)}
}

// carry is the tat under another limit: the time until full is kept, rounded up
// to a multiple of 1/L' ns, where L'/W' is the new rate in lowest terms, and is
// at most one drain of the new limit.
func (b *bucket) carry(t *big.Int, to Spec, capacity int64) *big.Rat {
	unit := ratio(to.Period, to.Count)
	grains := new(big.Int).Set(unit.Denom())
	left := new(big.Rat).Mul(b.backlog(t), whole(grains))
	left = new(big.Rat).SetFrac(ceil(left), grains)
	if drain := times(capacity, unit); left.Cmp(drain) > 0 {
		left = drain
	}
	return left.Add(left, whole(t))
}

// queue is "leaky_queue". Its tat is the contract's next: when the next request
// could start.
type queue struct{ bucket }

func (q *queue) most() int64 { return q.spec.Burst + 1 }

// admits: q + (c − 1)·T ≤ B·T, with q = max(next − t, 0).
func (q *queue) admits(t *big.Int, c int64) bool {
	last := q.backlog(t)
	last.Add(last, times(c-1, q.unit()))
	return last.Cmp(times(q.spec.Burst, q.unit())) <= 0
}

func (q *queue) charge(t *big.Int, c int64) receipt {
	return q.fill(t, c, q.most())
}

func (q *queue) delay(t *big.Int) *big.Int { return ceil(q.backlog(t)) }

func (q *queue) become(t *big.Int, to Spec) state {
	return &queue{bucket{spec: to, tat: q.carry(t, to, to.Burst+1)}}
}
