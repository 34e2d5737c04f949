package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A ledger decides several limits, each on its own. It is a sink. The states of one client are
// adjacent in memory, so that the tenth limit costs less than the first. A client's first word has
// a bit for each limit that ever denied it; the words of each meter follow.
type ledger struct {
	replays []*replay
	stride  int
	states  [][]uint64 // pages of clients' words
}

func newLedger(replays ...*replay) *ledger {
	l := &ledger{replays: replays, stride: 1}
	for i, r := range replays {
		r.bit = 1 << (i % 64)
		if r.logs == nil {
			r.offset = l.stride
			l.stride += r.meter.Words()
		}
	}
	return l
}

func (l *ledger) add(events []event) {
	for _, r := range l.replays {
		r.total += int64(len(events))
	}
	for i := range events {
		e := &events[i]
		s := l.state(e.id)
		for _, r := range l.replays {
			r.decide(e, s)
		}
	}
}

// state returns the words of a client.
func (l *ledger) state(id uint32) []uint64 {
	page := int(id >> pageBits)
	if page >= len(l.states) || l.states[page] == nil {
		l.grow(page)
	}
	i := int(id%pageSize) * l.stride
	return l.states[page][i : i+l.stride : i+l.stride]
}

func (l *ledger) grow(page int) {
	for page >= len(l.states) {
		l.states = append(l.states, nil)
	}
	l.states[page] = make([]uint64, pageSize*l.stride)
}

// bytes returns how much memory the states take.
func (l *ledger) bytes() (n int) {
	for _, page := range l.states {
		n += 8 * len(page)
	}
	for _, r := range l.replays {
		n += cap(r.denied)*int(unsafe.Sizeof(refused{})) + 4*r.outs.len()
		if r.logs != nil {
			r.logs.each(func(_ uint32, state *[]uint64) { n += 24 + 8*cap(*state) })
		}
	}
	return n
}

// A replay is one limit, under which the engine decides every request.
type replay struct {
	text   string // as it was given
	meter  *meter.Meter
	offset int              // index of its words in those of a client
	bit    uint64           // in a client's first word: this limit has denied the client
	logs   *pages[[]uint64] // the states of a log, which grow; nil for other algorithms
	outs   pages[uint32]    // by client: index in denied, or 0
	denied []refused        // from index 1
	first  event            // the first denied request
	units  int64            // units denied
	total  int64            // requests
	sum    int64            // requests denied
	bars   timeline         // requests denied over time
}

// A refused is what was denied to one client.
type refused struct {
	id       uint32
	out      bool  // its last request was denied
	requests int64 // requests denied
	first    int64
	since    int64 // the first of the denials in a row
	longest  int64 // the longest time in which it was denied without a break
}

func newReplay(text string) (*replay, error) {
	limit, err := stint.Parse(text)
	if err != nil {
		return nil, err
	}
	if limit.Ban() > 0 {
		return nil, fmt.Errorf("limit %q: a plan tries limits without bans; stint rehearse --log tries rules with them", text)
	}
	return replayOf(text, limit)
}

func replayOf(text string, limit stint.Limit) (*replay, error) {
	m, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	r := &replay{text: text, meter: m, denied: make([]refused, 1)}
	if limit.Algorithm().KeepsLog() {
		r.logs = new(pages[[]uint64])
	}
	return r, nil
}

// decide decides one request; states are those of the client.
func (r *replay) decide(e *event, states []uint64) (ok bool) {
	if r.logs == nil {
		ok = r.meter.Allow(states[r.offset:], e.at, e.cost)
	} else {
		state := r.logs.at(e.id)
		room(r.meter, state, e.at, e.cost)
		ok = r.meter.Allow(*state, e.at, e.cost)
	}
	if !ok || states[0]&r.bit != 0 {
		states[0] |= r.bit
		r.noteDenied(e, ok)
	}
	return ok
}

// noteDenied records a decision on a client that is denied now or was before.
func (r *replay) noteDenied(e *event, ok bool) {
	if out := r.outs.at(e.id); !ok || *out != 0 {
		*out = r.note(e, *out, ok)
	}
}

// room makes sure that a log can record a charge exactly.
func room(m *meter.Meter, state *[]uint64, at, cost int64) {
	if *state == nil {
		*state = make([]uint64, m.Words())
	}
	if need := m.Room(*state, at, cost); need > len(*state) {
		more := make([]uint64, max(need, 2*len(*state)))
		m.Move(more, *state)
		*state = more
	}
}

// note records a decision and returns the client's index in denied.
func (r *replay) note(e *event, at uint32, ok bool) uint32 {
	if at == 0 {
		at = uint32(len(r.denied))
		r.denied = append(r.denied, refused{id: e.id, first: e.at})
	}
	d := &r.denied[at]
	if ok {
		d.out = false
		return at
	}
	if !d.out {
		d.out, d.since = true, e.at
	}
	d.longest = max(d.longest, e.at-d.since)
	d.requests++
	if r.sum == 0 {
		r.first = *e
	}
	r.sum++
	r.units += e.cost
	r.bars.add(e.at)
	return at
}

// A Result is what a limit would have done.
type Result struct {
	// Limit is the limit as it was given.
	Limit    string `json:"limit"`
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Allowed  int64  `json:"allowed"`
	Denied   int64  `json:"denied"`
	// UnitsDenied is the sum of the denied costs, where requests have costs.
	UnitsDenied int64 `json:"units_denied,omitempty"`
	Clients     int64 `json:"clients"`
	// ClientsDenied is how many clients were ever denied a request.
	ClientsDenied int64 `json:"clients_denied"`
	// FirstDenial is when the first request was denied, in RFC 3339, and FirstDenied the client.
	FirstDenial *string `json:"first_denial"`
	FirstDenied string  `json:"first_denied,omitempty"`
	// LongestLockout is the longest time in which everything that one client sent was denied, from
	// the first denial to the last before a request passed.
	LongestLockout Duration `json:"longest_lockout"`
	LockedOut      string   `json:"locked_out,omitempty"`
	// Top are the clients that were denied most.
	Top []Denied `json:"top"`

	bars  []int64   // requests denied over time, by the bars of the traffic
	first time.Time // the first denial, in the zone of the report
}

// When returns in words when the first request was denied, or "" if none was.
func (res *Result) When() string {
	if res.FirstDenial == nil {
		return ""
	}
	return stamp(res.first)
}

// A Denied is a client that was denied a request.
type Denied struct {
	Key      string   `json:"key"`
	Requests int64    `json:"requests,omitempty"`
	Denied   int64    `json:"denied"`
	First    string   `json:"first_denial"`
	Lockout  Duration `json:"longest_lockout"`
	// Evidence is what the client did; nil if that was not looked up.
	Evidence *Evidence `json:"evidence,omitempty"`

	id uint32
}

// reportData is what a report needs to know of clients.
type reportData struct {
	options *Options
	series  *timeline
	clients int64
	weighed bool // requests have costs
	name    func(id uint32) string
	sent    func(id uint32) int64
}

// report says what the limit did.
func (r *replay) report(t reportData) Result {
	res := Result{
		Limit: r.text, Key: t.options.keyText(), Requests: r.total,
		Denied: r.sum, Allowed: r.total - r.sum,
		Clients: t.clients, ClientsDenied: int64(len(r.denied) - 1), Top: []Denied{},
		bars: r.bars.fit(t.series),
	}
	if t.weighed {
		res.UnitsDenied = r.units
	}
	if r.sum == 0 {
		return res
	}
	first := t.options.text(r.first.at)
	res.FirstDenial, res.FirstDenied, res.first = &first, t.name(r.first.id), t.options.when(r.first.at)
	worst := slices.Clone(r.denied[1:])
	slices.SortStableFunc(worst, func(a, b refused) int { return cmp.Compare(b.requests, a.requests) })
	for i, d := range worst {
		if i < mostHeavy {
			res.Top = append(res.Top, Denied{
				Key: t.name(d.id), Requests: t.sent(d.id), Denied: d.requests, First: t.options.text(d.first), Lockout: Duration(d.longest), id: d.id,
			})
		}
		if Duration(d.longest) > res.LongestLockout {
			res.LongestLockout, res.LockedOut = Duration(d.longest), t.name(d.id)
		}
	}
	return res
}
