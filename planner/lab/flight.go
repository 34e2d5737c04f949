package lab

import (
	"fmt"
	"time"
)

// flying explains a limit in flight: what is in flight + c ≤ the count.
func (m *moment) flying() {
	var holders []Counted // newest first
	next := 0             // the request that ends first
	for i := len(m.charges) - 1; i >= 0; i-- {
		c := m.charges[i]
		end := plus(c.at, m.lasts)
		if end <= m.at {
			break
		}
		next = c.request + 1
		holders = append(holders, Counted{c.at, end, c.units, fmt.Sprintf("request %d came at %s; ends at %s", next, m.clock(c.at), m.clock(end))})
	}
	used := m.limit.Count() - m.before.Remaining
	m.unit("used", "in flight before", used)
	m.unit("count", "the limit", m.limit.Count())
	m.span("lasts", "each request lasts", m.lasts)
	m.say("A request holds its place until it ends, %v after it came.", time.Duration(m.lasts))
	m.say("%d of %d were in flight; a cost of %d %s.", used, m.limit.Count(), m.cost, m.verb("fits", "does not fit"))
	m.counted(holders)
	if next > 0 {
		first := holders[len(holders)-1]
		m.moment("first_ends", "the first of them ends", first.To)
		m.say("The first of them to end is request %d, at %s.", next, m.clock(first.To))
	}
	if !m.d.Allowed {
		m.say("Its client is told to come again in %v, since a server does not know when requests will end.", m.d.RetryAfter)
	}
}
