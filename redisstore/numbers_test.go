package redisstore_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestShare holds the quotient of a product, and its remainder, to those of numbers of
// any size: of units and stretches of time up to 2^52, divided by a longer one.
func TestShare(t *testing.T) {
	c := client(t, redistest.Start(t).Addr)
	script := redisstore.Numbers() + `
local out = {}
for i = 1, #ARGV, 3 do
  local q, rest = share(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  out[#out + 1] = text(q) .. ' ' .. text(rest) .. ' ' .. text(shareUp(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])))
end
return out`
	rnd := rand.New(rand.NewPCG(3, 5))
	draw := func(bits int) int64 { return 1 + rnd.Int64N(1<<(1+rnd.IntN(bits))) }
	for range 100 {
		args, want := []string{"EVAL", script, "0"}, []string{}
		for range 200 {
			a, by := draw(51), draw(49)
			b := 1 + rnd.Int64N(by)
			if rnd.IntN(4) == 0 {
				a = a / by * by // nothing is left
			}
			q, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(by), new(big.Int))
			up := new(big.Int).Add(q, big.NewInt(int64(rest.Sign())))
			args = append(args, fmt.Sprint(a), fmt.Sprint(b), fmt.Sprint(by))
			want = append(want, fmt.Sprint(q, " ", rest, " ", up))
		}
		got, err := do(t, c, args...).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v: %s, want %s", args[3+3*i:6+3*i], got[i], want[i])
			}
		}
	}
}
