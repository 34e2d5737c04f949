package plan

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// draws is how often clients are drawn anew.
const draws = 200

// drawnBelow are the parts of draws that have a client at most 0, 1, 2 … times.
var drawnBelow = func() (sums [20]float64) {
	p, sum := math.Exp(-1), 0.0
	for k := range sums {
		sum += p
		sums[k] = sum
		p /= float64(k + 1)
	}
	return sums
}()

// seed is what a client's draws go by: its key, so that the order of the lines
// does not matter.
func (r *reading) seed(id uint32) uint64 { return hashKey(r.clients.key(id)) }

// drawn is how often a client is in a draw: a Poisson number of mean 1, so that
// on average as many are drawn as there are.
func drawn(seed uint64, draw int) int {
	x := mix(seed + uint64(draw)*0xda942042e4dd58b5)
	u := float64(x>>11) / (1 << 53)
	k := 0
	for k < len(drawnBelow) && u >= drawnBelow[k] {
		k++
	}
	return k
}

// spread says between which choices nine of ten draws lie, and how many choose
// the same.
func (to *Certainty) spread(all []Candidate, chosen Candidate) {
	for _, one := range all {
		if one.text() == chosen.text() {
			to.Same++
		}
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return cmp.Compare(a.Minute, b.Minute) })
	low, high := all[draws/20], all[draws-1-draws/20]
	to.Draws, to.Same, to.Low, to.High = draws, to.Same/draws, low.text(), high.text()
}

// drawClients makes the choice again from clients drawn anew, where the target
// is a share of these.
func (c *chooser) drawClients(r *reading, demand *curve) (all []Candidate) {
	k := c.most
	var each [draws][]Candidate
	for i, rate := range rates {
		ranked := demand.ranked(i)
		var seeds []uint64 // of those that were looked at
		for draw := range draws {
			left, most := k, int64(1)
			for place, packed := range ranked {
				if place == len(seeds) {
					seeds = append(seeds, r.seed(idOf(packed)))
				}
				if left -= int64(drawn(seeds[place], draw)); left < 0 {
					most = need(packed)
					break
				}
			}
			each[draw] = append(each[draw], candidate(rate, roundUp(most)))
		}
	}
	for _, candidates := range each {
		all = append(all, tightest(candidates))
	}
	return all
}

// A lottery makes the choice again from clients drawn anew, where the target is
// a share of the requests: what a burst denies to each client is found once, and
// serves all draws.
type lottery struct {
	*chooser
	demand *curve
	ladder []int64
	sent   []uint32     // by client
	seeds  []uint64     // by client
	may    [draws]int64 // requests that a draw may deny
	hunts  [draws]*hunt
}

// mostTried bounds how many bursts of a rate are tried in a pass, and drawMemory
// what their states take, in bytes.
const (
	mostTried  = 3
	drawMemory = 128 << 20
)

// drawRequests runs the lottery. It begins around what the whole log says.
func (c *chooser) drawRequests(ctx context.Context, r *reading, demand *curve, chosen []Candidate) ([]Candidate, error) {
	l := &lottery{chooser: c, demand: demand, ladder: ladder(demand), sent: r.sent}
	for id := range r.sent {
		l.seeds = append(l.seeds, r.seed(uint32(id)))
	}
	for d := range draws {
		l.hunts[d] = newHunt(math.MinInt64, math.MaxInt64, demand, l.ladder)
		sum := int64(0)
		for id, n := range r.sent {
			if !c.skip[id] {
				sum += int64(drawn(l.seeds[id], d)) * int64(n)
			}
		}
		l.may[d] = c.target.most(sum)
	}
	var around []try
	for i := range rates {
		at, _ := slices.BinarySearch(l.ladder, chosen[i].Burst)
		for _, rung := range []int{at - 2, at, at + 2} {
			if rung >= 0 && rung < l.hunts[0].high[i] {
				around = append(around, try{rate: i, rung: rung})
			}
		}
	}
	for tries := around; len(tries) > 0; tries = l.next() {
		if err := l.pass(ctx, tries); err != nil {
			return nil, err
		}
	}
	var all []Candidate
	for _, h := range l.hunts {
		all = append(all, tightest(h.candidates(l.ladder)))
	}
	return all, nil
}

// pass finds what bursts deny, and to which draws this is too much.
func (l *lottery) pass(ctx context.Context, tries []try) error {
	fits := max(drawMemory/(8*max(len(l.sent), 1)), len(rates))
	for len(tries) > 0 {
		some := tries[:min(len(tries), fits)]
		tries = tries[len(some):]
		for i, t := range some {
			var err error
			if some[i], err = tryOf(t.rate, t.rung, l.ladder[t.rung]); err != nil {
				return err
			}
		}
		if err := l.spool.replay(ctx, l.touched(some), l.hunts[0].window(some)); err != nil {
			return err
		}
		for i := range some {
			l.narrow(&some[i])
		}
	}
	return nil
}

// touched says which clients none of the tries denies anything, and who is left
// out anyway: they need not be looked at.
func (l *lottery) touched(tries []try) []bool {
	skip := slices.Clone(l.skip)
	l.demand.demands.each(func(id uint32, d *demand) {
		if int(id) >= len(skip) || skip[id] {
			return
		}
		skip[id] = !slices.ContainsFunc(tries, func(t try) bool { return !d.within(t.rate, l.ladder[t.rung]) })
	})
	return skip
}

// narrow narrows the hunts of all draws by what a burst has denied.
func (l *lottery) narrow(t *try) {
	var sums [draws]int64
	for i := range t.denied[1:] {
		one := &t.denied[i+1]
		for d := range sums {
			sums[d] += int64(drawn(l.seeds[one.id], d)) * one.requests
		}
	}
	for d, h := range l.hunts {
		if sums[d] <= l.may[d] {
			h.high[t.rate] = min(h.high[t.rate], t.rung)
		} else {
			h.low[t.rate] = max(h.low[t.rate], t.rung)
		}
	}
}

// next returns what to try: for each rate, some of what would halve what is left
// in a draw, unless that rate cannot be the tightest there any more.
func (l *lottery) next() (tries []try) {
	var open [len(rates)][]int
	for _, h := range l.hunts {
		best := tightest(h.candidates(l.ladder))
		for i, r := range rates {
			if h.high[i]-h.low[i] < 2 {
				continue
			}
			least := candidate(r, l.ladder[h.low[i]+1])
			if best.Fits && (!least.Fits || least.Minute > best.Minute) {
				continue
			}
			open[i] = append(open[i], (h.low[i]+h.high[i])/2)
		}
	}
	for i := range rates {
		slices.Sort(open[i])
		n := len(open[i])
		last := -1
		for k := range mostTried {
			if n == 0 {
				break
			}
			if rung := open[i][(2*k+1)*n/(2*mostTried)]; rung != last {
				tries, last = append(tries, try{rate: i, rung: rung}), rung
			}
		}
	}
	return tries
}
