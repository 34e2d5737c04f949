package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A check is a promise and what was measured of it.
type check struct {
	what     string
	atLeast  bool // else at most
	promised float64
	measured float64
	unit     string
}

// met allows nothing for noise: a figure that misses by a hair is a miss.
func (c check) met() bool {
	if c.atLeast {
		return c.measured >= c.promised
	}
	return c.measured <= c.promised
}

func (f *figures) atMost(promised, measured float64, unit, what string) {
	f.checks = append(f.checks, check{what, false, promised, measured, unit})
}

func (f *figures) atLeast(promised, measured float64, unit, what string) {
	f.checks = append(f.checks, check{what, true, promised, measured, unit})
}

// promises prints the checks.
func (f *figures) promises() {
	rows := [][]string{{"promise", "target", "measured", "met"}}
	for _, c := range f.checks {
		sign, met := "≤", "yes"
		if c.atLeast {
			sign = "≥"
		}
		if !c.met() {
			met = "**no**"
		}
		rows = append(rows, []string{c.what, fmt.Sprintf("%s %g%s", sign, c.promised, c.unit), number(c.measured) + c.unit, met})
	}
	f.print(rows)
}

// table prints the results, and ratios to the least script on the same client.
func (f *figures) table(results []result) {
	rows := [][]string{{"", "1 caller, µs", "× EVALSHA", fmt.Sprintf("%d callers, 1/s", callers), "× EVALSHA", "server, µs each", "server busy"}}
	for _, r := range results {
		base := of(results, least)
		if strings.Contains(r.name, "go-redis") {
			base = of(results, leastGoRedis)
		}
		rows = append(rows, []string{
			r.name, number(median(r.latency)), fmt.Sprintf("%.2f", ratio(r.latency, base.latency)),
			fmt.Sprintf("%.0f", median(r.pace)), fmt.Sprintf("%.2f", ratio(r.pace, base.pace)),
			number(median(r.cpu)), fmt.Sprintf("%.0f %%", 100*median(r.busy)),
		})
	}
	f.print(rows)
	fmt.Fprintf(f.out, "\nThe client is rueidis unless the row says otherwise. It sends the calls of %[1]d callers in few packets; go-redis uses one connection for each caller. "+
		"GET, the EVALSHA and the other libraries make at least one call for each decision, with any number of callers. stint sends a call at once while fewer than two are in flight; later requests wait, "+
		"and up to 64 of them share one call. So with %[1]d callers there are far fewer calls than decisions, and the ratio to the EVALSHA compares decisions. "+
		"A server that is about 100 %% busy is saturated and limits the throughput.\n", callers)
}

// promise notes what the project promises of the results.
func (f *figures) promise(results []result) {
	floor, one, rate := of(results, least), of(results, ours), of(results, redisRate)
	f.atMost(1.15, ratio(one.latency, floor.latency), " ×", "gcra, 1 caller: latency, beside the EVALSHA")
	f.atLeast(0.85, ratio(one.pace, floor.pace), " ×", fmt.Sprintf("gcra, %d callers: decisions a second, beside the EVALSHA", callers))
	f.atLeast(1.7, ratio(one.pace, rate.pace), " ×", fmt.Sprintf("gcra, %d callers: decisions a second, beside redis_rate", callers))
	f.atMost(0.8, ratio(one.cpu, rate.cpu), " ×", "gcra: processor time of Redis, beside redis_rate, each on its client")
	f.atMost(0.8, ratio(of(results, oursGoRedis).cpu, rate.cpu), " ×", "gcra: processor time of Redis, beside redis_rate, both on go-redis")
	f.atMost(2.5, ratio(of(results, ours3).cpu, one.cpu), " ×", "three layers in one call, beside one: processor time of Redis")
	f.atMost(2.5, ratio(of(results, ours3).latency, one.latency), " ×", "three layers in one call, beside one: latency of 1 caller")
	f.atMost(3, ratio(of(results, oursLog).cpu, one.cpu), " ×", "a log of 1,000, beside gcra: processor time of Redis")
	f.atMost(3, ratio(of(results, oursLog).latency, one.latency), " ×", "a log of 1,000, beside gcra: latency of 1 caller")
}

// of returns the result of a name that is there.
func of(results []result, name string) result {
	for _, r := range results {
		if r.name == name {
			return r
		}
	}
	panic("no contender " + name)
}

// print writes a Markdown table: the first column is text, others are numbers.
func (f *figures) print(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		line, rule := "|", "|"
		for i, cell := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line += " " + cell + gap + " |"
				rule += strings.Repeat("-", width[i]+2) + "|"
			} else {
				line += " " + gap + cell + " |"
				rule += strings.Repeat("-", width[i]+1) + ":|"
			}
		}
		fmt.Fprintln(f.out, line)
		if n == 0 {
			fmt.Fprintln(f.out, rule)
		}
	}
}

// number prints three digits that count, two of what is small, and no more than
// whole numbers above.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v < 0.1:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}
