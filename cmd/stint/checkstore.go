package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/storecheck"
)

type storeCmd struct {
	Check checkStoreCmd `cmd:"" help:"Check whether a Redis or Valkey server can keep limits."`
}

// Help is what "stint store --help" says below the summary.
func (storeCmd) Help() string {
	return `For example:

    stint store check redis://127.0.0.1:6379`
}

type checkStoreCmd struct {
	URL      string        `arg:"" optional:"" name:"url" help:"The URL of the server: redis://host:6379. The default is $STINT_STORE."`
	Store    string        `hidden:"" env:"STINT_STORE"`
	Samples  int           `default:"200" placeholder:"N" help:"How many pings and decisions are timed (${default})."`
	Timeout  time.Duration `default:"2s" help:"How long one operation may take (${default})."`
	Deadline time.Duration `default:"15ms" help:"Warn if decisions take longer than stint serve allows (${default})."`
	Prefix   string        `name:"store-prefix" env:"STINT_STORE_PREFIX" placeholder:"NAME" default:"stint" help:"The prefix of the processes' keys (${default})."`
	JSON     bool          `name:"json" help:"Write JSON."`
}

// Help is what "stint store check --help" says below the summary.
func (checkStoreCmd) Help() string {
	return `Uses the server as stint serve --store would, on keys of its own that it removes
again, and says what would be unwise about it. The status is 0 if limits can be
kept there, else 1.

For example:

    stint store check redis://127.0.0.1:6379
    STINT_STORE=rediss://user:password@redis.example.com stint store check --json
    stint store check 'redis://10.0.0.1:26379?master_set=mymaster'`
}

// errUnusable has been explained on standard output.
var errUnusable = errors.New("limits cannot be kept there")

// Run checks the server.
func (c *checkStoreCmd) Run(e *env) error {
	u := storeURL(cmp.Or(c.URL, c.Store))
	switch {
	case u == "":
		return usage("url", "missing: %s", storeExample)
	case c.Samples < 1:
		return usage("--samples", "%d: at least 1", c.Samples)
	case c.Deadline <= 0:
		return usage("--deadline", "%v: longer than 0s", c.Deadline)
	case c.Timeout <= 0:
		return usage("--timeout", "%v: longer than 0s", c.Timeout)
	}
	o, err := u.options()
	if err != nil {
		return &usageError{"url", err}
	}
	o.DialTimeout, o.ReadTimeout = c.Timeout, c.Timeout
	ctx, cancel := context.WithTimeout(e.ctx, time.Duration(c.Samples+100)*c.Timeout)
	defer cancel()
	var r *storecheck.Report
	if client, err := redisstore.Connect(ctx, o); err != nil {
		r = storecheck.Failed(err)
	} else {
		r = storecheck.Run(ctx, client, storecheck.Options{Samples: c.Samples, Timeout: c.Timeout, Deadline: c.Deadline, Prefix: c.Prefix, Replica: replicaOf(o)})
		_ = client.Close()
	}
	report := struct {
		URL string `json:"url"`
		*storecheck.Report
	}{u.String(), r}
	err = printed(e.out, c.JSON, report, func(w io.Writer) error { return writeCheck(w, report.URL, r) })
	if err != nil {
		return err
	}
	if !r.Usable {
		return errUnusable
	}
	return nil
}

// writeCheck writes a report for people.
func writeCheck(w io.Writer, name string, r *storecheck.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", name)
	for i := range r.Nodes {
		writeNode(&b, &r.Nodes[i])
	}
	if r.Decision.Median > 0 {
		line := func(what, format string, args ...any) {
			fmt.Fprintf(&b, "  %-12s "+format+"\n", append([]any{what}, args...)...)
		}
		line("operations", "all answer as they should")
		line("decision", "median %v, p99 %v", round(r.Decision.Median), round(r.Decision.P99))
		line("logs", "of %d entries: take %v, settle %v", r.Logs.Entries, round(r.Logs.Take), round(r.Logs.Settle))
		line("ping", "median %v, p99 %v", round(r.Ping.Median), round(r.Ping.P99))
		way := "ahead of"
		if r.Clock.Ahead < 0 {
			way = "behind"
		}
		line("clock", "%v %s this machine's, to within %v", round(r.Clock.Ahead.Abs()), way, round(r.Clock.Within))
	}
	for _, list := range []struct {
		word string
		of   []storecheck.Finding
	}{{"error", r.Problems}, {"warning", r.Warnings}} {
		for _, f := range list.of {
			text := f.What
			if f.Hint != "" {
				text += "; " + f.Hint
			}
			fmt.Fprintf(&b, "%s: %s\n", list.word, text)
		}
	}
	if r.Usable {
		fmt.Fprintf(&b, "limits can be kept there: %s\n", count(len(r.Warnings), "warning"))
	}
	return wrap(w, b.String(), "    ")
}

// writeNode writes what a server says of itself.
func writeNode(b *strings.Builder, n *storecheck.Node) {
	if n.Version == "" {
		fmt.Fprintf(b, "  %s: nothing is known\n", n.Address)
		return
	}
	fmt.Fprintf(b, "  %s: %s %s, %s", n.Address, n.Server, n.Version, n.Mode)
	if n.Mode == "sentinel" {
		b.WriteByte('\n')
		return
	}
	fmt.Fprintf(b, ", %s\n", n.Role)
	most := "no maxmemory"
	if n.MaxMemory > 0 {
		most = "of " + mebibytes(n.MaxMemory)
	}
	fmt.Fprintf(b, "    memory     %s, %s, %s, %d evicted\n", mebibytes(n.UsedMemory), most, n.Policy, n.Evicted)
	saves := "snapshots"
	switch n.Snapshots {
	case "":
		saves = "no snapshots"
	case "?":
		saves = "snapshots unknown"
	}
	if n.AppendOnly == 1 {
		saves += ", append-only file"
	} else {
		saves += ", no append-only file"
	}
	if n.Snapshots == "" && n.AppendOnly == 0 {
		saves += ": a restart forgets"
	}
	fmt.Fprintf(b, "    disk       %s\n", saves)
	fmt.Fprintf(b, "    replicas   %d", max(n.Replicas, 0))
	if n.MinWrite > 0 {
		fmt.Fprintf(b, ", a write needs %d", n.MinWrite)
	}
	b.WriteByte('\n')
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// round keeps about three digits.
func round(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// replicaOf returns what makes a client of one server, with the rest of the options.
func replicaOf(o *redis.UniversalOptions) func(address string) redis.UniversalClient {
	return func(address string) redis.UniversalClient {
		one := *o
		one.Addrs, one.MasterName = []string{address}, ""
		return redis.NewUniversalClient(&one)
	}
}
