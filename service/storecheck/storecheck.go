// Package storecheck looks at a Redis or Valkey before limits are kept in it:
// what server it is, whether every operation works, how long that takes, and
// what would be unwise about it. It writes to keys of its own alone, and
// removes them.
package storecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options say how much to ask. The zero value is good.
type Options struct {
	// Samples is how many pings and decisions are timed. The default value is
	// 200.
	Samples int
	// Timeout is how long one operation may take. The default value is 2 s.
	Timeout time.Duration
	// Deadline is how long an operation may take where limits are kept in the
	// server: what comes near is warned of. The default value is 15 ms.
	Deadline time.Duration
	// Replica makes a client of a replica, whose clock is compared with the master's.
	// Without it they are not asked.
	Replica func(address string) redis.UniversalClient
	// Prefix is what the keys of the processes begin with. The default value is
	// "stint".
	Prefix string
}

// A Report is what was found.
type Report struct {
	// Usable reports whether limits can be kept there.
	Usable bool `json:"usable"`
	// Nodes are the servers behind the address: one, or those of a cluster.
	Nodes   []Node `json:"nodes"`
	Samples int    `json:"samples"`
	// Ping and Decision are how long a PING and a decision took, Clock the
	// difference of clocks. They are the zero value where a problem came first.
	Ping     Latency `json:"ping"`
	Decision Latency `json:"decision"`
	Clock    Clock   `json:"clock"`
	// Logs is what long logs cost.
	Logs LogCost `json:"logs"`
	// Problems are why limits cannot be kept there, Warnings what would be
	// unwise.
	Problems []Finding `json:"problems"`
	Warnings []Finding `json:"warnings"`
}

// Failed returns the report on a server that cannot be reached.
func Failed(err error) *Report {
	return &Report{Nodes: []Node{}, Problems: []Finding{{err.Error(), HintFor(err)}}, Warnings: []Finding{}}
}

// A Finding is a problem or a warning, with what would be better.
type Finding struct {
	What string `json:"what"`
	Hint string `json:"hint,omitempty"`
}

// Run looks at the server behind a client. The context bounds it all.
func Run(ctx context.Context, client redis.UniversalClient, o Options) *Report {
	if o.Samples <= 0 {
		o.Samples = 200
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Deadline <= 0 {
		o.Deadline = 15 * time.Millisecond
	}
	r := &Report{Samples: o.Samples, Nodes: []Node{}, Problems: []Finding{}, Warnings: []Finding{}}
	for address, node := range nodesOf(ctx, client) {
		r.Nodes = append(r.Nodes, readInfo(ctx, address, node))
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return strings.Compare(a.Address, b.Address) })
	r.judgeNodes()
	if len(r.Problems) == 0 {
		r.try(ctx, client, o)
	}
	r.Usable = len(r.Problems) == 0
	return r
}

// try uses the server.
func (r *Report) try(ctx context.Context, client redis.UniversalClient, o Options) {
	store, err := open(client, o.Timeout)
	if err != nil {
		r.problem(err)
		return
	}
	defer func() {
		if err := store.Remove(context.WithoutCancel(ctx)); err != nil && len(r.Problems) == 0 {
			r.warn("", "keys that begin with %s may be left there: %v", store.Prefix, err)
		}
	}()
	if r.judgeCommands(ctx, client, store.Prefix); len(r.Problems) > 0 {
		return
	}
	ping := func() error { return client.Ping(ctx).Err() }
	for _, step := range []struct {
		what string
		run  func() error
	}{
		{"", func() error { return operations(ctx, store) }},
		{"", func() error { return scenarios(ctx, store, o.Timeout) }},
		{"PING: ", func() (err error) { r.Ping, err = latency(o.Samples, ping); return err }},
		{"a decision: ", func() (err error) { r.Decision, err = decisions(ctx, store, o.Samples); return err }},
		{"TIME: ", func() (err error) { r.Clock, err = clockOf(ctx, client); return err }},
		{"a log: ", func() (err error) { r.Logs, err = logs(ctx, store); return err }},
	} {
		if err := step.run(); err != nil {
			r.problem(fmt.Errorf("%s%w", step.what, err))
			return
		}
	}
	r.judgeTimes(o.Deadline)
	if o.Replica != nil {
		r.judgeReplicaClocks(ctx, o.Replica)
	}
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
