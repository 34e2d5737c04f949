package lab

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// These methods explain a verdict, one for each kind. They take values from the engine's answer
// where it has them. Other values are counted from the charges, as docs/SEMANTICS.md defines the
// kind.

// bucket: backlog + c·T ≤ B·T.
func (m *moment) bucket() {
	backlog, needs, room := int64(m.before.ResetAfter), m.stretch(m.cost), m.stretch(m.d.Limit)
	m.moment("tat", "full again at (the theoretical arrival time, TAT)", plus(m.at, backlog))
	m.span("backlog", "backlog: TAT − now", backlog)
	m.span("needs", fmt.Sprintf("it needs cost × %s", m.pace()), needs)
	m.span("room", fmt.Sprintf("room: burst × %s", m.pace()), room)
	m.unit("there", "tokens that were there", m.before.Remaining)
	m.say("The bucket holds %s and gets one back each %s.", units(m.d.Limit), m.pace())
	if backlog == 0 {
		m.say("It was full when this request came.")
	} else {
		m.say("What was taken before is all back at %s, the theoretical arrival time: %v from now. So %d of %d were there.",
			m.clock(plus(m.at, backlog)), time.Duration(backlog), m.before.Remaining, m.d.Limit)
	}
	m.say("That backlog and the %v that this request needs make %v: %s the room of %v.",
		time.Duration(needs), time.Duration(plus(backlog, needs)), m.verb("within", "more than"), time.Duration(room))
}

// interval: c tokens are there.
func (m *moment) interval() {
	period := int64(m.limit.Period())
	next := m.at - m.at%period + period
	m.unit("there", "tokens that were there", m.before.Remaining)
	m.moment("next_filling", "the next filling", next)
	m.say("The bucket holds %s; %d come at each whole %v, none in between.", units(m.d.Limit), m.limit.Count(), m.limit.Period())
	m.say("%d were there and this request takes %d. More come at %s.", m.before.Remaining, m.cost, m.clock(next))
	if !m.d.Allowed {
		fillings := (int64(m.d.RetryAfter)-(next-m.at))/period + 1
		m.unit("fillings", "fillings until it passes", fillings)
		if fillings > 1 {
			m.say("One filling is not enough: it takes %d.", fillings)
		}
	}
}

// queue: q + (c − 1)·T ≤ B·T, which is a bucket with room for one more request.
func (m *moment) queue() {
	line := int64(m.before.ResetAfter)
	m.span("line", "the line: time until all before it have had their turn", line)
	m.unit("free", "free places", m.before.Remaining)
	m.unit("places", "places: one that starts and those that wait", m.d.Limit)
	m.span("pace", "one starts each", m.stretch(1))
	m.say("One unit starts each %s, and at most %d wait.", m.pace(), m.limit.Burst())
	switch {
	case line == 0:
		m.say("The queue was idle, so this request starts at once.")
	case m.d.Allowed:
		m.say("Those before it need another %v, so it starts at %s.", time.Duration(line), m.clock(plus(m.at, line)))
	default:
		m.say("Those before it need another %v: %d of %d places were free, and this request takes %d.",
			time.Duration(line), m.before.Remaining, m.d.Limit, m.cost)
	}
}

// window: used + c ≤ L.
func (m *moment) window() {
	begin, end := windowOf(m.limit, m.at)
	if m.limit.FromFirst() {
		begin, end = m.ownWindow()
	}
	used := m.tally(begin, end)
	m.moment("window_begin", "the window began", begin)
	m.moment("window_end", "the window ends", end)
	m.unit("used", "counted in it before", used)
	m.unit("count", "the limit", m.limit.Count())
	m.say("The window runs from %s to %s.", m.clock(begin), m.clock(end))
	m.say("It had counted %d of %d; a cost of %d %s.", used, m.limit.Count(), m.cost, m.verb("fits", "does not fit"))
	if !m.d.Allowed {
		m.say("When it ends, the count starts over.")
	}
	m.why.Counted = append(m.why.Counted, Counted{begin, end, used, "this window"})
}

// ownWindow returns the window that the key has, or begins now.
func (m *moment) ownWindow() (begin, end int64) {
	period := int64(m.limit.Period())
	for _, c := range append(m.charges, charge{at: m.at}) {
		if c.at >= end {
			begin, end = c.at, plus(c.at, period)
		}
	}
	return begin, end
}

// windowOf returns the window that holds a moment. The end of a calendar's window is found by
// asking the engine when a charge would be forgotten.
func windowOf(l stint.Limit, at int64) (begin, end int64) {
	if unit, _ := l.Calendar(); unit == "" {
		period := int64(l.Period())
		begin = at - at%period
		return begin, begin + period
	}
	m, err := l.Meter()
	if err != nil {
		panic(err) // unreachable: the limit has decided before
	}
	endOf := func(at int64) int64 {
		a, _ := m.Take(make([]uint64, m.Words()), at, 1)
		return at + int64(a.ResetAfter)
	}
	end = endOf(at)
	longest := min(at, int64(2*l.Period()))
	begin = at - longest + int64(sort.Search(int(longest), func(i int) bool { return endOf(at-longest+int64(i)) == end }))
	return begin, end
}

// log: what counts in (t − W, t], plus c, ≤ L.
func (m *moment) log() {
	period := int64(m.limit.Period())
	used := int64(0)
	var entries []Counted // newest first
	for i := len(m.charges) - 1; i >= 0 && used < m.limit.Count(); i-- {
		c := m.charges[i]
		if c.at <= m.at-period {
			break
		}
		n := min(c.units, m.limit.Count()-used) // a log keeps no more than its newest count units
		used += n
		if k := len(entries) - 1; k >= 0 && entries[k].From == c.at {
			entries[k].Units += n
			continue
		}
		text := fmt.Sprintf("came at %s; counts until %s", m.clock(c.at), m.clock(c.at+period))
		entries = append(entries, Counted{c.at, c.at + period, n, text})
	}
	m.unit("used", fmt.Sprintf("counted in the last %v", m.limit.Period()), used)
	m.unit("count", "the limit", m.limit.Count())
	m.say("In the %v before this request %d of %d had been counted; a cost of %d %s.",
		m.limit.Period(), used, m.limit.Count(), m.cost, m.verb("fits", "does not fit"))
	m.counted(entries)
	if len(entries) > 0 {
		first := entries[len(entries)-1]
		m.moment("first_leaves", "the first of them stops counting", first.To)
		m.say("The oldest of them, from %s, stops counting at %s.", m.clock(first.From), m.clock(first.To))
	}
}

// counter: cur + prev·(W − e)/W + c ≤ L.
func (m *moment) counter() {
	period := int64(m.limit.Period())
	begin, end := windowOf(m.limit, m.at)
	cur, prev := m.tally(begin, end), m.tally(begin-period, begin)
	overlap := new(big.Rat).SetFrac64(end-m.at, period)
	weight := new(big.Rat).Mul(new(big.Rat).SetInt64(prev), overlap)
	total := new(big.Rat).Add(weight, new(big.Rat).SetInt64(cur))
	m.moment("window_begin", "this window began", begin)
	m.unit("current", "counted in this window", cur)
	m.unit("previous", "counted in the window before", prev)
	m.span("overlap", fmt.Sprintf("of it overlaps the last %v", m.limit.Period()), end-m.at)
	m.say("This window, from %s to %s, had counted %d.", m.clock(begin), m.clock(end), cur)
	if begin > 0 {
		m.say("Of the one before, %s %% still overlaps the last %v, so its %d weigh %s.",
			new(big.Rat).Mul(overlap, big.NewRat(100, 1)).FloatString(1), m.limit.Period(), prev, decimal(weight))
	}
	bound := "at most"
	if m.limit.Relaxed() {
		bound = "less than one unit above"
	}
	m.say("Together with this request's %d that makes %s: %s, since it may be %s %d.", m.cost,
		decimal(total.Add(total, new(big.Rat).SetInt64(m.cost))), m.verb("it fits", "too much"), bound, m.limit.Count())
	if begin > 0 {
		m.why.Counted = append(m.why.Counted, Counted{begin - period, begin, prev, "the window before"})
	}
	m.why.Counted = append(m.why.Counted, Counted{begin, end, cur, "this window"})
}

// decimal writes a fraction with at most three decimals, and marks a value that is rounded.
func decimal(x *big.Rat) string {
	text := x.FloatString(3)
	if short, ok := new(big.Rat).SetString(text); !ok || short.Cmp(x) != 0 {
		return "about " + text
	}
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// parts: everything in the parts that overlap the last period, plus c, ≤ L.
func (m *moment) parts() {
	period := int64(m.limit.Period())
	cuts := min(m.limit.Parts(), period)
	begins := func(part int64) int64 { return quotient(part, period, cuts, true) }
	oldest := max(quotient(m.at, cuts, period, false)-cuts, 0)
	used := int64(0)
	var parts []Counted // newest first
	for i := len(m.charges) - 1; i >= 0; i-- {
		c := m.charges[i]
		part := quotient(c.at, cuts, period, false)
		if part < oldest {
			break
		}
		used = plus(used, c.units)
		if k := len(parts) - 1; k >= 0 && parts[k].From == begins(part) {
			parts[k].Units = plus(parts[k].Units, c.units)
			continue
		}
		text := fmt.Sprintf("came from %s to %s; counts until %s", m.clock(begins(part)), m.clock(begins(part+1)), m.clock(begins(part+cuts+1)))
		parts = append(parts, Counted{begins(part), begins(part + 1), c.units, text})
	}
	m.unit("used", "counted in the parts that still count", used)
	m.unit("count", "the limit", m.limit.Count())
	m.unit("parts", "parts of the period", m.limit.Parts())
	m.span("part", "the length of a part", begins(1))
	m.say("The parts that overlap the last %v had counted %d of %d; a cost of %d %s.",
		m.limit.Period(), used, m.limit.Count(), m.cost, m.verb("fits", "does not fit"))
	m.counted(parts)
	if len(parts) > 0 {
		first := parts[len(parts)-1]
		leaves := begins(quotient(first.From, cuts, period, false) + cuts + 1)
		m.moment("first_leaves", "the oldest of them stops counting", leaves)
		m.say("The oldest of them, from %s to %s, stops counting as a whole at %s.", m.clock(first.From), m.clock(first.To), m.clock(leaves))
	}
}

// counted lists what counted, oldest first. The argument is newest first.
func (m *moment) counted(all []Counted) {
	n := min(len(all), mostCounted)
	m.why.More = len(all) - n
	for i := range n {
		m.why.Counted = append(m.why.Counted, all[len(all)-1-i])
	}
}

// quotient returns a·b/c, rounded down or up.
func quotient(a, b, c int64, up bool) int64 {
	x := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	if up {
		x.Add(x, big.NewInt(c-1))
	}
	x.Div(x, big.NewInt(c))
	if !x.IsInt64() {
		return math.MaxInt64
	}
	return x.Int64()
}
