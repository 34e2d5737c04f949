package lab

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

// flights are the keys under a limit in flight: a limiter holds their places, and the
// virtual clock says when their requests end.
type flights struct {
	lasts   int64 // each request, in nanoseconds
	limiter *stint.Limiter
	room    *inflight.Room   // where the limiter counts
	one     [1]inflight.Hold // what is asked of it about a key
	running simulate.Running
}

func newFlights(l stint.Limit, lasts int64) (*flights, error) {
	store := memstore.New(memstore.Options{})
	limiter, err := stint.NewLimiter(store, "lab", l)
	one := inflight.Hold{Name: stint.InFlightName("lab", l), Limit: l.Count(), Units: 1}
	return &flights{lasts: lasts, limiter: limiter, room: store.InFlight(), one: [1]inflight.Hold{one}}, err
}

// peek says how a key stands to a request of cost 1.
func (f *flights) peek(key int, now int64) stint.Decision {
	f.running.End(now)
	one := &f.one[0]
	one.Key = strconv.Itoa(key)
	d := stint.Decision{Limit: one.Limit}
	if d.Allowed, _ = f.room.Look(context.Background(), f.one[:]); !d.Allowed { // counts in memory never fail
		d.RetryAfter = stint.RetryOf(one)
	}
	d.Remaining = d.Limit - one.Running
	return d
}

// take decides one request; before is how its key stood.
func (f *flights) take(key int, now, cost int64) (before, d stint.Decision) {
	before = f.peek(key, now)
	d, end, err := f.limiter.AcquireN(context.Background(), strconv.Itoa(key), cost, 0)
	switch {
	case err != nil:
		panic(err) // the cost has been checked, and memory never fails
	case cost == 0: // it is not counted, so the answer has no numbers
		d.Limit, d.Remaining = before.Limit, before.Remaining
	case d.Allowed:
		f.running.Add(plus(now, f.lasts), end)
	}
	return before, d
}

// flying: what is in flight + c ≤ the count.
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
