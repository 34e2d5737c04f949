package satmath_test

import (
	"math"
	"testing"

	"github.com/stint-dev/stint/internal/satmath"
)

func TestSums(t *testing.T) {
	for _, c := range []struct{ a, b, plus, sum uint64 }{
		{0, 0, 0, 0},
		{1, 2, 3, 3},
		{math.MaxInt64, 0, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64, 1 << 63},
		{math.MaxUint64, 0, math.MaxInt64, math.MaxUint64},
		{math.MaxUint64, 1, math.MaxInt64, math.MaxUint64},
		{math.MaxUint64, math.MaxUint64, math.MaxInt64, math.MaxUint64},
	} {
		if plus, sum := satmath.AddInt64(c.a, c.b), satmath.Add(c.a, c.b); plus != c.plus || sum != c.sum {
			t.Errorf("%d and %d: %d and %d, want %d and %d", c.a, c.b, plus, sum, c.plus, c.sum)
		}
	}
}

func TestSub(t *testing.T) {
	for _, c := range [][3]uint64{{0, 0, 0}, {3, 1, 2}, {1, 3, 0}, {math.MaxUint64, 1, math.MaxUint64 - 1}, {1, math.MaxUint64, 0}} {
		if got := satmath.Sub(c[0], c[1]); got != c[2] {
			t.Errorf("%d - %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
