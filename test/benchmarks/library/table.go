package library

import (
	"fmt"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// speeds prints a table of a race: a row for each name, with the time on one
// and on two cores and the ratio to the named result on the same cores. A ?
// marks what is doubtful.
func (f *figures) speeds(rs results, beside string) {
	rows := [][]string{{"", "one core, ns", "least", "× " + beside, "two cores, ns", "least", "× " + beside, "allocs", "B"}}
	for _, name := range rs.names() {
		row, last := []string{name}, result{}
		for cores := 1; cores <= twoCores; cores++ {
			r, ok := rs.of(name, cores)
			if !ok {
				row = append(row, "", "", "")
				continue
			}
			last = r
			doubt := ""
			if r.doubtful() {
				doubt = "?"
			}
			row = append(row, report.Number(r.median())+doubt, report.Number(r.least())+doubt)
			if base, ok := rs.of(beside, cores); ok {
				row = append(row, fmt.Sprintf("%.2f", r.ratio(base)))
			} else {
				row = append(row, "")
			}
		}
		rows = append(rows, append(row, report.Number(last.allocs), report.Number(last.bytes)))
	}
	f.Table(rows)
}

// times prints a ratio.
func times(v float64) string { return fmt.Sprintf("%.2f ×", v) }
