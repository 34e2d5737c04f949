package trial

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
)

// Text writes the comparison for a terminal of 80 columns: a table, then the
// timelines.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	c.table(&b)
	b.WriteByte('\n')
	c.strips(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// limitWidth is the greatest width of a limit in the table; a longer limit has a line of its own.
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
		line(r.name(), fmt.Sprint(c.Requests), fmt.Sprint(r.Passed+r.Delayed), fmt.Sprint(r.Denied),
			fmt.Sprint(r.Delayed), short(Duration(r.LongestWait)), fmt.Sprint(r.Most))
	}
}

// name returns the limits of a candidate, by which rows are told apart.
func (r *Candidate) name() string {
	return strings.Join(r.Limits, " + ")
}

// short writes a duration with at most three digits behind the point, and without units that are
// zero.
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

// strips draws for each candidate a line of what passed and a line of what was denied. All lines of
// a kind share a scale, so that candidates compare.
func (c *Comparison) strips(b *strings.Builder) {
	var passes, denials int64
	for _, r := range c.Rows {
		passes = max(passes, slices.Max(r.Passes))
		denials = max(denials, slices.Max(r.Denials))
	}
	for _, r := range c.Rows {
		fmt.Fprintf(b, "%s\n", r.name())
		put(b, "  %-8s%s", "passes", wording.Bars(r.Passes, passes))
		if r.Denied > 0 {
			put(b, "  %-8s%s", "denied", wording.Bars(r.Denials, denials))
		}
	}
	c.axis(b, 10)
	fmt.Fprintf(b, "%10sa column is %s; █ is %d passed", "", short(c.Column), passes)
	if denials > 0 {
		fmt.Fprintf(b, ", %d denied", denials)
	}
	b.WriteByte('\n')
}

// put writes a line without trailing blanks.
func put(b *strings.Builder, format string, args ...any) {
	b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	b.WriteByte('\n')
}

// axis draws the time axis below columns that begin after indent cells.
func (c *Comparison) axis(b *strings.Builder, indent int) {
	const tick = 10 // room for a label
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
