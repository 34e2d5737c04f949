package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// The bounds of what several nodes are asked: each of their calls to a server takes
// some tens of microseconds.
const (
	MaxNodes         = 100
	MaxNodesArrivals = 10_000
)

// Nodes ask for the first limit as several processes hold it over one Redis, a
// request to each in turn: a row for each mode, one for a limit in flight, which has none.
type Nodes struct {
	// Count is how many processes there are, from 2 to [MaxNodes].
	Count int `json:"count"`
	// Modes are strict and share, and with a Redis lease and async; the default value
	// is all.
	Modes []string `json:"modes"`
	// AwayFrom is from when on no process reaches Redis, and AwayFor how long.
	// The default value of AwayFor is 0: it is always there.
	AwayFrom string `json:"away_from"`
	AwayFor  string `json:"away_for"`
	// Skew is how far the clock of the last process is ahead of that of the
	// first. The default value is 0.
	Skew string `json:"skew"`
}

// Shared says how several processes hold a limit.
type Shared struct {
	Mode  string `json:"mode"`
	Nodes int    `json:"nodes"`
	// Redis cannot be reached from AwayFrom until AwayTo; both are 0 where it
	// always can.
	AwayFrom int64 `json:"away_from"`
	AwayTo   int64 `json:"away_to"`
	Skew     int64 `json:"skew"`
	// Strictly reports whether the mode leaves such a limit to Redis each time.
	Strictly bool `json:"strictly"`
	// Calls is how often the processes asked Redis.
	Calls int64 `json:"calls"`
}

var modes = []string{"strict", "lease", "async", "share"}

// tries returns what to play: the limit in each mode.
func (n *Nodes) tries(l stint.Limit, t *traffic, client rueidis.Client) (all []try, err error) {
	if n.Count < 2 || n.Count > MaxNodes {
		return nil, fmt.Errorf("nodes.count: %d, want from 2 to %d", n.Count, MaxNodes)
	}
	if len(t.sends) > MaxNodesArrivals {
		return nil, fmt.Errorf("nodes: %d requests are too many to be decided by several nodes: at most %d. Take a lower rate or a shorter time", len(t.sends), MaxNodesArrivals)
	}
	from, err := optional("nodes.away_from", n.AwayFrom)
	if err != nil {
		return nil, err
	}
	long, err := optional("nodes.away_for", n.AwayFor)
	if err != nil {
		return nil, err
	}
	skew, err := optional("nodes.skew", n.Skew)
	if err != nil {
		return nil, err
	}
	names := n.Modes
	if len(names) == 0 {
		names = modesOf(client)
	}
	if l.InFlight() {
		names, client = modes[:1], nil // no mode applies: the server counts what runs, here in memory
	}
	for i, name := range names {
		if !slices.Contains(modes, name) || slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("nodes.modes: %q: each of %s once at most", clip(name), strings.Join(modes, ", "))
		}
		if !slices.Contains(modesOf(client), name) {
			return nil, fmt.Errorf("nodes.modes: %q: %w", name, errNoRedis)
		}
		one := &Shared{Mode: name, Nodes: n.Count, Skew: skew, Strictly: strictly(l, name)}
		if long > 0 {
			one.AwayFrom, one.AwayTo = from, from+long
		}
		all = append(all, try{l, one, client})
	}
	return all, nil
}

// optional reads a duration that may be left out.
func optional(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return length(name, text, 0)
}

// leaseLeast is the least number of units in hand for which a lease is worth while.
// In hand is a tenth of the burst, the default of redisstore.
const leaseLeast = 16

// strictly reports whether a mode leaves a limit to the server each time, as
// the documentation of redisstore.Mode says.
func strictly(l stint.Limit, mode string) bool {
	switch mode {
	case "lease":
		return l.Ban() > 0 || l.Algorithm() != meter.GCRA || l.Burst()/10 < leaseLeast
	case "async":
		return l.Ban() > 0 || l.Algorithm() == meter.LeakyQueue || l.CountDenied()
	}
	return false
}

// away reports whether Redis cannot be reached at a moment.
func (s *Shared) away(at int64) bool { return at >= s.AwayFrom && at < s.AwayTo }

// whyShared explains a verdict of several processes: which of them decided, and
// by what. It is nil for one process.
func (row *Row) whyShared(p Place, t *traffic) *Why {
	s := row.Shared
	if s == nil {
		return nil
	}
	each, i, m := row.sent, p.Request, row.moment(p, t)
	m.say("Process %d of %d decided: each request goes to the next of them.", each.Node[i]+1, s.Nodes)
	m.say("%s", s.how(m.at, row.limit))
	if ahead := s.Skew * int64(each.Node[i]) / int64(s.Nodes-1); ahead > 0 {
		m.say("Its clock is %v ahead of that of Redis.", time.Duration(ahead))
	}
	m.unit("cost", "this request's cost", m.cost)
	m.unit("remaining", "what then remained, as this process knew it", each.Remaining[i])
	m.unit("in_use", "what was in use before, as one process would count what all had let through", each.Before[i])
	return m.why
}

// how says by what a process decides at a moment.
func (s *Shared) how(at int64, l stint.Limit) string {
	switch {
	case l.InFlight() && s.away(at):
		return fmt.Sprintf("Redis is away: the process lets at most %d of its own requests run at once, its part of the limit. Redis is told when it is back.", max(l.Count()/int64(s.Nodes), 1))
	case l.InFlight():
		return "Redis counts what runs in all processes."
	case s.Mode == "share":
		return fmt.Sprintf("By share, no process asks Redis: each holds a part of the limit, one of %d.", s.Nodes)
	case s.away(at) && (s.Mode == "strict" || s.Strictly):
		return fmt.Sprintf("Redis is away: the process holds its part of the limit, one of %d. What it lets through is charged to Redis afterwards.", s.Nodes)
	case s.Mode == "strict":
		return "Strictly, Redis is asked about every request, but where it has just denied."
	case s.Strictly:
		return fmt.Sprintf("The mode %s leaves %s to Redis, which is asked about every request.", s.Mode, l)
	case s.Mode == "lease" && s.away(at):
		return fmt.Sprintf("Redis is away: the process spends what it has in hand, and holds its part of the limit, one of %d, when that is gone or has ended.", s.Nodes)
	case s.Mode == "lease":
		return "By lease, the process takes units ahead from Redis and spends them without asking."
	case s.away(at):
		return fmt.Sprintf("Redis is away: the process decides on the last sum that it knows until it has let too much through that Redis does not know of, and then holds its part of the limit, one of %d.", s.Nodes)
	}
	return "In mode async, the process decides on the last sum that it knows, and tells Redis ten times a second what it let through."
}
