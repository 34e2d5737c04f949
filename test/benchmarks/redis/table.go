package redis

import (
	"fmt"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// table prints the results, and ratios to the least script.
func (f *figures) table(results []result) {
	rows := [][]string{{"", "1 caller, µs", "× EVALSHA", fmt.Sprintf("%d callers, 1/s", callers), "× EVALSHA", "server, µs each", "server busy"}}
	for _, r := range results {
		base := of(results, least)
		rows = append(rows, []string{
			r.name, report.Number(report.Median(r.latency)), fmt.Sprintf("%.2f", report.Ratio(r.latency, base.latency)),
			fmt.Sprintf("%.0f", report.Median(r.pace)), fmt.Sprintf("%.2f", report.Ratio(r.pace, base.pace)),
			report.Number(report.Median(r.cpu)), fmt.Sprintf("%.0f %%", 100*report.Median(r.busy)),
		})
	}
	f.Table(rows)
	fmt.Fprintf(f.Out, "\nThe client is go-redis, which uses one connection for each call that is in flight. "+
		"GET, the EVALSHA and the other libraries make at least one call for each decision, with any number of callers. stint sends a call at once while fewer than two are in flight; later requests wait, "+
		"and up to 64 of them share one call. So with %[1]d callers there are far fewer calls than decisions, and the ratio to the EVALSHA compares decisions. "+
		"A server that is about 100 %% busy is saturated and limits the throughput.\n", callers)
}

// promise notes what the project promises of the results.
func (f *figures) promise(results []result) {
	floor, one, rate := of(results, least), of(results, ours), of(results, redisRate)
	f.AtMost(1.15, report.Ratio(one.latency, floor.latency), " ×", "gcra, 1 caller: latency, beside the EVALSHA")
	f.AtLeast(0.85, report.Ratio(one.pace, floor.pace), " ×", "gcra, %d callers: decisions a second, beside the EVALSHA", callers)
	f.AtLeast(1.7, report.Ratio(one.pace, rate.pace), " ×", "gcra, %d callers: decisions a second, beside redis_rate", callers)
	f.AtMost(0.8, report.Ratio(one.cpu, rate.cpu), " ×", "gcra: processor time of Redis, beside redis_rate")
	f.AtMost(2.5, report.Ratio(of(results, ours3).cpu, one.cpu), " ×", "three layers in one call, beside one: processor time of Redis")
	f.AtMost(2.5, report.Ratio(of(results, ours3).latency, one.latency), " ×", "three layers in one call, beside one: latency of 1 caller")
	f.AtMost(3, report.Ratio(of(results, oursLog).cpu, one.cpu), " ×", "a log of 1,000, beside gcra: processor time of Redis")
	f.AtMost(3, report.Ratio(of(results, oursLog).latency, one.latency), " ×", "a log of 1,000, beside gcra: latency of 1 caller")
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
