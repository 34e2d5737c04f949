package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/planner/sizing"
	"github.com/stint-dev/stint/service/rules"
)

type sizeCmd struct {
	File      string   `arg:"" optional:"" name:"file" help:"The rules file."`
	Rules     string   `placeholder:"FILE" help:"The rules file, or where rules are that stint serve would read: sqlite:FILE, postgres://…, dir:DIRECTORY."`
	Limit     []string `sep:"none" placeholder:"LIMIT" help:"A limit, instead of rules. Several apply to the same keys."`
	Clients   int64    `default:"10000" placeholder:"N" help:"How many keys of each rule are in use at once (${default}): clients with usage that still counts. A rule with the key [] has one."`
	Keys      []string `placeholder:"RULE=N" help:"How many keys of one rule are in use, if not --clients."`
	Rate      int64    `default:"1000" placeholder:"R" help:"Requests a second of all processes (${default})."`
	Processes int      `default:"3" placeholder:"N" help:"How many processes share the store (${default})."`
	Masters   int      `default:"1" placeholder:"N" help:"How many masters a cluster has (${default}, no cluster)."`
	JSON      bool     `name:"json" help:"Write JSON."`
}

// Help is what "stint store size --help" says below the summary.
func (sizeCmd) Help() string {
	return `Says what rules need of a Redis, by what a key and a call of each algorithm were
measured to take. Each rule is taken to hold every request, and the requests to be
spread evenly over its keys: what it says is the upper end. Memory is right to a
quarter; time is that of one machine (docs/FIGURES.md). No Redis is asked.

For example:

    stint store size stint.yaml --clients 100_000 --rate 20_000
    stint store size --limit '100 per minute' --clients 1_000_000 --masters 3
    stint store size stint.yaml --keys login=500 --json`
}

// Run says what Redis needs.
func (c *sizeCmd) Run(e *env) error {
	all, err := c.rules(e)
	if err != nil {
		return err
	}
	load := sizing.Load{Rate: float64(c.Rate), Processes: c.Processes, Nodes: c.Masters}
	answer := sizing.Of(all, load)
	if c.JSON {
		return printJSON(e.out, answer)
	}
	return c.text(e, answer)
}

const (
	mostRate = 1_000_000_000     // more than all the world asks
	mostKeys = 1_000_000_000_000 // more than any Redis holds
)

// rules reads what is asked about.
func (c *sizeCmd) rules(e *env) ([]sizing.Rule, error) {
	file := cmp.Or(c.File, c.Rules)
	switch {
	case file == "" && len(c.Limit) == 0:
		return nil, usage("file", "missing: write a rules file, or --limit '100 per minute'")
	case file != "" && len(c.Limit) > 0:
		return nil, usage("--limit", "stands in place of rules: one of them")
	case c.File != "" && c.Rules != "":
		return nil, usage("--rules", "names rules, and so does %s: one of them", c.File)
	case c.Clients < 1 || c.Clients > mostKeys:
		return nil, usage("--clients", "%d: from 1 to %d", c.Clients, int64(mostKeys))
	case c.Rate < 1 || c.Rate > mostRate:
		return nil, usage("--rate", "%d: from 1 to %d", c.Rate, mostRate)
	case c.Processes < 1 || c.Processes > mostNodes:
		return nil, usage("--processes", "%d: from 1 to %d", c.Processes, mostNodes)
	case c.Masters < 1 || c.Masters > mostNodes:
		return nil, usage("--masters", "%d: from 1 to %d", c.Masters, mostNodes)
	}
	keys, err := c.keysOf()
	if err != nil {
		return nil, err
	}
	if len(c.Limit) > 0 {
		limits, err := parseLimits("--limit", c.Limit)
		if err != nil {
			return nil, err
		}
		for i := range limits {
			limits[i] = limits[i].WithName(strconv.Itoa(i))
		}
		return []sizing.Rule{{Name: "limit", Limits: limits, Keys: cmp.Or(keys["limit"], c.Clients)}}, nil
	}
	f, err := c.read(e, file)
	if err != nil {
		return nil, err
	}
	var all []sizing.Rule
	for _, r := range f.Rules.File().Rules() {
		one := sizing.Rule{Name: r.Name, Mode: r.Mode, Keys: cmp.Or(keys[r.Name], c.Clients)}
		if len(r.Key) == 0 {
			one.Keys = 1
		} else {
			one.Tag = r.Key[0].Name
		}
		if r.Own != nil {
			one.Limits = r.Own.Limits
		}
		if r.Own == nil && r.Tiers != nil {
			one.Limits = r.Tiers.Plans[r.Tiers.Names[0]].Limits
		}
		delete(keys, r.Name)
		if len(one.Limits) > 0 {
			all = append(all, one)
		}
	}
	for name := range keys {
		return nil, usage("--keys", "%s: there is no such rule", name)
	}
	return all, nil
}

// keysOf reads --keys.
func (c *sizeCmd) keysOf() (map[string]int64, error) {
	keys := make(map[string]int64)
	for _, one := range c.Keys {
		name, text, _ := strings.Cut(one, "=")
		n, err := strconv.ParseInt(text, 0, 64)
		if err != nil || n < 1 || n > mostKeys || name == "" {
			return nil, usage("--keys", "%q: write RULE=N, with N from 1 to %d", one, int64(mostKeys))
		}
		keys[name] = n
	}
	return keys, nil
}

// read reads a file, or asks the source of a URL.
func (c *sizeCmd) read(e *env, from string) (*rules.File, error) {
	if c.File != "" || !strings.Contains(from, ":") {
		return rules.Read(from)
	}
	source := readFlags{Rules: from}
	name, document, err := source.document(e)
	if err != nil {
		return nil, err
	}
	return rules.Decode(name, document)
}

// text writes an answer for people.
func (c *sizeCmd) text(e *env, a *sizing.Answer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s a second, %s, %s\n\n", count(int(c.Rate), "request"), plural(c.Processes, "process", "processes"), count(c.Masters, "master"))
	fmt.Fprintf(&b, "%-20s %-22s %-6s %9s %7s %8s\n", "rule", "limit", "mode", "keys", "each", "memory")
	for _, n := range a.Rules {
		fmt.Fprintf(&b, "%-20s %-22s %-6s %9d %7d %8s\n", cut(n.Rule, 20), cut(n.Limit, 22), n.Mode, n.Keys, n.Each, bytesOf(n.Memory))
	}
	fmt.Fprintf(&b, "\nmemory       %s of keys: maxmemory %s\n", bytesOf(a.Memory), bytesOf(a.MaxMemory))
	for _, n := range a.Rules {
		if n.Most > n.Each {
			fmt.Fprintf(&b, "             %s: a key that is full takes %d bytes, all of them %s\n", n.Rule, n.Most, bytesOf(n.Most*n.Keys))
		}
	}
	fmt.Fprintf(&b, "calls        %.0f a second at most; fewer where requests wait and share one\n", a.Calls)
	fmt.Fprintf(&b, "processor    %.2f cores of the server if each request is a call, %.2f if many share\n", a.Alone, a.Together)
	fmt.Fprintf(&b, "masters      %d, each at most half busy\n", a.Masters)
	fmt.Fprintf(&b, "network      %s/s in, %s/s out\n", bytesOf(int64(a.In)), bytesOf(int64(a.Out)))
	fmt.Fprintf(&b, "connections  %d at each master\n", a.Connections)
	return wrap(e.out, b.String(), "             ")
}

// cut shortens a text to a number of columns.
func cut(text string, columns int) string {
	if r := []rune(text); len(r) > columns {
		return string(r[:columns-1]) + "…"
	}
	return text
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// bytesOf writes a number of bytes in three digits or so.
func bytesOf(n int64) string {
	v, unit := float64(n), 0
	for ; v >= 1000 && unit < 4; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%.3g %s", v, [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
