package trial

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint"
)

// mostColumns is how many columns a timeline has at most: with its labels it
// fits a terminal of 80.
const mostColumns = 68

// A Comparison is what several limits did with the same arrivals. Arrivals
// come at their own times, whatever became of those before: denied ones are
// gone.
type Comparison struct {
	// Requests is how many arrived.
	Requests int `json:"requests"`
	// Start is where the timelines begin, from the epoch, and Span how long
	// they are: to the end of the last phase, or to the last start.
	Start Duration `json:"start"`
	Span  Duration `json:"span"`
	// Stretch is what Most of a row is about.
	Stretch Duration `json:"stretch"`
	// Column is how long a column of the timelines is.
	Column Duration `json:"column"`
	// Rows has a row for each candidate, in order.
	Rows []Row `json:"rows"`
}

// A Row is what one candidate did: one limit, or layers on one key.
type Row struct {
	Limits  []string `json:"limits"`
	Allowed int      `json:"allowed"`
	Denied  int      `json:"denied"`
	// Delayed is how many of the allowed had to wait in a queue, and
	// LongestWait the longest of those waits.
	Delayed     int      `json:"delayed"`
	LongestWait Duration `json:"longest_wait"`
	// Most is the most units that one key started within any stretch.
	Most int64 `json:"most"`
	// Passes and Denials count requests by column: when they started, and
	// when they were denied.
	Passes  []int64 `json:"passes"`
	Denials []int64 `json:"denials"`

	events []event
}

// A Duration is a time.Duration that JSON has as text: "1.5s".
type Duration time.Duration

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// An event is what became of an arrival.
type event struct {
	at      int64 // when it started, or was denied
	key     string
	cost    int64
	allowed bool
}

// Compare runs each candidate, one limit or layers on one key, on the same
// arrivals, which are in order of time; end is when the load is over, and
// stretch what Most is about: 0 for the longest period of the limits, or what lasts
// longest under limits in flight alone.
func Compare(candidates [][]stint.Limit, arrivals []Arrival, end int64, stretch time.Duration) (*Comparison, error) {
	if len(arrivals) == 0 {
		return nil, errors.New("no requests to compare on: write one a line to standard input, or describe them with --arrivals")
	}
	if stretch == 0 {
		stretch = longest(candidates, arrivals)
	}
	c := &Comparison{Requests: len(arrivals), Stretch: Duration(stretch)}
	for _, one := range candidates {
		row, err := run(one, arrivals)
		if err != nil {
			return nil, err
		}
		row.Most = most(row.events, int64(stretch))
		for _, e := range row.events {
			end = max(end, e.at)
		}
		c.Rows = append(c.Rows, row)
	}
	c.columns(arrivals, end)
	return c, nil
}

// columns sorts what happened up to end into columns. They begin at the epoch,
// or with the first arrival where that would leave half of them empty.
func (c *Comparison) columns(arrivals []Arrival, end int64) {
	start := int64(0)
	if first := arrivals[0].At; first > end/2 {
		start = first
	}
	column := columnFor(end - start)
	start -= start % column
	n := int((end-start)/column) + 1
	if n > 1 && (end-start)%column == 0 && !c.happens(end) {
		n--
	}
	c.Start, c.Span, c.Column = Duration(start), Duration(end-start), Duration(column)
	for i := range c.Rows {
		c.Rows[i].count(n, start, column)
	}
}

// happens reports whether any request started or was denied at a moment.
func (c *Comparison) happens(at int64) bool {
	return slices.ContainsFunc(c.Rows, func(r Row) bool {
		return slices.ContainsFunc(r.events, func(e event) bool { return e.at == at })
	})
}

func longest(candidates [][]stint.Limit, arrivals []Arrival) (d time.Duration) {
	for _, limits := range candidates {
		for _, l := range limits {
			d = max(d, l.Period())
		}
	}
	if d == 0 {
		for i := range arrivals {
			d = max(d, arrivals[i].Lasts)
		}
	}
	return max(d, 1)
}

// run plays the arrivals to one candidate.
func run(limits []stint.Limit, arrivals []Arrival) (Row, error) {
	row := Row{events: make([]event, 0, len(arrivals))}
	for _, l := range limits {
		row.Limits = append(row.Limits, l.String())
	}
	p, err := NewProcess(0, limits...)
	if err != nil {
		return row, err
	}
	for _, a := range arrivals {
		d, err := p.Take(a)
		if err != nil {
			return row, err
		}
		row.add(a, d)
	}
	return row, nil
}

func (r *Row) add(a Arrival, d stint.Decision) {
	e := event{at: a.At, key: a.Key, cost: a.Cost, allowed: d.Allowed}
	if !d.Allowed {
		r.Denied++
		r.events = append(r.events, e)
		return
	}
	r.Allowed++
	if d.Delay > 0 {
		r.Delayed++
		r.LongestWait = max(r.LongestWait, Duration(d.Delay))
		e.at = min(addUpTo(e.at, int64(d.Delay)), maxTime)
	}
	r.events = append(r.events, e)
}

// most returns the most units that one key started within any (t − stretch, t].
func most(events []event, stretch int64) int64 {
	byKey := make(map[string][]event)
	for _, e := range events {
		if e.allowed {
			byKey[e.key] = append(byKey[e.key], e)
		}
	}
	var most int64
	for _, starts := range byKey {
		slices.SortStableFunc(starts, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		var sum int64
		first := 0
		for _, e := range starts {
			sum = addUpTo(sum, e.cost)
			for starts[first].at <= e.at-stretch {
				sum -= starts[first].cost
				first++
			}
			most = max(most, sum)
		}
	}
	return most
}

// addUpTo adds without wrapping.
func addUpTo(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// count sorts the events into n columns.
func (r *Row) count(n int, start, column int64) {
	r.Passes, r.Denials = make([]int64, n), make([]int64, n)
	for _, e := range r.events {
		if e.allowed {
			r.Passes[(e.at-start)/column]++
		} else {
			r.Denials[(e.at-start)/column]++
		}
	}
}

// columnFor returns the shortest round stretch of which no more than
// mostColumns cover a span wherever it begins, in nanoseconds.
func columnFor(span int64) int64 {
	for _, unit := range []struct {
		unit  time.Duration
		steps []int64
	}{
		{1, []int64{1, 2, 5, 10, 20, 50, 100, 200, 500}},
		{time.Microsecond, []int64{1, 2, 5, 10, 20, 50, 100, 200, 500}},
		{time.Millisecond, []int64{1, 2, 5, 10, 20, 50, 100, 200, 500}},
		{time.Second, []int64{1, 2, 5, 10, 15, 30}},
		{time.Minute, []int64{1, 2, 5, 10, 15, 30}},
		{time.Hour, []int64{1, 2, 3, 6, 12}},
	} {
		for _, step := range unit.steps {
			if column := step * int64(unit.unit); span/column+1 < mostColumns {
				return column
			}
		}
	}
	column := int64(24 * time.Hour)
	for span/column+1 >= mostColumns {
		column *= 2
	}
	return column
}
