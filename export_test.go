package stint

import "math/big"

// Wide is a whole number of 128 bits as two words, for tests that hold the
// arithmetic against math/big.
type Wide struct{ Hi, Lo uint64 }

// Big returns the number.
func (w Wide) Big() *big.Int { return w.inner().big() }

func (w Wide) inner() uint128 { return uint128{w.Hi, w.Lo} }

func wide(a uint128) Wide { return Wide{a.hi, a.lo} }

// The operations of uint128.
func Mul(a, b uint64) Wide         { return wide(mul(a, b)) }
func (w Wide) Add(v Wide) Wide     { return wide(w.inner().add(v.inner())) }
func (w Wide) Sub(v Wide) Wide     { return wide(w.inner().sub(v.inner())) }
func (w Wide) Less(v Wide) bool    { return w.inner().less(v.inner()) }
func (w Wide) Smaller(v Wide) Wide { return wide(smaller(w.inner(), v.inner())) }
func (w Wide) Shl1() Wide          { return wide(w.inner().shl1()) }
func (w Wide) Zero() bool          { return w.inner().zero() }
func (w Wide) Back() Wide          { return wide(fromBig(w.Big())) }

// Quotients are the four ways to divide by d, each as ⌊w/d⌋ and ⌈w/d⌉.
func (w Wide) Quotients(d uint64) (floor, ceil, byFloor, byCeil uint64) {
	a, v := w.inner(), newDivisor(d)
	return a.floor(d), a.ceil(d), v.floor(a), v.ceil(a)
}

// Quo divides by multiplying with an inverse.
func Quo(x, d uint64) uint64 { return newDivisor(d).quo(x) }

// Calls of the helpers that hold a sum at its greatest.
var (
	Plus = satAddInt64
	Sum  = satAdd
	GCD  = gcd
)
