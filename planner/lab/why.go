package lab

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/stint-dev/stint"
)

// A Why explains one verdict in words and numbers.
type Why struct {
	Place
	Client     string `json:"client"`
	At         int64  `json:"at"`
	Cost       int64  `json:"cost"`
	Verdict    string `json:"verdict"` // passed, delayed or denied
	RetryAfter int64  `json:"retry_after"`
	Delay      int64  `json:"delay"`
	// Title is the verdict in one line, Words are sentences, and Facts are the values on which the
	// verdict rests.
	Title string   `json:"title"`
	Words []string `json:"words"`
	Facts []Fact   `json:"facts"`
	// Counted is what counted against the request, the oldest first, and More is how many later
	// entries are left out.
	Counted []Counted `json:"counted,omitempty"`
	More    int       `json:"more,omitempty"`
}

// mostCounted bounds the entries of Counted. The oldest are listed, since they stop counting first.
const mostCounted = 20

// A Fact is a value on which a verdict rests: units, or nanoseconds (times from the start).
type Fact struct {
	Name  string `json:"name"`
	Label string `json:"label"`
	Value int64  `json:"value"`
	Text  string `json:"text"`
}

// Counted is units that counted against a request. They came in [From, To), or, in a log, came at
// From and count until To.
type Counted struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Units int64  `json:"units"`
	Text  string `json:"text"`
}

// A charge is units that were counted at a moment.
type charge struct {
	at, units int64
	request   int // its number, from 0
}

// A moment is one decision and the values on which it rests.
type moment struct {
	limit  stint.Limit
	lasts  int64 // how long each request is in flight, under a limit in flight
	at     int64
	cost   int64
	before stint.Decision // the state of the key before the decision
	d      stint.Decision // the decision
	// charges are those on the key before this decision, in order.
	charges []charge
	why     *Why
}

// why plays the limit again, up to one request, and explains the decision.
func (row *Row) why(ctx context.Context, p Place, t *traffic) (*Why, error) {
	one := sure(newPlayer(row.limit, t)) // the row was made in the same way, without an error
	each, i, m := row.sent, p.Request, row.moment(p, t)
	for j := range i + 1 {
		if j%32 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		if t.key(each.who[j]) != t.key(each.who[i]) {
			continue
		}
		_, m.before, m.d = one.take(send{each.At[j], each.cost[j], each.who[j]})
		if j < i && (m.d.Allowed || row.limit.CountDenied()) && each.cost[j] > 0 {
			m.charges = append(m.charges, charge{each.At[j], each.cost[j], j})
		}
	}
	m.explain()
	return m.why, nil
}

// moment returns a decision with its verdict.
func (row *Row) moment(p Place, t *traffic) *moment {
	each, i := row.sent, p.Request
	m := &moment{limit: row.limit, lasts: t.lasts, at: each.At[i], cost: each.cost[i]}
	w := &Why{
		Place: p, Client: t.clients[each.who[i]], At: m.at, Cost: m.cost,
		RetryAfter: each.RetryAfter[i], Delay: each.Delay[i], Facts: []Fact{},
	}
	switch m.why = w; each.Verdicts[i] {
	case 'd':
		w.Verdict, w.Title = "denied", "Denied at "+m.clock(m.at)
	case 'w':
		w.Verdict, w.Title = "delayed", fmt.Sprintf("Passed at %s, to start %v later", m.clock(m.at), time.Duration(w.Delay))
	default:
		w.Verdict, w.Title = "passed", "Passed at "+m.clock(m.at)
	}
	return m
}

// explain fills in the words and numbers.
func (m *moment) explain() {
	m.unit("cost", "this request's cost", m.cost)
	if m.cost > m.d.Limit {
		m.unit("capacity", "the most that can ever pass at once", m.d.Limit)
		m.say("A cost of %d never passes: at one instant at most %d can, however long it waits.", m.cost, m.d.Limit)
		return
	}
	if m.cost == 0 {
		m.say("A cost of 0 always passes, and takes nothing.")
		return
	}
	switch {
	case m.before.Banned:
		m.say("The key was banned, by a denial before this one: everything is denied until the ban of %v ends.", m.limit.Ban())
	case m.limit.InFlight():
		m.flying()
	default:
		kinds[m.limit.Algorithm()].why(m)
	}
	if m.d.Allowed {
		m.say("After it, %s remained.", units(m.d.Remaining))
		return
	}
	if m.d.Banned && !m.before.Banned {
		m.say("This denial begins a ban of %v.", m.limit.Ban())
	}
	m.span("retry_after", "retry after", int64(m.d.RetryAfter))
	if m.limit.InFlight() {
		return // no wait is known that would help
	}
	m.say("If nothing else comes, it passes at %s: retry after %v.", m.clock(plus(m.at, int64(m.d.RetryAfter))), m.d.RetryAfter)
	if m.limit.CountDenied() {
		m.say("This denial was counted too, as count_denied says.")
	}
}

func (m *moment) say(format string, args ...any) {
	m.why.Words = append(m.why.Words, fmt.Sprintf(format, args...))
}

func (m *moment) unit(name, label string, n int64) {
	m.why.Facts = append(m.why.Facts, Fact{name, label, n, fmt.Sprint(n)})
}

func (m *moment) span(name, label string, ns int64) {
	m.why.Facts = append(m.why.Facts, Fact{name, label, ns, time.Duration(ns).String()})
}

func (m *moment) moment(name, label string, at int64) {
	m.why.Facts = append(m.why.Facts, Fact{name, label, at, m.clock(at)})
}

// clock writes a time: from the start, or by the limit's calendar if it has one.
func (m *moment) clock(at int64) string {
	if _, zone := m.limit.Calendar(); zone != "" {
		if location, err := time.LoadLocation(zone); err == nil {
			return time.Unix(0, at).In(location).Format("2006-01-02 15:04:05.999999999 MST")
		}
	}
	return time.Duration(at).String()
}

// units writes how many requests or units.
func units(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

// verb says that a request fits, or that it does not.
func (m *moment) verb(fits, fitsNot string) string {
	if m.d.Allowed {
		return fits
	}
	return fitsNot
}

// stretch returns the time that n units take, n·W/L, rounded up to whole
// nanoseconds.
func (m *moment) stretch(n int64) int64 {
	return quotient(n, int64(m.limit.Period()), m.limit.Count(), true)
}

// pace writes the time that one unit takes.
func (m *moment) pace() string {
	period, count := int64(m.limit.Period()), m.limit.Count()
	if period%count == 0 {
		return time.Duration(period / count).String()
	}
	return fmt.Sprintf("%v ÷ %d", m.limit.Period(), count)
}

// tally sums the charges in [from, to).
func (m *moment) tally(from, to int64) int64 {
	sum := int64(0)
	for _, c := range m.charges {
		if from <= c.at && c.at < to {
			sum = plus(sum, c.units)
		}
	}
	return sum
}

// plus returns a + b for values from 0 on, at most the greatest int64.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
