package arrivals

import "github.com/stint-dev/stint/internal/uint128"

// A tally adds up costs by their numbers, from 1, in logarithmic time. It is a Fenwick tree: element
// n-1 has the sum of as many numbers up to n as the lowest bit of n says.
type tally []uint128.Int

// next returns a new number, above all others. Its cost is 0.
func (t *tally) next() int {
	n := len(*t) + 1
	*t = append(*t, t.below(n).Sub(t.below(n-n&-n+1)))
	return n
}

// below returns the cost of the numbers less than n.
func (t tally) below(n int) (sum uint128.Int) {
	for n--; n > 0; n -= n & -n {
		sum = sum.Add(t[n-1])
	}
	return sum
}

func (t tally) add(n int, cost uint128.Int) {
	for ; n <= len(t); n += n & -n {
		t[n-1] = t[n-1].Add(cost)
	}
}

func (t tally) remove(n int, cost uint128.Int) {
	for ; n <= len(t); n += n & -n {
		t[n-1] = t[n-1].Sub(cost)
	}
}
