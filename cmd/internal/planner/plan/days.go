package plan

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Day is one day of the log.
type Day struct {
	From     string `json:"from"`
	Requests int64  `json:"requests"`
	Clients  int64  `json:"clients"`
	// Tightest is what would have been chosen by that day alone, before the
	// margin; empty if the day has too little.
	Tightest string `json:"tightest,omitempty"`
	// Denied and ClientsDenied are what the limit chosen from the whole log
	// does on that day to those that have a say.
	Denied        int64 `json:"denied"`
	ClientsDenied int64 `json:"clients_denied"`

	start, end int64
	minute     int64
}

// busy reports whether the day alone has enough to choose from.
func (d *Day) busy() bool { return d.Requests >= leastRequests && d.Clients >= leastClients }

// days looks at each day of a curve by itself. What a client has used up at
// midnight is used up on the next day too.
type days struct {
	target  *Target // nil for no days
	options *Options

	day      int32 // the number of the day at hand, from 1 on
	end      int64
	at       Day
	active   []uint32 // clients that have sent something today
	requests int64
	all      []Day
}

// beginDay ends the day at hand and begins that of a moment.
func (c *curve) beginDay(at int64) {
	c.closeDay()
	d := &c.days
	d.active, d.requests = d.active[:0], 0
	d.day++
	if d.target == nil {
		d.end = math.MaxInt64
		return
	}
	year, month, day := d.options.when(at).Date()
	start := time.Date(year, month, day, 0, 0, 0, 0, d.options.when(at).Location())
	end := start.AddDate(0, 0, 1)
	d.end = end.UnixNano()
	d.at = Day{From: start.Format("2006-01-02"), start: start.UnixNano(), end: d.end}
}

// closeDay says what the day at hand would have chosen.
func (c *curve) closeDay() {
	d := &c.days
	if d.target == nil || d.requests == 0 {
		return
	}
	d.at.Requests, d.at.Clients = d.requests, int64(len(d.active))
	if !d.target.Requests && d.at.busy() {
		k := int(d.target.most(d.at.Clients))
		var tops [len(rates)]podium
		for i := range tops {
			tops[i].n = k + 1
		}
		for _, id := range d.active {
			one := c.demands.at(id)
			for i := range tops {
				tops[i].add(uint64(one.levels[i].today)<<32 | uint64(^id))
			}
		}
		var each []Candidate
		for i, r := range rates {
			tops[i].cut()
			each = append(each, candidate(r, roundUp(need(slices.Min(tops[i].all)))))
		}
		best := tightest(each)
		d.at.Tightest, d.at.minute = best.text(), best.Minute
	}
	d.all, d.requests = append(d.all, d.at), 0
}

// A daily is a sink that looks at what a limit does on each day, to those that
// are not skipped.
type daily struct {
	ledger *ledger
	limit  *replay
	skip   []bool
	days   []Day
	at     int
}

func (d *daily) add(events []event) {
	for len(events) > 0 && d.at < len(d.days) {
		today := &d.days[d.at]
		n, _ := slices.BinarySearchFunc(events, today.end, func(e event, at int64) int { return cmp.Compare(e.at, at) })
		d.ledger.add(events[:n])
		if events = events[n:]; len(events) > 0 {
			d.finish()
		}
	}
	d.ledger.add(events) // on a day of which only others are
}

// finish ends the day at hand.
func (d *daily) finish() {
	if d.at >= len(d.days) {
		return
	}
	today := &d.days[d.at]
	for i := range d.limit.denied[1:] {
		one := &d.limit.denied[i+1]
		if skipped := int(one.id) < len(d.skip) && d.skip[one.id]; one.today > 0 && !skipped {
			today.ClientsDenied++
			today.Denied += one.today
		}
		one.today = 0
	}
	d.at++
}
