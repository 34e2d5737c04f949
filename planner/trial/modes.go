package trial

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// Sharing is what sharing limits cost.
type Sharing struct {
	Mode  string `json:"mode"`
	Nodes int    `json:"nodes"`
	// Calls is how often the processes asked the server that they share.
	Calls int64 `json:"calls"`
}

// CompareModes runs limits on one key as a number of processes hold them, in each of
// some modes, on the same arrivals, as [Compare] does candidates. The next process has
// the next arrival. Without a Redis, modes lease and async are [ErrServer].
func CompareModes(limits []stint.Limit, redis *Redis, nodes int, modes []redisstore.Mode, arrivals []Arrival, end int64, stretch time.Duration) (*Comparison, error) {
	all := make([]candidate, len(modes))
	for i, mode := range modes {
		all[i] = candidate{limits, Options{Redis: redis, Count: nodes, Mode: mode}}
	}
	return compare(all, arrivals, end, stretch)
}

// modes writes the table of ways to hold the same limits.
func (c *Comparison) modes(b *strings.Builder) {
	const line = "%-6s  %8s %8s %8s %8s %8s %12s\n"
	fmt.Fprintf(b, "%s, %d processes\n\n", strings.Join(c.Rows[0].Limits, " + "), c.Rows[0].Sharing.Nodes)
	fmt.Fprintf(b, line, "", "", "", "", "most in", "calls to", "per 1,000")
	fmt.Fprintf(b, line, "mode", "requests", "allowed", "denied", short(c.Stretch), "a store", "allowed")
	for _, r := range c.Rows {
		each := "-"
		if r.Allowed > 0 {
			each = decimal(1000*float64(r.Sharing.Calls)/float64(r.Allowed), 1)
		}
		fmt.Fprintf(b, line, r.name(), fmt.Sprint(c.Requests), fmt.Sprint(r.Allowed), fmt.Sprint(r.Denied),
			fmt.Sprint(r.Most), fmt.Sprint(r.Sharing.Calls), each)
	}
}
