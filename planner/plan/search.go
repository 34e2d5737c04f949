package plan

import (
	"context"
	"slices"

	"github.com/stint-dev/stint"
)

// A hunt looks for the least round burst of each rate that keeps to a share of the requests.
type hunt struct {
	low  [len(rates)]int // the highest rung known to be too low, −1 for none
	high [len(rates)]int // the lowest rung known to be enough
}

// rungs returns the round bursts, in order, up to one that is at least most.
func rungs(most int64) (all []int64) {
	for n := int64(1); ; n++ {
		n = roundUp(n)
		if all = append(all, n); n >= most {
			return all
		}
	}
}

// A try is a burst for a rate, and its result.
type try struct {
	rate, rung int
	*replay
}

func tryOf(rate, rung int, burst int64) (try, error) {
	r := rates[rate]
	p, err := replayOf("", stint.New(r.Count, r.Period).WithBurst(burst))
	return try{rate, rung, p}, err
}

// newHunt returns a hunt below the bursts that the curve says deny nothing.
func newHunt(demand *curve, ladder []int64) *hunt {
	h := &hunt{}
	for i := range rates {
		h.low[i] = -1
		h.high[i], _ = slices.BinarySearch(ladder, roundUp(need(demand.ranked(i)[0])))
	}
	return h
}

// candidates returns the limits that a hunt has found.
func (h *hunt) candidates(ladder []int64) (all []Candidate) {
	for i, r := range rates {
		all = append(all, candidate(r, ladder[h.high[i]]))
	}
	return all
}

// ladder returns the round bursts up to one that lets everything through at any rate.
func ladder(demand *curve) []int64 {
	most := int64(1)
	for i := range rates {
		most = max(most, need(demand.ranked(i)[0]))
	}
	return rungs(most)
}

// search finishes a hunt. Each pass halves the rungs that are left to try.
func (c *chooser) search(ctx context.Context, ladder []int64, h *hunt) error {
	for {
		var tried []try
		var all []*replay
		for i := range rates {
			if h.high[i]-h.low[i] < 2 {
				continue
			}
			rung := (h.low[i] + h.high[i]) / 2
			t, err := tryOf(i, rung, ladder[rung])
			if err != nil {
				return err
			}
			tried, all = append(tried, t), append(all, t.replay)
		}
		if len(tried) == 0 {
			return nil
		}
		if err := c.reading.replay(ctx, c.reading.ignored, newLedger(all...)); err != nil {
			return err
		}
		for _, t := range tried {
			if t.sum <= c.target.most(t.total) {
				h.high[t.rate] = t.rung
			} else {
				h.low[t.rate] = t.rung
			}
		}
	}
}
