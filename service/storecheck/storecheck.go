// Package storecheck looks at a Redis or Valkey before limits are kept in it:
// what server it is, whether a user may do what is needed, how long a decision takes,
// how clocks differ, and what would be unwise about it. It writes to keys of its own
// alone, and removes them.
package storecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// within is how long one operation may take here.
const within = 2 * time.Second

// Options say what to compare with.
type Options struct {
	// Deadline is how long a decision may take where limits are kept in the
	// server: what takes longer is warned of. Required.
	Deadline time.Duration
	// Replica makes a client of a replica, whose clock is compared with the master's.
	// Required.
	Replica func(address string) redis.UniversalClient
}

// A Report is what was found.
type Report struct {
	// Nodes are the servers behind the address: one, or those of a cluster.
	Nodes []Node
	// Decision is how long a decision took, Clock the difference of clocks. They are the
	// zero value where a problem came first.
	Decision Latency
	Clock    Clock
	// Problems are why limits cannot be kept there, Warnings what would be
	// unwise.
	Problems, Warnings []Finding
}

// A Finding is a problem or a warning, with what would be better.
type Finding struct{ What, Hint string }

// Run looks at the server behind a client. The context bounds it all.
func Run(ctx context.Context, client redis.UniversalClient, o Options) *Report {
	r := new(Report)
	for address, node := range nodesOf(ctx, client) {
		r.Nodes = append(r.Nodes, readInfo(ctx, address, node))
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return strings.Compare(a.Address, b.Address) })
	r.judgeNodes()
	if len(r.Problems) == 0 {
		r.try(ctx, client, o)
	}
	return r
}

// try uses the server.
func (r *Report) try(ctx context.Context, client redis.UniversalClient, o Options) {
	prefix := scratch()
	if r.judgeCommands(ctx, client, prefix); len(r.Problems) > 0 {
		return
	}
	var err error
	if r.Decision, err = decisions(ctx, client, prefix); err != nil {
		r.problem(fmt.Errorf("a decision: %w", err))
		return
	}
	if r.Clock, err = clockOf(ctx, client); err != nil {
		r.problem(fmt.Errorf("TIME: %w", err))
		return
	}
	r.judgeTimes(o.Deadline)
	r.judgeReplicaClocks(ctx, o.Replica)
}

// problem notes an error, without its position in the script.
func (r *Report) problem(err error) {
	what := err.Error()
	if at := strings.LastIndex(what, " script: "); at > 0 { // Valkey says "in script:" before that
		what = what[:at]
	}
	r.Problems = append(r.Problems, Finding{strings.TrimSuffix(what, "."), HintFor(err)})
}

// at names a node in front of what is said of it, if there are several.
func (r *Report) at(n *Node) string {
	if len(r.Nodes) > 1 {
		return n.Address + ": "
	}
	return ""
}

func (r *Report) warn(hint, format string, args ...any) {
	r.Warnings = append(r.Warnings, Finding{fmt.Sprintf(format, args...), hint})
}
