package stint_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
)

func TestWait(t *testing.T) {
	for _, c := range []struct {
		wait    stint.Wait
		seconds int64
		text    string
		finite  bool
	}{
		{0, 0, "0s", true},
		{1, 1, "1ns", true},
		{999_999_999, 1, "999.999999ms", true},
		{1_000_000_000, 1, "1s", true},
		{1_000_000_001, 2, "1.000000001s", true},
		{stint.Wait(time.Hour), 3600, "1h0m0s", true},
		{math.MaxInt64 - 1, 9223372037, "2562047h47m16.854775806s", true},
		{math.MaxInt64, 9223372037, "2562047h47m16.854775807s", true},
		{stint.Never, -1, "never", false},
	} {
		if got := c.wait.Seconds(); got != c.seconds {
			t.Errorf("%v: %d seconds, want %d", c.wait, got, c.seconds)
		}
		if got := c.wait.String(); got != c.text {
			t.Errorf("%d prints as %q, want %q", int64(c.wait), got, c.text)
		}
		d, ok := c.wait.Duration()
		if ok != c.finite || ok && d != time.Duration(c.wait) || !ok && d != 0 {
			t.Errorf("%v: %v, %v", c.wait, d, ok)
		}
	}
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		mask stint.LimitSet
		want []int
	}{
		{0, nil},
		{1, []int{0}},
		{0b1010, []int{1, 3}},
		{1 << 63, []int{63}},
		{1<<63 | 1, []int{0, 63}},
	} {
		if got := slices.Collect(c.mask.Limits()); !slices.Equal(got, c.want) {
			t.Errorf("%b: %v, want %v", c.mask, got, c.want)
		}
		for _, layer := range []int{math.MinInt, -1, 0, 1, 2, 3, 62, 63, 64, 65, math.MaxInt} {
			if got := c.mask.Has(layer); got != slices.Contains(c.want, layer) {
				t.Errorf("%b has layer %d: %v", c.mask, layer, got)
			}
		}
	}
	for layer := range stint.LimitSet(math.MaxUint64).Limits() {
		if layer == 3 {
			break // an early end is no trouble
		}
	}
}

// Join takes the longest waits, and the limit of the layer with the least
// remaining: the first of equals.
func TestDecisionJoin(t *testing.T) {
	const s = time.Second
	first := stint.Decision{Limit: 10, Remaining: 5, Taken: 2, ResetAfter: 3 * s, Denied: 1}
	for _, c := range []struct {
		name        string
		d, layer, w stint.Decision
	}{
		{"less remains", first,
			stint.Decision{Limit: 4, Remaining: 1},
			stint.Decision{Limit: 4, Remaining: 1, Taken: 2, ResetAfter: 3 * s, Denied: 1}},
		{"more remains", first,
			stint.Decision{Limit: 99, Remaining: 9, ResetAfter: 9 * s, Delay: s},
			stint.Decision{Limit: 10, Remaining: 5, Taken: 2, ResetAfter: 9 * s, Delay: s, Denied: 1}},
		{"as much remains, of less", first,
			stint.Decision{Limit: 5, Remaining: 5},
			first},
		{"less remains, of the third", first,
			stint.Decision{Limit: 4, Remaining: 1, Tightest: 2},
			stint.Decision{Limit: 4, Remaining: 1, Taken: 2, Tightest: 2, ResetAfter: 3 * s, Denied: 1}},
		{"as much remains, of the third", first,
			stint.Decision{Limit: 5, Remaining: 5, Tightest: 2},
			first},
		{"as much remains, of one that comes before", stint.Decision{Limit: 10, Remaining: 5, Tightest: 3},
			stint.Decision{Limit: 7, Remaining: 5, Tightest: 1},
			stint.Decision{Limit: 7, Remaining: 5, Tightest: 1}},
		{"taken, allowed and denied belong to the request", first,
			stint.Decision{Limit: 10, Remaining: 5, Taken: 7, Allowed: true, Denied: 2},
			first},
		{"longer wait", stint.Decision{RetryAfter: 5},
			stint.Decision{RetryAfter: 6},
			stint.Decision{RetryAfter: 6}},
		{"shorter wait", stint.Decision{RetryAfter: 5},
			stint.Decision{RetryAfter: 4},
			stint.Decision{RetryAfter: 5}},
		{"never is the longest", stint.Decision{RetryAfter: math.MaxInt64},
			stint.Decision{RetryAfter: stint.Never},
			stint.Decision{RetryAfter: stint.Never}},
		{"never stays", stint.Decision{RetryAfter: stint.Never},
			stint.Decision{RetryAfter: math.MaxInt64},
			stint.Decision{RetryAfter: stint.Never}},
		{"never twice", stint.Decision{RetryAfter: stint.Never},
			stint.Decision{RetryAfter: stint.Never},
			stint.Decision{RetryAfter: stint.Never}},
		{"shorter delay and reset", stint.Decision{Delay: 2, ResetAfter: 2},
			stint.Decision{Delay: 1, ResetAfter: 1},
			stint.Decision{Delay: 2, ResetAfter: 2}},
	} {
		if c.d.Join(&c.layer); c.d != c.w {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, c.d, c.w)
		}
	}
}
