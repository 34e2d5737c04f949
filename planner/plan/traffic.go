package plan

import (
	"cmp"
	"slices"
	"time"
)

// spans are the spans of clock time in which traffic is counted.
var spans = [...]time.Duration{time.Second, time.Minute, time.Hour}

var spanNames = [...]string{"second", "minute", "hour"}

// A count is how many requests came in the present second, minute or hour of the clock, and the
// most in any.
type count struct {
	at   uint32 // the number of the present second, minute or hour
	now  uint32
	most uint32
}

func (c *count) add(at uint32) {
	if c.at != at {
		c.at, c.now = at, 0
	}
	if c.now++; c.now > c.most {
		c.most = c.now
	}
}

// A sender is the traffic of one client.
type sender struct {
	requests uint64
	counts   [len(spans)]count
}

// traffic counts what clients sent. It is a sink.
type traffic struct {
	senders []sender
	series  series
	all     [len(spans)]busiest
	units   int64
}

// busiest is the busiest second, minute or hour of all clients together.
type busiest struct {
	at, now  int64
	most     int64
	mostThen int64 // when most came
}

func (b *busiest) add(at int64) {
	if b.at != at {
		b.at, b.now = at, 0
	}
	if b.now++; b.now > b.most {
		b.most, b.mostThen = b.now, at
	}
}

func (t *traffic) add(events []event) {
	t.series.add(events)
	second, minute, hour := int64(-1), int64(0), int64(0)
	for i := range events {
		e := &events[i]
		for int(e.id) >= len(t.senders) {
			t.senders = append(t.senders, sender{})
		}
		if s := e.at / 1e9; s != second {
			second, minute, hour = s, s/60, s/3600
		}
		t.units += e.cost
		s := &t.senders[e.id]
		s.requests++
		s.counts[0].add(uint32(second))
		s.counts[1].add(uint32(minute))
		s.counts[2].add(uint32(hour))
		t.all[0].add(second)
		t.all[1].add(minute)
		t.all[2].add(hour)
	}
}

// quantiles are the quantiles that are reported, beside the maximum.
var quantiles = [...]float64{0.5, 0.9, 0.99, 0.999}

// A Distribution says how the clients' busiest seconds, minutes or hours are distributed: half of
// the clients never sent more than P50 in one.
type Distribution struct {
	Per  string `json:"per"`
	P50  int64  `json:"p50"`
	P90  int64  `json:"p90"`
	P99  int64  `json:"p99"`
	P999 int64  `json:"p99.9"`
	Max  int64  `json:"max"`
}

// A Busy is the busiest second, minute or hour of all clients together.
type Busy struct {
	Per      string    `json:"per"`
	At       time.Time `json:"at"`
	Requests int64     `json:"requests"`
}

// A Heavy is a client that sent many requests.
type Heavy struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	// Second, Minute and Hour are the most it sent in one of the clock.
	Second int64 `json:"second"`
	Minute int64 `json:"minute"`
	Hour   int64 `json:"hour"`
}

// A Traffic is what clients sent, without any limit.
type Traffic struct {
	Requests int64 `json:"requests"`
	// Units is the sum of costs; 0 if each request costs 1.
	Units    int64          `json:"units,omitempty"`
	Clients  int64          `json:"clients"`
	From     time.Time      `json:"from,omitzero"`
	To       time.Time      `json:"to,omitzero"`
	Busiest  []Busy         `json:"busiest"`
	Clocks   []Distribution `json:"distribution"`
	Heaviest []Heavy        `json:"heaviest"`
	// Outliers are clients whose busiest minute is far above that of the others.
	Outliers []Heavy `json:"outliers"`
	// Start, Bar and Bars are the requests over time: when the first bar begins, its length, and
	// the counts.
	Start time.Time `json:"start"`
	Bar   Duration  `json:"bar"`
	Bars  []int64   `json:"bars"`
}

// mostHeavy is how many clients are named.
const mostHeavy = 10

// ranked returns the clients by how much they sent. Of equals, the client seen first is first.
func (t *traffic) ranked() []uint32 {
	var ids []uint32
	for id := range t.senders {
		if t.senders[id].requests > 0 {
			ids = append(ids, uint32(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b uint32) int {
		return cmp.Compare(t.senders[b].requests, t.senders[a].requests)
	})
	return ids
}

// report says what happened.
func (t *traffic) report(r *reading) *Traffic {
	ids := t.ranked()
	all := &Traffic{
		Requests: r.requests, Clients: int64(len(ids)),
		Busiest: []Busy{}, Clocks: []Distribution{}, Heaviest: []Heavy{}, Outliers: []Heavy{}, Bars: []int64{},
	}
	if r.extraction.cost >= 0 {
		all.Units = t.units
	}
	if len(ids) == 0 {
		return all
	}
	all.From, all.To = r.options.when(r.first), r.options.when(r.last)
	for i, span := range spans {
		all.Busiest = append(all.Busiest, Busy{spanNames[i], r.options.when(t.all[i].mostThen * int64(span)), t.all[i].most})
		all.Clocks = append(all.Clocks, t.distribution(ids, i))
	}
	for _, id := range ids[:min(len(ids), mostHeavy)] {
		all.Heaviest = append(all.Heaviest, t.heavy(r, id))
	}
	all.Outliers = t.outliers(r, ids, all.Clocks[1])
	bars := t.series.timeline
	all.Bar, all.Bars = Duration(widths[bars.width]), bars.bars
	all.Start = r.options.when(bars.base * int64(widths[bars.width]))
	return all
}

func (t *traffic) heavy(r *reading, id uint32) Heavy {
	s := &t.senders[id]
	return Heavy{
		r.extraction.name(r.clients.key(id)), int64(s.requests),
		int64(s.counts[0].most), int64(s.counts[1].most), int64(s.counts[2].most),
	}
}

func (t *traffic) distribution(ids []uint32, span int) Distribution {
	values := make([]int64, len(ids))
	for i, id := range ids {
		values[i] = int64(t.senders[id].counts[span].most)
	}
	slices.Sort(values)
	var q [len(quantiles)]int64
	for i, share := range quantiles {
		q[i] = values[rank(len(values), share)]
	}
	return Distribution{spanNames[span], q[0], q[1], q[2], q[3], values[len(values)-1]}
}

// rank returns the index of a quantile in n sorted values: the least value that the given share of
// values does not exceed.
func rank(n int, share float64) int {
	const parts = 1000 // quantiles are whole thousandths
	thousandths := int(share*parts + 0.5)
	return max((n*thousandths+parts-1)/parts-1, 0)
}

// Thresholds for outliers: there must be enough clients to say what is usual, and one must be far
// from it.
const (
	outlierClients = 100
	outlierFactor  = 10
)

// outliers returns the clients whose busiest minute is more than ten times that of 99 in 100
// clients.
func (t *traffic) outliers(r *reading, ids []uint32, minutes Distribution) []Heavy {
	all := []Heavy{}
	if len(ids) < outlierClients {
		return all
	}
	for _, id := range ids {
		if int64(t.senders[id].counts[1].most) > outlierFactor*minutes.P99 && len(all) < mostHeavy {
			all = append(all, t.heavy(r, id))
		}
	}
	return all
}

// sent returns how many requests a client sent, or 0 if that was not counted.
func (t *traffic) sent(id uint32) int64 {
	if int(id) >= len(t.senders) {
		return 0
	}
	return int64(t.senders[id].requests)
}
