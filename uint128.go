package stint

import (
	"math"
	"math/bits"
)

// A uint128 is a whole number of 128 bits, wide enough for every product of
// two words and every sum that limits need.
type uint128 struct{ hi, lo uint64 }

func mul(a, b uint64) uint128 {
	hi, lo := bits.Mul64(a, b)
	return uint128{hi, lo}
}

func (a uint128) add(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

// sub returns a − b, or 0 where b is larger.
func (a uint128) sub(b uint128) uint128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, borrow := bits.Sub64(a.hi, b.hi, borrow)
	if borrow != 0 {
		return uint128{}
	}
	return uint128{hi, lo}
}

func (a uint128) less(b uint128) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

func (a uint128) zero() bool { return a.hi|a.lo == 0 }

func (a uint128) shl1() uint128 { return uint128{a.hi<<1 | a.lo>>63, a.lo << 1} }

func smaller(a, b uint128) uint128 {
	if a.less(b) {
		return a
	}
	return b
}

// floor returns ⌊a/d⌋, held at the greatest uint64.
func (a uint128) floor(d uint64) uint64 {
	if a.hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(a.hi, a.lo, d)
	return q
}

// ceil returns ⌈a/d⌉, held at the greatest uint64.
func (a uint128) ceil(d uint64) uint64 {
	if a.hi >= d {
		return math.MaxUint64
	}
	q, r := bits.Div64(a.hi, a.lo, d)
	if r != 0 && q != math.MaxUint64 {
		q++
	}
	return q
}

// A divisor divides by a number that is known ahead, with a multiplication: a
// division takes ten times as long.
type divisor struct{ d, inverse uint64 }

func newDivisor(d uint64) divisor { return divisor{d, math.MaxUint64 / d} }

// quo returns ⌊x/d⌋. The estimate is right or one too small, because the
// inverse is less than 1 below 2^64/d.
func (v divisor) quo(x uint64) uint64 {
	q, _ := bits.Mul64(x, v.inverse)
	if x-q*v.d >= v.d {
		q++
	}
	return q
}

// floor returns ⌊a/d⌋, held at the greatest uint64.
func (v divisor) floor(a uint128) uint64 {
	if a.hi == 0 {
		return v.quo(a.lo)
	}
	return a.floor(v.d)
}

// ceil returns ⌈a/d⌉, held at the greatest uint64.
func (v divisor) ceil(a uint128) uint64 {
	if a.hi == 0 {
		q := v.quo(a.lo)
		if q*v.d != a.lo {
			q++
		}
		return q
	}
	return a.ceil(v.d)
}
