package uint128_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/internal/uint128"
)

// edges are the words at which arithmetic goes wrong: 0, powers of two and
// their neighbours, the greatest ones, and periods that limits have.
func edges() []uint64 {
	words := []uint64{0, 3, 5, 7, 60, 1e9, 60e9, 3600e9, 86400e9, math.MaxInt64 / 2, math.MaxInt64/2 + 1}
	for shift := range 64 {
		p := uint64(1) << shift
		words = append(words, p-1, p, p+1)
	}
	return append(words, math.MaxUint64, math.MaxUint64-1)
}

func bigInt(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// held returns n as a word, held at the greatest.
func held(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

func TestQuotientsOfWords(t *testing.T) {
	words := edges()
	for _, d := range words {
		if d == 0 {
			continue
		}
		for _, x := range words {
			for _, x := range []uint64{x, x * d, x*d - 1, x*d + 1} { // around multiples
				if got := uint128.NewDivisor(d).Quo(x); got != x/d {
					t.Fatalf("%d/%d: %d, want %d", x, d, got, x/d)
				}
			}
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1_000_000 {
		x, d := rnd.Uint64()>>rnd.IntN(64), rnd.Uint64()>>rnd.IntN(64)|1
		if got := uint128.NewDivisor(d).Quo(x); got != x/d {
			t.Fatalf("%d/%d: %d, want %d", x, d, got, x/d)
		}
	}
}

func TestIntEqualsBig(t *testing.T) {
	words := edges()
	rnd := rand.New(rand.NewPCG(5, 6))
	word := func() uint64 {
		if rnd.IntN(2) == 0 {
			return words[rnd.IntN(len(words))]
		}
		return rnd.Uint64() >> rnd.IntN(64)
	}
	for range 100_000 {
		a, b, d := uint128.Int{Hi: word() >> 1, Lo: word()}, uint128.Int{Hi: word() >> 1, Lo: word()}, word()|1
		if rnd.IntN(3) == 0 {
			a.Hi = 0
		}
		checkInt(t, a, b, d)
		if t.Failed() {
			t.Fatalf("a = %v, b = %v, d = %d", a, b, d)
		}
	}
}

// checkInt compares every operation on a, b and d with math/big.
func checkInt(t *testing.T, a, b uint128.Int, d uint64) {
	x, y := a.Big(), b.Big()
	equal := func(what string, got uint128.Int, want *big.Int) {
		t.Helper()
		if got.Big().Cmp(want) != 0 {
			t.Errorf("%s: %v, want %v", what, got.Big(), want)
		}
	}
	equal("mul", uint128.Mul(a.Lo, b.Lo), new(big.Int).Mul(bigInt(a.Lo), bigInt(b.Lo)))
	equal("add", a.Add(b), new(big.Int).Add(x, y))
	equal("back", uint128.FromBig(x), x)
	difference, least := new(big.Int).Sub(x, y), x
	if difference.Sign() < 0 {
		difference.SetInt64(0)
	}
	if y.Cmp(x) < 0 {
		least = y
	}
	equal("sub", a.Sub(b), difference)
	equal("smaller", uint128.Min(a, b), least)
	if a.Less(b) != (x.Cmp(y) < 0) || a.Zero() != (x.Sign() == 0) {
		t.Errorf("less %v, zero %v", a.Less(b), a.Zero())
	}
	down, rest := new(big.Int).QuoRem(x, bigInt(d), new(big.Int))
	up := new(big.Int).Set(down)
	if rest.Sign() > 0 {
		up.Add(up, big.NewInt(1))
	}
	v := uint128.NewDivisor(d)
	floor, ceil, byFloor, byCeil := a.Floor(d), a.Ceil(d), v.Floor(a), v.Ceil(a)
	if floor != held(down) || byFloor != floor || ceil != held(up) || byCeil != ceil {
		t.Errorf("quotients %d %d, by the inverse %d %d, want %v and %v", floor, ceil, byFloor, byCeil, down, up)
	}
}
