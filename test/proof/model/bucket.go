package model

import "math/big"

// bucket is "gcra": a theoretical arrival time.
type bucket struct {
	spec  Spec
	tat   *big.Rat // ns; any instant that has passed means full
	first *big.Rat // the tat before the history; nil for full
	past  history
}

func (b *bucket) limitOf() Spec { return b.spec }
func (b *bucket) compare(Spec)  {} // it has numbers of its own
func (b *bucket) most() int64   { return b.spec.full() }

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

// charge adds c, room or not. A charge that is cut at the greatest debt settles all
// before it.
func (b *bucket) charge(t *big.Int, c int64, how charging) receipt {
	if !how.open {
		b.settle() // nothing can change what is past
	}
	r := b.past.charged(t, c, how)
	if b.pour(t, c) {
		b.settle()
	}
	return r
}

// start makes the state one that nothing changes any more, with a time until it is
// empty.
func (b *bucket) start(t *big.Int, left *big.Rat) {
	b.tat = new(big.Rat).Add(whole(t), left)
	b.first = b.tat
}

// settle makes the state as it is one that nothing changes any more: charges
// before it give nothing back.
func (b *bucket) settle() {
	b.first = b.tat
	b.past = history{term: b.past.term + 1}
}

// pour adds c to what is in the bucket, and reports whether some was cut off.
func (b *bucket) pour(t *big.Int, c int64) (cut bool) {
	after := b.backlog(t)
	after.Add(after, times(c, b.unit()))
	deepest := new(big.Rat).Mul(whole(b.spec.deepest()), b.unit())
	if cut = after.Cmp(deepest) > 0; cut {
		after = deepest
	}
	b.tat = after.Add(after, whole(t))
	return cut
}

// replay does the history again.
func (b *bucket) replay() {
	if b.tat = b.first; b.tat == nil {
		b.tat = new(big.Rat)
	}
	for _, a := range b.past.acts {
		if a.units >= 0 {
			b.pour(a.at, a.units)
		} else {
			b.drain(a.at, times(-a.units, b.unit()))
		}
	}
}

func (b *bucket) resetAfter(t *big.Int) *big.Int { return ceil(b.backlog(t)) }
func (b *bucket) delay(*big.Int) *big.Int        { return new(big.Int) }

func (b *bucket) giveBack(t *big.Int, r receipt, g int64) {
	if b.past.rewrite(r, g) {
		b.replay()
	}
}

func (b *bucket) refund(t *big.Int, c int64) {
	b.past.refunded(t, c)
	b.drain(t, times(c, b.unit()))
}

// drain takes ns off the backlog.
func (b *bucket) drain(t *big.Int, ns *big.Rat) {
	b.tat = new(big.Rat).Sub(b.tat, ns)
	b.tat = new(big.Rat).Add(b.backlog(t), whole(t))
}

// queue is "leaky_queue". Its tat is the contract's next: when the next request
// could start.
type queue struct{ bucket }

// admits: q + (c − 1)·T ≤ B·T, with q = max(next − t, 0).
func (q *queue) admits(t *big.Int, c int64) bool {
	last := q.backlog(t)
	last.Add(last, times(c-1, q.unit()))
	return last.Cmp(times(q.spec.Burst, q.unit())) <= 0
}

func (q *queue) delay(t *big.Int) *big.Int { return ceil(q.backlog(t)) }

// giveBack frees the place only while no request behind it that will start has got
// its delay: that is a promise. Otherwise the place passes unused.
func (q *queue) giveBack(t *big.Int, r receipt, g int64) {
	if !q.past.kept(r, g) && q.past.rewrite(r, g) {
		q.replay()
	}
}
