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
	doubtful bool // the cores were busy with other things
}

// met allows nothing for noise: a figure that misses by a hair is a miss, and
// the reader sees the hair.
func (c check) met() bool {
	if c.atLeast {
		return c.measured >= c.promised
	}
	return c.measured <= c.promised
}

// atMost notes a promise that something is at most so much.
func (f *figures) atMost(promised, measured float64, unit, what string, args ...any) {
	f.checks = append(f.checks, check{fmt.Sprintf(what, args...), false, promised, measured, unit, false})
}

// atLeast notes a promise that something is at least so much.
func (f *figures) atLeast(promised, measured float64, unit, what string, args ...any) {
	f.checks = append(f.checks, check{fmt.Sprintf(what, args...), true, promised, measured, unit, false})
}

// unless marks the last promise as unknown where a result is doubtful.
func (f *figures) unless(rs ...result) {
	last := &f.checks[len(f.checks)-1]
	for _, r := range rs {
		last.doubtful = last.doubtful || r.doubtful()
	}
}

// promises prints checks as a table.
func (f *figures) promises(checks []check) {
	t := table{head: []string{"promise", "target", "measured", "met"}}
	for _, c := range checks {
		sign, met := "≤", "yes"
		if c.atLeast {
			sign = "≥"
		}
		if !c.met() {
			met = "**no**"
		}
		if c.doubtful {
			met = "unknown"
		}
		t.add(c.what, sign+" "+number(c.promised)+c.unit, number(c.measured)+c.unit, met)
	}
	t.print(f)
}

// table is a Markdown table: the first column is text, others are numbers.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(f *figures) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprintf(f.out, "| %s%s |", cell, gap)
			} else {
				fmt.Fprintf(f.out, " %s%s |", gap, cell)
			}
		}
		fmt.Fprintln(f.out)
	}
	fmt.Fprintln(f.out)
	line(t.head)
	for i, w := range width {
		if i == 0 {
			fmt.Fprintf(f.out, "|%s|", strings.Repeat("-", w+2))
		} else {
			fmt.Fprintf(f.out, "%s:|", strings.Repeat("-", w+1))
		}
	}
	fmt.Fprintln(f.out)
	for _, row := range t.rows {
		line(row)
	}
}

// number prints three digits that count, and no more than whole numbers above.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// times prints a ratio.
func times(v float64) string { return fmt.Sprintf("%.2f ×", v) }

// speeds prints a table of a race: a row for each name, with the time on one
// and on two cores and the ratio to the named result on the same cores. A ?
// marks what is doubtful.
func (f *figures) speeds(rs results, beside string) {
	t := table{head: []string{"", "one core, ns", "least", "× " + beside, "two cores, ns", "least", "× " + beside, "allocs", "B"}}
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
			row = append(row, number(r.median())+doubt, number(r.least())+doubt)
			if base, ok := rs.of(beside, cores); ok {
				row = append(row, fmt.Sprintf("%.2f", r.ratio(base)))
			} else {
				row = append(row, "")
			}
		}
		t.add(append(row, number(last.allocs), number(last.bytes))...)
	}
	t.print(f)
}
