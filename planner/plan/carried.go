package plan

import (
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// A carried counts answers and paths, which may dominate a log. It looks at one line in a few.
type carried struct {
	lines           int64
	statuses, paths map[string]int64
}

// carrying are the attributes that are counted.
var carrying = []string{"status", "path"}

// Every carriedEvery-th line is looked at. The count begins anew with each block of a log, so that
// the same log gives the same counts.
const carriedEvery = 16

// Thresholds at which something dominates a log: half of its requests have one path, or a fifth
// were refused.
const (
	carriedPart  = 0.5
	refusedPart  = 0.2
	burstPart    = 20 // it is a burst if half of the requests came in this part of the time
	leastCarried = 50
)

// refusals are the statuses that guesses, scans and clients that do not slow down receive.
var refusals = []string{"401", "403", "404", "429"}

func newCarried() carried {
	return carried{statuses: make(map[string]int64), paths: make(map[string]int64)}
}

func (c *carried) clear() {
	c.lines = 0
	clear(c.statuses)
	clear(c.paths)
}

// add counts a request.
func (c *carried) add(r *accesslog.Record) {
	c.lines++
	if status := r.Values[0]; status != nil {
		c.statuses[string(status)]++
	}
	if path := r.Values[1]; path != nil {
		c.paths[string(path)]++
	}
}

// join adds the counts of another worker, but no new paths once there are too many.
func (c *carried) join(o *carried) {
	c.lines += o.lines
	for status, n := range o.statuses {
		c.statuses[status] += n
	}
	for path, n := range o.paths {
		if _, known := c.paths[path]; known || len(c.paths) < mostSurveyed {
			c.paths[path] += n
		}
	}
}

// carries reports what dominates the log, since that shapes a limit more than the ordinary clients
// do.
func (r *reading) carries(add finder) {
	c, o := &r.carried, r.options
	if c.lines >= leastCarried {
		for _, status := range refusals {
			if n := c.statuses[status]; float64(n) >= refusedPart*float64(c.lines) {
				add("refused", false, "about %s of all requests were answered %s: if that is guessing or a scan, who sent them shapes the limit, and it may deny none of them", share(n, c.lines), status)
			}
		}
		top := ""
		for path, n := range c.paths {
			if n > c.paths[top] || n == c.paths[top] && path < top {
				top = path
			}
		}
		if n := float64(c.paths[top]); !o.routed && n >= carriedPart*float64(c.lines) && n <= mostlyOf*float64(c.lines) {
			add("one_path", false, "about %s of all requests are of the path %s, and shape the limit: --match path=%s chooses one for these alone", share(c.paths[top], c.lines), clip(top, 60), clip(top, 60))
		}
	}
	if half := r.halfWithin(); half >= 0 && half*burstPart <= r.last-r.first {
		add("burst", false, "half of all requests came within %s of %s: if that was an attack or a rare day, it shapes the limit. Leave it out with --from and --to, or choose from it alone", Duration(time.Duration(half).Round(time.Second)), Duration(r.last-r.first))
	}
}

// halfWithin returns the shortest time, in nanoseconds, in which half of the requests came, or −1
// if there are too few. Ignored clients are left out.
func (r *reading) halfWithin() int64 {
	half := int(r.requests+1) / 2
	if half < leastClients {
		return -1
	}
	next := func(i int) int {
		for i++; i < len(r.events) && r.ignored[r.events[i].id]; i++ {
		}
		return i
	}
	from := next(-1)
	to := from
	for range half - 1 {
		to = next(to)
	}
	least := r.events[to].at - r.events[from].at
	for to = next(to); to < len(r.events); to = next(to) {
		from = next(from)
		least = min(least, r.events[to].at-r.events[from].at)
	}
	return least
}
