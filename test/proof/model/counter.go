package model

import "math/big"

// counter is "sliding_counter": the counts of the window that holds t and of
// the one before it, which weighs what is left of it in the sliding window.
type counter struct {
	dated
	index     *big.Int // the window that cur belongs to
	cur, prev *big.Int // units, each at most 2^63 − 1
}

func (k *counter) windows() aligned { return aligned{big.NewInt(k.spec.Period)} }

// countsAt are the two counts as they are at t.
func (k *counter) countsAt(t *big.Int) (cur, prev *big.Int) {
	switch gone := sub(k.windows().index(t), k.index); {
	case gone.Sign() == 0:
		return k.cur, k.prev
	case gone.Cmp(big.NewInt(1)) == 0:
		return new(big.Int), k.cur
	}
	return new(big.Int), new(big.Int)
}

// admits: cur + prev·(W − e)/W + c ≤ L; relaxed: cur + prev·(W − e)/W + c − 1 < L.
func (k *counter) admits(t *big.Int, c int64) bool {
	cur, prev := k.countsAt(t)
	left := sub(k.windows().end(t), t) // W − e
	sum := whole(mul(prev, left))
	sum.Quo(sum, ratio(k.spec.Period, 1))
	sum.Add(sum, whole(cur))
	if k.spec.Relaxed {
		sum.Add(sum, ratio(c-1, 1))
		return sum.Cmp(ratio(k.spec.Count, 1)) < 0
	}
	sum.Add(sum, ratio(c, 1))
	return sum.Cmp(ratio(k.spec.Count, 1)) <= 0
}

func (k *counter) charge(t *big.Int, c int64, _ charging) receipt {
	cur, prev := k.countsAt(t)
	k.write(t, least(add(cur, big.NewInt(c)), maxInt64), prev)
	return receipt{at: t}
}

// write sets the counts as of t.
func (k *counter) write(t, cur, prev *big.Int) {
	k.cur, k.prev, k.index = cur, prev, k.windows().index(t)
}

func (k *counter) resetAfter(t *big.Int) *big.Int {
	cur, prev := k.countsAt(t)
	end := sub(k.windows().end(t), t)
	switch {
	case cur.Sign() > 0:
		return add(end, big.NewInt(k.spec.Period))
	case prev.Sign() > 0:
		return end
	}
	return new(big.Int)
}

func (k *counter) giveBack(t *big.Int, r receipt, g int64) {
	cur, prev := k.countsAt(t)
	switch gone := sub(k.windows().index(t), k.windows().index(r.at)); {
	case gone.Sign() == 0:
		k.write(t, lessUpTo(cur, big.NewInt(g)), prev)
	case gone.Cmp(big.NewInt(1)) == 0:
		k.write(t, cur, lessUpTo(prev, big.NewInt(g)))
	}
}

func (k *counter) refund(t *big.Int, c int64) {
	cur, prev := k.countsAt(t)
	fromCur := least(cur, big.NewInt(c))
	fromPrev := sub(big.NewInt(c), fromCur)
	k.write(t, sub(cur, fromCur), lessUpTo(prev, fromPrev))
}
