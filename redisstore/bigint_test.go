package redisstore_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// client returns a client of a server, closed when the test ends.
func client(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eachPair answers for each pair of numbers what the script's arithmetic makes
// of it.
const eachPair = `
local out = {}
for i = 1, #ARGV, 2 do
  local a, b = whole(ARGV[i]), whole(ARGV[i + 1])
  local q, r = 0, 0
  if b ~= 0 then q, r = quo(a, b) end
  for _, v in ipairs{add(a, b), sub(a, b), mul(a, b), q, r, b ~= 0 and ceil(a, b) or 0, least(a, b), most(a, b)} do
    out[#out + 1] = text(v)
  end
  out[#out + 1] = less(a, b) and '-1' or equal(a, b) and '0' or '1'
end
return out`

// TestBigInt compares the script's big integers with math/big, with numbers of up to
// 140 bits and many at the edges of doubles, words and limbs.
func TestBigInt(t *testing.T) {
	c := client(t, redistest.Start(t).Addr)
	rnd := rand.New(rand.NewPCG(3, 14))
	script := redisstore.BigIntegers() + eachPair
	rounds := 400
	if racing { // which has nothing to find in Lua
		rounds = 100
	}
	for range rounds {
		pairs := make([]*big.Int, 200)
		args := make([]string, len(pairs))
		for i := range pairs {
			pairs[i] = draw(rnd)
			args[i] = pairs[i].String()
		}
		got, err := c.Do(context.Background(), c.B().Eval().Script(script).Numkeys(0).Arg(args...).Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := 0; i < len(pairs); i += 2 {
			want = append(want, arithmetic(pairs[i], pairs[i+1])...)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v and %v: result %d is %s, want %s", pairs[i/9*2], pairs[i/9*2+1], i%9, got[i], want[i])
			}
		}
	}
}

func arithmetic(a, b *big.Int) []string {
	zero := new(big.Int)
	sub := new(big.Int).Sub(a, b)
	if sub.Sign() < 0 {
		sub = zero
	}
	q, r, ceil := zero, zero, zero
	if b.Sign() > 0 {
		q, r = new(big.Int).QuoRem(a, b, new(big.Int))
		if ceil = q; r.Sign() > 0 {
			ceil = new(big.Int).Add(q, big.NewInt(1))
		}
	}
	least, most := a, b
	if a.Cmp(b) > 0 {
		least, most = b, a
	}
	var out []string
	for _, v := range []*big.Int{new(big.Int).Add(a, b), sub, new(big.Int).Mul(a, b), q, r, ceil, least, most} {
		out = append(out, v.String())
	}
	return append(out, fmt.Sprint(a.Cmp(b)))
}

// draw returns a number of any size, often at an edge.
func draw(rnd *rand.Rand) *big.Int {
	n := new(big.Int)
	if rnd.IntN(3) > 0 {
		edge := []uint{0, 1, 7, 24, 48, 52, 53, 54, 62, 63, 64, 106, 127, 128}[rnd.IntN(14)]
		n.Lsh(big.NewInt(1), edge)
		if rnd.IntN(3) == 0 {
			n.Exp(big.NewInt(10), big.NewInt(int64(rnd.IntN(36))), nil)
		}
		n.Add(n, big.NewInt(rnd.Int64N(7)-3))
		return n.Abs(n)
	}
	for range 3 {
		n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(rnd.Uint64()))
	}
	return n.Rsh(n, uint(192-rnd.IntN(140)))
}
