// Package uint128 computes with whole numbers of 128 bits.
package uint128

import (
	"math"
	"math/big"
	"math/bits"
)

// An Int is a whole number of 128 bits, wide enough for every product of
// two words and every sum that limits need.
type Int struct{ Hi, Lo uint64 }

// From returns n.
func From(n uint64) Int { return Int{0, n} }

// FromBig returns n, which is from 0 and has at most 128 bits.
func FromBig(n *big.Int) Int {
	lo := new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64))
	return Int{new(big.Int).Rsh(n, 64).Uint64(), lo.Uint64()}
}

// Big returns a.
func (a Int) Big() *big.Int {
	n := new(big.Int).SetUint64(a.Hi)
	return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(a.Lo))
}

// Mul returns a·b.
func Mul(a, b uint64) Int {
	hi, lo := bits.Mul64(a, b)
	return Int{hi, lo}
}

// Add returns a + b, which must fit.
func (a Int) Add(b Int) Int {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Int{hi, lo}
}

// Sub returns a − b, or 0 where b is larger.
func (a Int) Sub(b Int) Int {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, borrow := bits.Sub64(a.Hi, b.Hi, borrow)
	if borrow != 0 {
		return Int{}
	}
	return Int{hi, lo}
}

// Less reports whether a < b.
func (a Int) Less(b Int) bool {
	return a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo
}

// Zero reports whether a is 0.
func (a Int) Zero() bool { return a.Hi|a.Lo == 0 }

// Min returns the lesser.
func Min(a, b Int) Int {
	if a.Less(b) {
		return a
	}
	return b
}

// Floor returns ⌊a/d⌋, held at the greatest uint64.
func (a Int) Floor(d uint64) uint64 {
	if a.Hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(a.Hi, a.Lo, d)
	return q
}

// Ceil returns ⌈a/d⌉, held at the greatest uint64.
func (a Int) Ceil(d uint64) uint64 {
	if a.Hi >= d {
		return math.MaxUint64
	}
	q, r := bits.Div64(a.Hi, a.Lo, d)
	if r != 0 && q != math.MaxUint64 {
		q++
	}
	return q
}

// A Divisor divides by a number that is known ahead, with a multiplication: a
// division takes ten times as long.
type Divisor struct{ D, inverse uint64 }

// NewDivisor returns the divisor d, which is not 0.
func NewDivisor(d uint64) Divisor { return Divisor{d, math.MaxUint64 / d} }

// Quo returns ⌊x/d⌋. The estimate is right or one too small, because the
// inverse is less than 1 below 2^64/d.
func (v Divisor) Quo(x uint64) uint64 {
	q, _ := bits.Mul64(x, v.inverse)
	if x-q*v.D >= v.D {
		q++
	}
	return q
}

// Floor returns ⌊a/d⌋, held at the greatest uint64.
func (v Divisor) Floor(a Int) uint64 {
	if a.Hi == 0 {
		return v.Quo(a.Lo)
	}
	return a.Floor(v.D)
}

// Ceil returns ⌈a/d⌉, held at the greatest uint64.
func (v Divisor) Ceil(a Int) uint64 {
	if a.Hi == 0 {
		q := v.Quo(a.Lo)
		if q*v.D != a.Lo {
			q++
		}
		return q
	}
	return a.Ceil(v.D)
}
