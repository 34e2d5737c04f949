package trial

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// mostColumns is the most columns that a timeline may have, so that it fits a terminal of 80 with
// its labels.
const mostColumns = 68

// A Comparison is the result of the same arrivals under several limits. Arrivals come at their own
// times, whatever became of earlier ones: denied requests are dropped.
type Comparison struct {
	// Requests is how many arrived.
	Requests int `json:"requests"`
	// Start is where the timelines begin, from the epoch, and Span how long they are: to the end of
	// the last phase, or to the last start of a request.
	Start Duration `json:"start"`
	Span  Duration `json:"span"`
	// Stretch is the time in which Most of a candidate is counted.
	Stretch Duration `json:"stretch"`
	// Column is how long a column of the timelines is.
	Column Duration     `json:"column"`
	Rows   []*Candidate `json:"rows"`
}

// A Candidate is one limit, or layers on one key, and its result.
type Candidate struct {
	Limits []string
	Row
	// Passes and Denials count requests by column: by when they started, and by when they were
	// denied.
	Passes, Denials []int64

	events []event
}

// MarshalJSON writes the candidate as a row of the comparison.
func (r *Candidate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Limits      []string `json:"limits"`
		Allowed     int      `json:"allowed"`
		Denied      int      `json:"denied"`
		Delayed     int      `json:"delayed"`
		LongestWait Duration `json:"longest_wait"`
		Most        int64    `json:"most"`
		Passes      []int64  `json:"passes"`
		Denials     []int64  `json:"denials"`
	}{r.Limits, r.Passed + r.Delayed, r.Denied, r.Delayed, Duration(r.LongestWait), r.Most, r.Passes, r.Denials})
}

// A Duration is a time.Duration that JSON has as text: "1.5s".
type Duration time.Duration

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// An event is the outcome of an arrival.
type event struct {
	at      int64 // when the request started or was denied
	allowed bool
}

// Compare plays the same arrivals, in order of time, to each candidate, which is one limit or
// layers on one key. The load ends at end. Stretch is the time in which Most is counted; 0 means
// the longest period of the limits, or with limits in flight alone the longest request.
func Compare(candidates [][]stint.Limit, arrivals []simulate.Request, end int64, stretch time.Duration) (*Comparison, error) {
	if len(arrivals) == 0 {
		return nil, errors.New("no requests to compare on: write one a line to standard input, or describe them with --arrivals")
	}
	if stretch == 0 {
		stretch = longest(candidates, arrivals)
	}
	c := &Comparison{Requests: len(arrivals), Stretch: Duration(stretch)}
	for _, one := range candidates {
		row, err := run(one, arrivals, stretch)
		if err != nil {
			return nil, err
		}
		for _, e := range row.events {
			end = max(end, e.at)
		}
		c.Rows = append(c.Rows, row)
	}
	c.columns(arrivals, end)
	return c, nil
}

// columns counts what happened up to end by columns. They begin at the epoch, or with the
// column of the first arrival where half of them would otherwise be empty.
func (c *Comparison) columns(arrivals []simulate.Request, end int64) {
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
	for _, r := range c.Rows {
		r.count(n, start, column)
	}
}

// happens reports whether any request started or was denied at a moment.
func (c *Comparison) happens(at int64) bool {
	return slices.ContainsFunc(c.Rows, func(r *Candidate) bool {
		return slices.ContainsFunc(r.events, func(e event) bool { return e.at == at })
	})
}

func longest(candidates [][]stint.Limit, arrivals []simulate.Request) (d time.Duration) {
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
func run(limits []stint.Limit, arrivals []simulate.Request, stretch time.Duration) (*Candidate, error) {
	c := &Candidate{Row: Row{MostIn: int64(stretch)}, events: make([]event, 0, len(arrivals))}
	for _, l := range limits {
		c.Limits = append(c.Limits, l.String())
	}
	runner, err := simulate.InMemory(c.Limits, 0)
	if err != nil {
		return nil, err
	}
	for _, q := range arrivals {
		d, err := runner.Take(q)
		if err != nil {
			return nil, err
		}
		c.Add(q, d)
		c.events = append(c.events, event{min(addUpTo(q.At, int64(d.Delay)), maxTime), d.Allowed})
	}
	return c, nil
}

// count counts the events in n columns.
func (r *Candidate) count(n int, start, column int64) {
	r.Passes, r.Denials = make([]int64, n), make([]int64, n)
	for _, e := range r.events {
		if e.allowed {
			r.Passes[(e.at-start)/column]++
		} else {
			r.Denials[(e.at-start)/column]++
		}
	}
}

// columnFor returns the shortest round length, in nanoseconds, of which at most mostColumns cover a
// span wherever it begins.
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
