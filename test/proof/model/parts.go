package model

import (
	"math"
	"math/big"
)

// parts is "sliding_buckets": a count for every part of the window, where part
// i covers [i·W/n, (i+1)·W/n) since the epoch.
type parts struct {
	spec   Spec
	counts []part // oldest first
}

type part struct {
	index *big.Int
	units *big.Int
}

func (p *parts) limitOf() Spec     { return p.spec }
func (p *parts) compare(spec Spec) { p.spec = spec }
func (p *parts) most() int64       { return p.spec.Count }

// indexOf is the part that holds t: t·n/W rounded down.
func (p *parts) indexOf(t *big.Int) *big.Int {
	return floorDiv(mul(t, big.NewInt(p.spec.Parts)), big.NewInt(p.spec.Period))
}

// stops is the instant at which part i stops counting: (i+1)·W/n + W, a
// rational.
func (p *parts) stops(i *big.Int) *big.Rat {
	end := whole(add(i, big.NewInt(1)))
	end.Mul(end, ratio(p.spec.Period, p.spec.Parts))
	return end.Add(end, ratio(p.spec.Period, 1))
}

// counting says whether part i overlaps (t − W, t]: it does until
// (i+1)·W/n ≤ t − W, both sides here times n.
func (p *parts) counting(i, t *big.Int) bool {
	period, n := big.NewInt(p.spec.Period), big.NewInt(p.spec.Parts)
	end := mul(add(i, big.NewInt(1)), period)
	return end.Cmp(mul(sub(t, period), n)) > 0
}

// cap is the greatest count of one part: 2^32 − 1 for limits below 2^31.
func (p *parts) cap() *big.Int {
	if p.spec.Count < 1<<31 {
		return big.NewInt(math.MaxUint32)
	}
	return maxInt64
}

// admits: the counts of every part that overlaps (t − W, t] plus c are ≤ L.
func (p *parts) admits(t *big.Int, c int64) bool {
	sum := big.NewInt(c)
	for i := len(p.counts) - 1; i >= 0 && p.counting(p.counts[i].index, t); i-- {
		sum.Add(sum, p.counts[i].units)
	}
	return sum.Cmp(big.NewInt(p.spec.Count)) <= 0
}

func (p *parts) charge(t *big.Int, c int64, _ charging) receipt {
	p.put(p.indexOf(t), big.NewInt(c))
	p.trim(t)
	return receipt{at: t}
}

// put adds units to part i, which no part that counts is newer than.
func (p *parts) put(i, units *big.Int) {
	if n := len(p.counts); n == 0 || p.counts[n-1].index.Cmp(i) != 0 {
		p.counts = append(p.counts, part{i, new(big.Int)})
	}
	newest := &p.counts[len(p.counts)-1]
	newest.units = least(add(newest.units, units), p.cap())
}

// trim drops the parts that are empty or no longer count.
func (p *parts) trim(t *big.Int) {
	var kept []part
	for _, e := range p.counts {
		if e.units.Sign() > 0 && p.counting(e.index, t) {
			kept = append(kept, e)
		}
	}
	p.counts = kept
}

func (p *parts) resetAfter(t *big.Int) *big.Int {
	p.trim(t)
	if len(p.counts) == 0 {
		return new(big.Int)
	}
	return sub(ceil(p.stops(p.counts[len(p.counts)-1].index)), t)
}

func (p *parts) delay(*big.Int) *big.Int { return new(big.Int) }

func (p *parts) giveBack(t *big.Int, r receipt, g int64) {
	charged := p.indexOf(r.at)
	p.remove(t, g, func(e part) bool { return e.index.Cmp(charged) == 0 })
}

func (p *parts) refund(t *big.Int, c int64) {
	p.remove(t, c, func(part) bool { return true })
}

// remove takes up to c units, newest first, from the parts of a choice that
// still count.
func (p *parts) remove(t *big.Int, c int64, choose func(part) bool) {
	left := big.NewInt(c)
	p.trim(t)
	for i := len(p.counts) - 1; i >= 0; i-- {
		if e := &p.counts[i]; choose(*e) {
			n := least(left, e.units)
			e.units = sub(e.units, n)
			left = sub(left, n)
		}
	}
	p.trim(t)
}
