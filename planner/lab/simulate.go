package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/planner/trial"
)

// An Answer is the result of the arrivals under each limit. Times and waits are nanoseconds; times
// count from the start. Requests and columns are numbered from 0.
type Answer struct {
	Horizon int64 `json:"horizon"`
	// Columns is the number of columns into which the time is cut, at most one for each nanosecond.
	// Column i begins at the first nanosecond at or after i·Horizon/Columns.
	Columns int64 `json:"columns"`
	// Requests is how many requests are sent. Under the shapes hammer and polite it is how many the
	// client wants to send, and each row has the tries.
	Requests int      `json:"requests"`
	Clients  []string `json:"clients"`
	// At, Cost and Who say when each request was sent, at which cost and by which client. Cost is
	// left out where all costs are 1, Who where there is one client, and At where each row has its
	// own.
	At   []int64 `json:"at,omitempty"`
	Cost []int64 `json:"cost,omitempty"`
	Who  []int   `json:"who,omitempty"`
	Rows []*Row  `json:"rows"`
	Why  *Why    `json:"why,omitempty"`
	Copy *Copy   `json:"copy,omitempty"`
}

// A Row is the result of one limit.
type Row struct {
	Limit    string `json:"limit"` // canonical text
	Kind     string `json:"kind"`
	Capacity int64  `json:"capacity"` // the most that can pass at one instant
	// MostIn is the period of the limit. For a limit in flight it is how long a request lasts, so
	// that Most is the number of requests in flight at once.
	trial.Row
	// Promised is what the text of the limit lets one expect of Most: its count, and for buckets
	// also the burst.
	Promised int64 `json:"promised"`
	// ByClient has the totals of each client; it is left out where there is one client.
	ByClient []trial.Tally `json:"by_client,omitempty"`
	Columns  Columns       `json:"columns"`
	// Each has the verdict on each request; it is nil unless the request asks for it.
	Each *Each `json:"each,omitempty"`

	limit stint.Limit
	sent  *Each
}

// Columns are the results by column; see [Answer.Columns].
type Columns struct {
	// Passed, Delayed and Denied count the requests that arrived in each column.
	Passed  []int64 `json:"passed"`
	Delayed []int64 `json:"delayed"`
	Denied  []int64 `json:"denied"`
	// First is the first request of each column, or -1, and FirstDenied the first denied one.
	First       []int `json:"first"`
	FirstDenied []int `json:"first_denied"`
	// Low and High are the least and the most units that the watched client had in use, or in
	// flight, at most the capacity.
	Low  []int64 `json:"low"`
	High []int64 `json:"high"`
	// Remaining is how many requests of cost 1 would have passed at the last nanosecond of each
	// column, and RetryAfter how long the next one would have waited.
	Remaining  []int64 `json:"remaining"`
	RetryAfter []int64 `json:"retry_after"`
}

// Each has one letter or number for each request.
type Each struct {
	// Verdicts has p for passed, w for passed after a wait, d for denied.
	Verdicts string `json:"verdicts"`
	// Before is how many units were in use when the request came, and
	// Remaining how many requests of cost 1 would still have passed after it.
	Before    []int64 `json:"before"`
	Remaining []int64 `json:"remaining"`
	// RetryAfter is 0 for a request that passed and -1 for never. Delay is left out where no
	// request was delayed.
	RetryAfter []int64 `json:"retry_after"`
	Delay      []int64 `json:"delay,omitempty"`
	// At, Cost and Who are there where the requests of the row are its own.
	At []int64 `json:"at,omitempty"`

	who  []int
	cost []int64
}

// Simulate plays the arrivals to each limit. The error says what is wrong with the request, or is
// the context's.
func Simulate(ctx context.Context, r *Request) (*Answer, error) {
	limits, err := r.limits()
	if err != nil {
		return nil, err
	}
	horizon, err := r.horizon()
	if err != nil {
		return nil, err
	}
	columns, err := r.columns()
	if err != nil {
		return nil, err
	}
	t, err := r.Arrivals.traffic(horizon)
	if err != nil {
		return nil, err
	}
	if t.lasts, err = r.lasts(limits); err != nil {
		return nil, err
	}
	watch := 0
	if r.Watch != "" {
		if watch = slices.Index(t.clients, r.Watch); watch < 0 {
			return nil, fmt.Errorf("watch: there is no client %q", clip(r.Watch))
		}
	}
	a := &Answer{Horizon: t.horizon, Columns: min(columns, t.horizon), Requests: len(t.sends), Clients: t.clients}
	if a.Rows, err = runAll(ctx, limits, t, watch, a.Columns); err != nil {
		return nil, err
	}
	if r.Each == nil || *r.Each {
		a.each(t)
	}
	return a, a.asked(ctx, r, t)
}

// runAll plays the traffic to each limit, to all at once unless simulations make pauses.
func runAll(ctx context.Context, limits []stint.Limit, t *traffic, watch int, columns int64) ([]*Row, error) {
	rows, errs := make([]*Row, len(limits)), make([]error, len(limits))
	var all sync.WaitGroup
	for i, one := range limits {
		if slicesOf(ctx) != nil {
			rows[i], errs[i] = run(ctx, one, t, watch, columns)
			continue
		}
		all.Go(func() { rows[i], errs[i] = run(ctx, one, t, watch, columns) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// each adds the requests to the answer.
func (a *Answer) each(t *traffic) {
	for _, row := range a.Rows {
		each := *row.sent
		if t.retry == 0 {
			each.At = nil
		}
		if row.Delayed == 0 {
			each.Delay = nil
		}
		row.Each = &each
	}
	if t.retry != 0 {
		return
	}
	costs, whos := false, false
	for _, s := range t.sends {
		a.At, a.Cost, a.Who = append(a.At, s.at), append(a.Cost, s.cost), append(a.Who, s.who)
		costs, whos = costs || s.cost != 1, whos || s.who != 0
	}
	if !costs {
		a.Cost = nil
	}
	if !whos {
		a.Who = nil
	}
}

// asked adds the explanation and the copy that the request asks for.
func (a *Answer) asked(ctx context.Context, r *Request, t *traffic) (err error) {
	if w := r.Why; w != nil {
		if w.Limit < 0 || w.Limit >= len(a.Rows) {
			return fmt.Errorf("why.limit: %d, want from 0 to %d", w.Limit, len(a.Rows)-1)
		}
		row := a.Rows[w.Limit]
		if w.Request < 0 || w.Request >= row.Requests {
			return fmt.Errorf("why.request: %d, want from 0 to %d", w.Request, row.Requests-1)
		}
		if a.Why, err = row.why(ctx, *w, t); err != nil {
			return err
		}
	}
	if c := r.Copy; c != nil {
		if *c < 0 || *c >= len(a.Rows) {
			return fmt.Errorf("copy: %d, want from 0 to %d", *c, len(a.Rows)-1)
		}
		a.Copy = a.Rows[*c].copy(t)
		a.Copy.Limit = *c
	}
	return nil
}

// A runner plays traffic to one limit and fills its row.
type runner struct {
	*player
	ctx     context.Context
	row     *Row
	watch   int   // the client whose state the columns show
	columns int64 // the number of columns
	horizon int64
	next    int64  // the time at which the next column begins
	letter  []byte // the verdict on each request
}

// run plays the traffic to one limit.
func run(ctx context.Context, l stint.Limit, t *traffic, watch int, columns int64) (row *Row, err error) {
	row = &Row{Limit: l.String(), Kind: l.Algorithm().String(), Capacity: l.Capacity(), Promised: promised(l), limit: l, sent: newEach(len(t.sends))}
	if row.MostIn = int64(l.Period()); l.InFlight() {
		row.Kind, row.Capacity, row.MostIn = l.ID(), l.Count(), t.lasts
	}
	if len(t.clients) > 1 {
		row.ByClient = make([]trial.Tally, len(t.clients))
	}
	r := &runner{ctx: ctx, row: row, watch: watch, columns: columns, horizon: t.horizon}
	if r.player, err = newPlayer(l, t); err == nil {
		err = r.play(t)
	}
	if err != nil {
		return nil, err
	}
	r.columnsUpTo(t.horizon)
	r.closeColumn(t.horizon - 1)
	row.sent.Verdicts = string(r.letter)
	return row, nil
}

// play plays requests that come at their own times, or those of one client that waits for the
// verdict on each.
func (r *runner) play(t *traffic) error {
	client := &trial.Client{
		Take: func(q simulate.Request) (stint.Decision, error) { return r.step(send{at: q.At, cost: q.Cost}) },
		Retry: func(_ int, _ simulate.Request, d stint.Decision) (int64, error) {
			if t.retry == retryAfter {
				return int64(d.RetryAfter), nil // RetryAfter is below 0 for never
			}
			return t.retry, nil
		},
		Until: t.horizon,
	}
	for _, s := range t.sends {
		var err error
		if t.retry == 0 {
			_, err = r.step(s)
		} else {
			_, err = client.Send(simulate.Request{At: s.at, Cost: s.cost})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newEach returns an Each with room for n requests.
func newEach(n int) *Each {
	values := make([]int64, 6*n)
	list := func(i int) []int64 { return values[i*n : i*n : (i+1)*n] }
	return &Each{Before: list(0), Remaining: list(1), RetryAfter: list(2), Delay: list(3), At: list(4), cost: list(5), who: make([]int, 0, n)}
}

// step decides one request.
func (r *runner) step(s send) (stint.Decision, error) {
	each, c := r.row.sent, &r.row.Columns
	i := len(r.letter)
	if i == MaxArrivals {
		return stint.Decision{}, fmt.Errorf("arrivals: the client tries more than %d times: a longer gap or a shorter horizon", MaxArrivals)
	}
	if i%32 == 0 {
		slicesOf(r.ctx).Pause()
		if err := r.ctx.Err(); err != nil {
			return stint.Decision{}, err
		}
	}
	r.columnsUpTo(s.at + 1)
	q, before, d := r.take(s)
	used := r.row.Capacity - before.Remaining
	if now := len(c.Low) - 1; q.Key == r.t.key(r.watch) {
		after := r.row.Capacity - d.Remaining
		c.Low[now], c.High[now] = min(c.Low[now], used, after), max(c.High[now], used, after)
	}
	each.At, each.cost, each.who = append(each.At, s.at), append(each.cost, s.cost), append(each.who, s.who)
	each.Before, each.Remaining = append(each.Before, used), append(each.Remaining, d.Remaining)
	each.RetryAfter, each.Delay = append(each.RetryAfter, int64(d.RetryAfter)), append(each.Delay, int64(d.Delay))
	if r.row.Add(q, d); r.row.ByClient != nil {
		r.row.ByClient[s.who].Add(d)
	}
	r.letter = append(r.letter, c.count(i, d))
	return d, nil
}

// used returns how many units the watched client has in use at a moment.
func (r *runner) used(at int64) int64 {
	return r.row.Capacity - r.peek(send{at, 1, r.watch}).Remaining
}

// count adds a decision to the last column, and returns the verdict's letter.
func (c *Columns) count(i int, d stint.Decision) byte {
	now := len(c.Passed) - 1
	if c.First[now] < 0 {
		c.First[now] = i
	}
	switch {
	case !d.Allowed:
		c.Denied[now]++
		if c.FirstDenied[now] < 0 {
			c.FirstDenied[now] = i
		}
		return 'd'
	case d.Delay > 0:
		c.Delayed[now]++
		return 'w'
	}
	c.Passed[now]++
	return 'p'
}

// columnsUpTo closes the columns that end before a time, and opens the column of the nanosecond
// before it.
func (r *runner) columnsUpTo(end int64) {
	c := &r.row.Columns
	for r.next < end {
		if len(c.Low) > 0 {
			r.closeColumn(r.next - 1)
		}
		used := r.used(r.next)
		c.Low, c.High = append(c.Low, used), append(c.High, used)
		c.Passed, c.Delayed, c.Denied = append(c.Passed, 0), append(c.Delayed, 0), append(c.Denied, 0)
		c.First, c.FirstDenied = append(c.First, -1), append(c.FirstDenied, -1)
		r.next = quotient(int64(len(c.Low)), r.horizon, r.columns, true)
	}
}

// closeColumn records the state of the watched key at the end of a column.
func (r *runner) closeColumn(last int64) {
	c := &r.row.Columns
	d := r.peek(send{last, 1, r.watch})
	used, now := d.Limit-d.Remaining, len(c.Low)-1
	c.Low[now], c.High[now] = min(c.Low[now], used), max(c.High[now], used)
	c.Remaining, c.RetryAfter = append(c.Remaining, d.Remaining), append(c.RetryAfter, int64(d.RetryAfter))
}

// promised returns how many units the text of a limit lets one expect within a period: the count,
// and for a bucket also the burst.
func promised(l stint.Limit) int64 {
	if a := l.Algorithm(); !l.InFlight() && a.Takes(meter.Burst) && !a.Queues() {
		return plus(l.Count(), l.Burst())
	}
	return l.Count()
}
