package model

import "math/big"

// fromFirst is "fixed_window from first": a key has one window at most, [begin, begin + W), which
// began with a charge made while it had none, and nothing in use is no window.
type fromFirst struct {
	dated
	begin *big.Int
	used  *big.Int // units, at most 2^63 − 1
}

func (f *fromFirst) end() *big.Int { return add(f.begin, big.NewInt(f.spec.Period)) }

// usedAt is the count of the window that the key has at t.
func (f *fromFirst) usedAt(t *big.Int) *big.Int {
	if t.Cmp(f.end()) >= 0 {
		return new(big.Int)
	}
	return f.used
}

// admits: used + c ≤ L.
func (f *fromFirst) admits(t *big.Int, c int64) bool {
	return add(f.usedAt(t), big.NewInt(c)).Cmp(big.NewInt(f.spec.Count)) <= 0
}

func (f *fromFirst) charge(t *big.Int, c int64, _ charging) receipt {
	used := f.usedAt(t)
	if used.Sign() == 0 {
		f.begin = t
	}
	f.used = least(add(used, big.NewInt(c)), maxInt64)
	return receipt{at: t, window: f.begin}
}

func (f *fromFirst) resetAfter(t *big.Int) *big.Int {
	if f.usedAt(t).Sign() == 0 {
		return new(big.Int)
	}
	return sub(f.end(), t)
}

// giveBack takes from the window that was charged. That began where it did, whatever is given
// back of what began it.
func (f *fromFirst) giveBack(t *big.Int, r receipt, g int64) {
	if r.window != nil && r.window.Cmp(f.begin) == 0 { // a charge of 0 went to none
		f.refund(t, g)
	}
}

func (f *fromFirst) refund(t *big.Int, c int64) { f.used = lessUpTo(f.usedAt(t), big.NewInt(c)) }
