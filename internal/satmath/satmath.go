// Package satmath computes with numbers that are held at the least and the
// greatest that there is.
package satmath

import (
	"math"
	"math/bits"
	"time"
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

// Sub returns a − b, or 0 where b is larger.
func Sub(a, b uint64) uint64 {
	if a <= b {
		return 0
	}
	return a - b
}

// Add returns a + b, held at the greatest uint64.
func Add(a, b uint64) uint64 {
	s, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return s
}

// AddInt64 returns a + b, held at the greatest int64.
func AddInt64(a, b uint64) uint64 {
	if s, carry := bits.Add64(a, b, 0); carry == 0 && s <= math.MaxInt64 {
		return s
	}
	return math.MaxInt64
}

// Duration returns ns as a duration, held at the longest there is.
func Duration(ns uint64) time.Duration {
	return time.Duration(min(ns, math.MaxInt64))
}
