package trial

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Text writes the comparison for a terminal of 80 columns: a table, then the
// timelines; a single candidate is drawn large.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	if c.Rows[0].Sharing != nil {
		c.modes(&b)
	} else {
		c.table(&b)
	}
	b.WriteByte('\n')
	if len(c.Rows) == 1 {
		c.plot(&b, &c.Rows[0])
	} else {
		c.strips(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// limitWidth is the widest a limit may be beside its numbers; a longer one has
// a line of its own.
const limitWidth = 26

func (c *Comparison) table(b *strings.Builder) {
	width := len("limit")
	for _, r := range c.Rows {
		if n := utf8.RuneCountInString(r.name()); n <= limitWidth {
			width = max(width, n)
		}
	}
	line := func(name string, cells ...string) {
		if utf8.RuneCountInString(name) > width {
			fmt.Fprintf(b, "%s\n", name)
			name = ""
		}
		fmt.Fprintf(b, "%-*s  %8s %7s %7s %7s %7s %7s\n", width, name, cells[0], cells[1], cells[2], cells[3], cells[4], cells[5])
	}
	fmt.Fprintf(b, "%-*s  %8s %7s %7s %7s %7s %7s\n", width, "", "", "", "", "", "longest", "most in")
	line("limit", "requests", "allowed", "denied", "delayed", "wait", short(c.Stretch))
	for _, r := range c.Rows {
		line(r.name(), fmt.Sprint(c.Requests), fmt.Sprint(r.Allowed), fmt.Sprint(r.Denied),
			fmt.Sprint(r.Delayed), short(r.LongestWait), fmt.Sprint(r.Most))
	}
}

// name is what tells rows apart: their limits or, where these are the same, the
// mode.
func (r *Row) name() string {
	if r.Sharing != nil {
		return r.Sharing.Mode
	}
	return strings.Join(r.Limits, " + ")
}

// short writes a duration with at most three digits behind the point, and
// without units that are zero.
func short(d Duration) string {
	t := time.Duration(d)
	switch {
	case t >= time.Minute:
		t = t.Round(time.Second)
	case t >= time.Second:
		t = t.Round(10 * time.Millisecond)
	case t >= time.Millisecond:
		t = t.Round(100 * time.Microsecond)
	}
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// strips draws for each candidate a line of what passed and one of what was
// denied, all on two scales, so that rows compare.
func (c *Comparison) strips(b *strings.Builder) {
	var passes, denials int64
	for _, r := range c.Rows {
		passes = max(passes, slices.Max(r.Passes))
		denials = max(denials, slices.Max(r.Denials))
	}
	for _, r := range c.Rows {
		fmt.Fprintf(b, "%s\n", r.name())
		strip(b, "passes", r.Passes, passes)
		if r.Denied > 0 {
			strip(b, "denied", r.Denials, denials)
		}
	}
	c.axis(b, 10)
	fmt.Fprintf(b, "%10sa column is %s; █ is %d passed", "", short(c.Column), passes)
	if denials > 0 {
		fmt.Fprintf(b, ", %d denied", denials)
	}
	b.WriteByte('\n')
}

// blocks are the heights of a cell in eighths.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// strip draws a line of blocks; whatever is above zero shows.
func strip(b *strings.Builder, label string, values []int64, full int64) {
	cells := make([]rune, len(values))
	for i, v := range values {
		cells[i] = blocks[eighths(v, full, 1)]
	}
	put(b, "  %-8s%s", label, string(cells))
}

// eighths returns how many eighths of rows cells stand for a value, rounded
// up: whatever is above zero shows, and only the full value is full.
func eighths(v, full int64, rows int) int {
	if v <= 0 || full <= 0 {
		return 0
	}
	if v >= full {
		return 8 * rows
	}
	return min(int(float64(v)/float64(full)*float64(8*rows))+1, 8*rows-1)
}

// put writes a line without blanks at its end.
func put(b *strings.Builder, format string, args ...any) {
	b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	b.WriteByte('\n')
}

// axis draws the time below columns that begin after indent cells.
func (c *Comparison) axis(b *strings.Builder, indent int) {
	const tick = 10 // leaves room for a label
	line, labels := strings.Builder{}, strings.Builder{}
	for i := range c.Rows[0].Passes {
		if i%tick != 0 {
			line.WriteRune('─')
			continue
		}
		line.WriteRune('┴')
		fmt.Fprintf(&labels, "%-*s", tick, short(c.Column*Duration(i)))
	}
	put(b, "%*s%s", indent, "", line.String())
	put(b, "%*s%s", indent, "", labels.String())
	if c.Start > 0 {
		put(b, "%*s0s is %s", indent, "", time.Unix(0, int64(c.Start)).UTC().Format(time.RFC3339Nano))
	}
}

// plotRows is how high a single candidate is drawn.
const plotRows = 8

// plot draws one candidate: what passed, on top of it what was denied, and
// below it what was left.
func (c *Comparison) plot(b *strings.Builder, r *Row) {
	var full int64
	for i := range r.Passes {
		full = max(full, r.Passes[i]+r.Denials[i])
	}
	put(b, "%s", r.name())
	for y := plotRows - 1; y >= 0; y-- {
		cells := make([]rune, len(r.Passes))
		for x := range cells {
			cells[x] = cell(r.Passes[x], r.Denials[x], full, y)
		}
		mark := ""
		switch y {
		case plotRows - 1:
			mark = fmt.Sprint(full)
		case plotRows/2 - 1:
			if full%2 == 0 {
				mark = fmt.Sprint(full / 2)
			}
		}
		put(b, "%9s│%s", mark, string(cells))
	}
	c.axis(b, 10)
	fmt.Fprintf(b, "%10sa column is %s; █ passed", "", short(c.Column))
	if r.Denied > 0 {
		b.WriteString(", ░ denied")
	}
	b.WriteByte('\n')
	if r.Left != nil {
		b.WriteByte('\n')
		full := slices.Max(r.Left)
		strip(b, "left", r.Left, full)
		fmt.Fprintf(b, "%10swhat would still pass at the end of each column; █ is %d\n", "", full)
	}
}

// cell draws one cell of a plot, y rows above the axis: passes from below in
// eighths, denials on top of them in whole cells. Where there are both, both
// show.
func cell(passes, denials, full int64, y int) rune {
	p, all := eighths(passes, full, plotRows), eighths(passes+denials, full, plotRows)
	if denials > 0 {
		p = min(p, 8*plotRows-8)
		all = max(all, (p+7)/8*8+1)
	}
	switch low := 8 * y; {
	case p > low:
		return blocks[min(p-low, 8)]
	case all > low:
		return '░'
	}
	return ' '
}
