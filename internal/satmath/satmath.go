// Package satmath multiplies counts that may be greater than an int64 holds.
package satmath

import (
	"math"
	"math/bits"
)

// Mul returns a·b of two numbers from 0, and whether an int64 holds it; if not,
// the product is the most that one does.
func Mul(a, b int64) (product int64, fits bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return int64(lo), true
}
