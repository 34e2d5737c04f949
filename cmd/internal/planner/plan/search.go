package plan

import (
	"cmp"
	"context"
	"slices"

	"github.com/stint-dev/stint"
)

// A hunt looks for the least round burst of each rate that keeps to a share of
// the requests, in a stretch of the log: from ≤ at < to.
type hunt struct {
	from, to int64
	low      [len(rates)]int // the highest rung that is too low, −1 for none
	high     [len(rates)]int // the lowest that will do
}

// rungs are the round bursts up to one that is at least most, in order.
func rungs(most int64) (all []int64) {
	for n := int64(1); ; n++ {
		n = roundUp(n)
		if all = append(all, n); n >= most {
			return all
		}
	}
}

// A between decides limits on the events of a stretch of time, and forgets the
// states of clients behind it.
type between struct {
	from, to int64
	ledger   *ledger
}

func (b *between) add(events []event) {
	if len(events) == 0 || b.ledger == nil {
		return
	}
	if events[0].at >= b.to {
		b.ledger = nil
		return
	}
	start, _ := slices.BinarySearchFunc(events, b.from, func(e event, at int64) int { return cmp.Compare(e.at, at) })
	end, _ := slices.BinarySearchFunc(events, b.to, func(e event, at int64) int { return cmp.Compare(e.at, at) })
	b.ledger.add(events[start:end])
}

// A try is a burst for a rate, and what it did.
type try struct {
	rate, rung int
	*replay
}

func tryOf(rate, rung int, burst int64) (try, error) {
	r := rates[rate]
	p, err := replayOf("", stint.New(r.Count, r.Period).WithBurst(burst))
	return try{rate, rung, p}, err
}

// window returns the sink that decides tries in the stretch of a hunt.
func (h *hunt) window(tries []try) *between {
	var all []*replay
	for _, t := range tries {
		all = append(all, t.replay)
	}
	return &between{from: h.from, to: h.to, ledger: newLedger(all...)}
}

// newHunt returns the hunt in a stretch, within which nothing is denied by the
// burst that the curve of the whole log says.
func newHunt(from, to int64, demand *curve, ladder []int64) *hunt {
	h := &hunt{from: from, to: to}
	for i := range rates {
		h.low[i] = -1
		h.high[i], _ = slices.BinarySearch(ladder, roundUp(need(demand.ranked(i)[0])))
	}
	return h
}

// candidates are the limits that a hunt has found.
func (h *hunt) candidates(ladder []int64) (all []Candidate) {
	for i, r := range rates {
		all = append(all, candidate(r, ladder[h.high[i]]))
	}
	return all
}

// ladder returns the round bursts up to what lets all through at any rate.
func ladder(demand *curve) []int64 {
	most := int64(1)
	for i := range rates {
		most = max(most, need(demand.ranked(i)[0]))
	}
	return rungs(most)
}

// search ends the hunts: a pass for each halving of what is left to try.
func (c *chooser) search(ctx context.Context, ladder []int64, hunts ...*hunt) error {
	for {
		var windows []sink
		tried := make([][]try, len(hunts))
		for k, h := range hunts {
			for i := range rates {
				if h.high[i]-h.low[i] < 2 {
					continue
				}
				rung := (h.low[i] + h.high[i]) / 2
				t, err := tryOf(i, rung, ladder[rung])
				if err != nil {
					return err
				}
				tried[k] = append(tried[k], t)
			}
			if len(tried[k]) > 0 {
				windows = append(windows, h.window(tried[k]))
			}
		}
		if len(windows) == 0 {
			return nil
		}
		if err := c.spool.replay(ctx, c.skip, windows...); err != nil {
			return err
		}
		for k, h := range hunts {
			for _, t := range tried[k] {
				if t.sum <= c.target.most(t.total) {
					h.high[t.rate] = t.rung
				} else {
					h.low[t.rate] = t.rung
				}
			}
		}
	}
}

// byRequests finds what each busy day alone says, if the target is of requests.
// Each day begins with full buckets.
func (c *chooser) byRequests(ctx context.Context, demand *curve, all []Day) error {
	var hunts []*hunt
	var of []*Day
	rising := ladder(demand)
	for i := range all {
		if d := &all[i]; d.busy() {
			hunts, of = append(hunts, newHunt(d.start, d.end, demand, rising)), append(of, d)
		}
	}
	if err := c.search(ctx, rising, hunts...); err != nil {
		return err
	}
	for i, d := range of {
		best := tightest(hunts[i].candidates(rising))
		d.Tightest, d.minute = best.text(), best.Minute
	}
	return nil
}
