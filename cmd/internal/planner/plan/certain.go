package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// A Certainty says how much a choice rests on, and how far it would be another
// with other clients or on other days.
type Certainty struct {
	Requests int64    `json:"requests"`
	Clients  int64    `json:"clients"`
	Span     Duration `json:"span"`
	// Days is how many days of the zone the log touches, and Busy on how many
	// of them there was enough to choose from.
	Days int `json:"days"`
	Busy int `json:"busy_days"`
	// Low and High are the choices between which nine of ten lie when the
	// clients are drawn anew from those that there were, and Same the part of
	// these draws that choose the same. They are empty if the target is of
	// requests, or if there were no draws.
	Low   string  `json:"low,omitempty"`
	High  string  `json:"high,omitempty"`
	Same  float64 `json:"same"`
	Draws int     `json:"draws"`
	// ByDay is what each day says alone.
	ByDay []Day `json:"by_day"`
	// Words say the same for people.
	Words []string `json:"words"`
}

// A Day is one day of the log, or one week if there are many.
type Day struct {
	From     string `json:"from"`
	Requests int64  `json:"requests"`
	Clients  int64  `json:"clients"`
	// Tightest is what would have been chosen on that day alone, before the
	// margin; empty if the day has too little.
	Tightest string `json:"tightest,omitempty"`
	// Denied and ClientsDenied are what the limit chosen from the whole log
	// does on that day.
	Denied        int64 `json:"denied"`
	ClientsDenied int64 `json:"clients_denied"`

	minute int64
}

// draws is how often clients are drawn anew, and mostDays how many days are
// looked at one by one.
const (
	draws    = 200
	mostDays = 62
)

// drawn is how often a client is in a draw: a Poisson number of mean 1, so that
// on average as many are drawn as there are.
func drawn(id uint32, draw int) int {
	x := mix(uint64(id)*0x9e3779b97f4a7c15 + uint64(draw)*0xda942042e4dd58b5 + 1)
	u := float64(x>>11) / (1 << 53)
	for k, p, sum := 0, math.Exp(-1), math.Exp(-1); ; k++ {
		if u < sum || k > 20 {
			return k
		}
		p /= float64(k + 1)
		sum += p
	}
}

// bootstrap makes the choice again from clients drawn anew.
func (c *chooser) bootstrap(demand *curve, chosen Candidate, to *Certainty) {
	k := c.target.most(int64(demand.n))
	var all []Candidate
	for draw := range draws {
		var each []Candidate
		for i, r := range rates {
			left, most := k, int64(1)
			for _, packed := range demand.ranked(i) {
				if left -= int64(drawn(idOf(packed), draw)); left < 0 {
					most = need(packed)
					break
				}
			}
			each = append(each, candidate(r, roundUp(most)))
		}
		one := tightest(each)
		if one.text() == chosen.text() {
			to.Same++
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return cmp.Compare(a.Minute, b.Minute) })
	low, high := all[draws/20], all[draws-1-draws/20]
	to.Draws, to.Same, to.Low, to.High = draws, to.Same/draws, low.text(), high.text()
}

// A daily is a sink that looks at each day alone.
type daily struct {
	chooser *chooser
	options *Options
	weeks   bool
	ledger  *ledger
	limit   *replay
	curve   curve
	end     int64
	day     Day
	denied  int64 // by the limit until the day at hand
	days    []Day
	err     error
}

func (d *daily) add(events []event) {
	for len(events) > 0 {
		if events[0].at >= d.end {
			d.finish()
			d.begin(events[0].at)
		}
		n, _ := slices.BinarySearchFunc(events, d.end, func(e event, at int64) int { return cmp.Compare(e.at, at) })
		d.day.Requests += int64(n)
		d.ledger.add(events[:n])
		d.curve.add(events[:n])
		events = events[n:]
	}
}

func (d *daily) begin(at int64) {
	from := d.options.when(at)
	step := 1
	if d.weeks {
		from = from.AddDate(0, 0, -(int(from.Weekday())+6)%7)
		step = 7
	}
	year, month, day := from.Date()
	start := time.Date(year, month, day, 0, 0, 0, 0, from.Location())
	d.end = start.AddDate(0, 0, step).UnixNano()
	d.day = Day{From: start.Format("2006-01-02")}
	d.curve = curve{}
	d.denied = d.limit.sum
	for i := range d.limit.denied[1:] {
		d.limit.denied[i+1].today = 0
	}
}

// finish ends the day at hand.
func (d *daily) finish() {
	if d.day.Requests == 0 {
		return
	}
	d.curve.settle(d.chooser.keep)
	d.day.Clients = int64(d.curve.n)
	d.day.Denied = d.limit.sum - d.denied
	for _, one := range d.limit.denied[1:] {
		if one.today > 0 {
			d.day.ClientsDenied++
		}
	}
	if !d.chooser.target.Requests && d.day.Requests >= leastRequests && d.day.Clients >= leastClients {
		all, err := d.chooser.candidates(context.Background(), 0, 0, &d.curve)
		if err == nil {
			best := tightest(all)
			d.day.Tightest, d.day.minute = best.text(), best.Minute
		}
	}
	d.days = append(d.days, d.day)
}

// certainty says how sure a choice is.
func (c *chooser) certainty(ctx context.Context, r *reading, demand *curve, best Candidate, limit stint.Limit) (*Certainty, error) {
	to := &Certainty{Requests: r.requests, Clients: r.counted(), Span: Duration(r.last - r.first), ByDay: []Day{}}
	if !c.target.Requests {
		c.bootstrap(demand, best, to)
	}
	p, err := replayOf("", limit)
	if err != nil {
		return nil, err
	}
	d := &daily{
		chooser: c, options: r.options, limit: p, ledger: newLedger(p),
		weeks: time.Duration(r.last-r.first) > mostDays*24*time.Hour, end: math.MinInt64,
	}
	if err := c.spool.replay(ctx, c.skip, d); err != nil {
		return nil, err
	}
	d.finish()
	to.ByDay, to.Days = d.days, len(d.days)
	for _, day := range d.days {
		if day.Requests >= leastRequests && day.Clients >= leastClients {
			to.Busy++
		}
	}
	to.Words = to.words()
	return to, nil
}

// words says how sure it is.
func (s *Certainty) words() (all []string) {
	of := "day"
	if s.Days > 1 && len(s.ByDay) > 1 && weekly(s.ByDay) {
		of = "week"
	}
	all = append(all, fmt.Sprintf("it rests on %s of %s in %s: %s, %s of them busy", plural(s.Requests, "request"), plural(s.Clients, "client"), s.Span, plural(int64(s.Days), of), number(int64(s.Busy))))
	switch {
	case s.Draws == 0:
	case s.Low == s.High:
		all = append(all, fmt.Sprintf("with the clients drawn anew %d times from these, nine of ten choices are %s as well", s.Draws, s.Low))
	default:
		all = append(all, fmt.Sprintf("with the clients drawn anew %d times from these, nine of ten choices lie between %s and %s; %.0f%% are this one", s.Draws, s.Low, s.High, 100*s.Same))
	}
	var tight, loose, worst *Day
	for i := range s.ByDay {
		d := &s.ByDay[i]
		if d.Tightest != "" && (tight == nil || d.minute < tight.minute) {
			tight = d
		}
		if d.Tightest != "" && (loose == nil || d.minute > loose.minute) {
			loose = d
		}
		if worst == nil || d.ClientsDenied > worst.ClientsDenied {
			worst = d
		}
	}
	switch {
	case s.Busy < 2:
		all = append(all, "how "+of+"s differ cannot be seen: it takes two that are busy")
	case tight != nil && tight.Tightest == loose.Tightest:
		all = append(all, fmt.Sprintf("each busy %s alone says %s", of, tight.Tightest))
	case tight != nil:
		all = append(all, fmt.Sprintf("by single %ss it would be from %s (%s) to %s (%s)", of, tight.Tightest, tight.From, loose.Tightest, loose.From))
	}
	if s.Days > 1 && worst != nil && worst.ClientsDenied > 0 {
		all = append(all, fmt.Sprintf("most clients would be denied on %s: %s of %s", worst.From, number(worst.ClientsDenied), number(worst.Clients)))
	}
	return all
}

// weekly reports whether the days are weeks.
func weekly(days []Day) bool {
	a, err1 := time.Parse(time.DateOnly, days[0].From)
	b, err2 := time.Parse(time.DateOnly, days[len(days)-1].From)
	return err1 == nil && err2 == nil && b.Sub(a) > mostDays*24*time.Hour
}

func (s *Certainty) text(b *strings.Builder) {
	for _, line := range s.Words {
		wrap(b, "  - ", line)
	}
}
