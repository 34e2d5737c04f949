package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// compared are the algorithms that a comparison puts side by side, the exact
// log first: the others are measured by it.
var compared = []meter.Algorithm{
	meter.SlidingLog, meter.SlidingSubWindows, meter.SlidingCounter, meter.FixedWindow,
	meter.GCRA, meter.TokenBucketInterval, meter.LeakyQueue,
}

// A comparison is one count and period under each algorithm: a sink.
type comparison struct {
	text string
	rows []*row
	pass []bool // what the exact log said of each event
}

// A row is one algorithm.
type row struct {
	*replay
	ledger   *ledger
	admitted *meter.Meter // a log that is never full
	windows  *pages[[]uint64]
	count    int64

	differ, above, below int64
	most                 int64
	mostBy               uint32
	mostAt               int64
}

// never is a count that no log reaches.
const never = 1 << 50

// newComparison takes the count, period and burst of a limit.
func newComparison(text string) (*comparison, error) {
	given, err := stint.Parse(text)
	if err != nil {
		return nil, err
	}
	if unit, _ := given.Calendar(); unit != "" {
		return nil, fmt.Errorf("limit %q goes by the calendar: only fixed_window can, so there is nothing to compare", text)
	}
	if given.Count() > mostLog {
		return nil, fmt.Errorf("limit %q: a log of more than %d requests by client is not kept", text, mostLog)
	}
	c := &comparison{text: text}
	for _, kind := range compared {
		limit := stint.New(given.Count(), given.Period()).WithAlgorithm(kind)
		if b := given.Burst(); b > 0 && limit.Burst() > 0 {
			limit = limit.WithBurst(b)
		}
		r, err := replayOf(limit.String(), limit)
		if err != nil {
			return nil, err
		}
		admitted, err := stint.New(never, given.Period()).WithAlgorithm(meter.SlidingLog).Meter()
		if err != nil {
			return nil, err
		}
		c.rows = append(c.rows, &row{replay: r, ledger: newLedger(r), admitted: admitted, windows: new(pages[[]uint64]), count: given.Count()})
	}
	return c, nil
}

// mostLog is the greatest count that is compared.
const mostLog = 1_000_000

func (c *comparison) add(events []event) {
	c.pass = c.pass[:0]
	for i, r := range c.rows {
		r.total += int64(len(events))
		for j := range events {
			ok := r.judge(&events[j])
			if i == 0 {
				c.pass = append(c.pass, ok)
			} else if ok != c.pass[j] {
				r.differ++
			}
		}
	}
}

// judge decides a request and holds the decision against what has passed in
// the last period.
func (r *row) judge(e *event) bool {
	window := r.windows.at(e.id)
	room(r.admitted, window, e.at, e.cost)
	before := never - r.admitted.Answer(*window, e.at, 0, true).Remaining
	starts := e.at
	state := r.ledger.state(e.id)
	if r.meter.Algorithm() == meter.LeakyQueue {
		starts += int64(r.meter.Delay(state[r.offset:], e.at, e.cost))
	}
	ok := r.decide(e, state)
	full := before+e.cost > r.count
	switch {
	case !ok && !full:
		r.below++
	case ok && full:
		r.above++
	}
	if !ok {
		return false
	}
	room(r.admitted, window, starts, e.cost)
	r.admitted.Charge(*window, starts, e.cost)
	if now := never - r.admitted.Answer(*window, starts, 0, true).Remaining; now > r.most {
		r.most, r.mostBy, r.mostAt = now, e.id, starts
	}
	return true
}

// A Comparison is the same count and period under each algorithm.
type Comparison struct {
	// Limit is as it was given.
	Limit string `json:"limit"`
	Rows  []Row  `json:"rows"`
}

// A Row is what one algorithm would have done.
type Row struct {
	Limit         string `json:"limit"`
	Kind          string `json:"kind"`
	Denied        int64  `json:"denied"`
	ClientsDenied int64  `json:"clients_denied"`
	// Most is the most units of one client that started within any period,
	// by whom, and when the last of them did.
	Most   int64     `json:"most"`
	MostBy string    `json:"most_by,omitempty"`
	MostAt time.Time `json:"most_at,omitzero"`
	// Differ is how many requests the exact log decided otherwise.
	Differ int64 `json:"differ"`
	// Above is how many passed though the last period was full, and Below how
	// many were denied though it had room, by what this algorithm itself had
	// let through.
	Above int64 `json:"above"`
	Below int64 `json:"below"`
}

func (c *comparison) report(r *reading) Comparison {
	all := Comparison{Limit: c.text}
	for _, row := range c.rows {
		out := Row{
			Limit: row.text, Kind: row.meter.Algorithm().String(),
			Denied: row.sum, ClientsDenied: int64(len(row.denied) - 1),
			Most: row.most, Differ: row.differ, Above: row.above, Below: row.below,
		}
		if row.most > 0 {
			out.MostBy, out.MostAt = r.name(row.mostBy), r.options.when(row.mostAt)
		}
		all.Rows = append(all.Rows, out)
	}
	return all
}

// Exact returns the row of the exact log.
func (c *Comparison) Exact() *Row { return &c.Rows[0] }

var errNothing = errors.New("no requests")
