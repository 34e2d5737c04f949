package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Text writes the report for a terminal of 80 columns.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	r.Log.text(&b)
	for _, f := range r.Findings {
		mark := "note: "
		if f.Stops {
			mark = "NO PROPOSAL: "
			if !r.asked {
				mark = "NOT TO BE TRUSTED: "
			}
		}
		wrap(&b, "", mark+f.Text)
	}
	if r.Choice != nil {
		heading(&b, "What to choose")
		r.Choice.text(&b)
	}
	if r.Traffic != nil && r.Traffic.Requests > 0 {
		r.Traffic.text(&b, r.Key)
	}
	if len(r.Results) > 0 {
		heading(&b, "What a limit would have done")
		r.resultsText(&b)
	}
	if r.Choice != nil {
		heading(&b, "How it was chosen")
		r.Choice.evidenceText(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func heading(b *strings.Builder, text string) {
	fmt.Fprintf(b, "\n%s\n%s\n", text, strings.Repeat("─", utf8.RuneCountInString(text)))
}

// lineWidth is that of the terminal.
const lineWidth = 80

// wrap writes words in lines of at most the width, the first behind a mark.
func wrap(b *strings.Builder, mark, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(mark))
	if strings.HasPrefix(strings.TrimSpace(mark), "#") { // a comment
		indent = mark + "  "
	}
	line := mark
	width := utf8.RuneCountInString(mark)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if i > 0 && width+1+n > lineWidth {
			b.WriteString(line + "\n")
			line, width = indent, utf8.RuneCountInString(indent)
		} else if i > 0 {
			line += " "
			width++
		}
		line += word
		width += n
	}
	b.WriteString(line + "\n")
}

// number writes a number with blanks between thousands.
func number(n int64) string {
	s := fmt.Sprint(n)
	var parts []string
	for len(s) > 3 {
		parts = append(parts, s[len(s)-3:])
		s = s[:len(s)-3]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return strings.Join(parts, ",")
}

// share writes a part of a whole in percent, with as many digits as tell it
// from none and from all.
func share(part, of int64) string {
	switch {
	case of == 0 || part == 0:
		return "0%"
	case part == of:
		return "100%"
	}
	p := 100 * float64(part) / float64(of)
	switch {
	case p < 0.001:
		return "<0.001%"
	case p > 99.99:
		return ">99.99%"
	case p < 0.1:
		return fmt.Sprintf("%.3f%%", p)
	case p > 99.9 || p < 1:
		return fmt.Sprintf("%.2f%%", p)
	}
	return fmt.Sprintf("%.1f%%", p)
}

// plural returns a number of things.
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// clip cuts a name to a width.
func clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func (l *LogReport) text(b *strings.Builder) {
	formats := map[string][]string{}
	var order []string
	for _, f := range l.Files {
		if formats[f.Format] == nil {
			order = append(order, f.Format)
		}
		formats[f.Format] = append(formats[f.Format], f.Name)
	}
	for _, format := range order {
		names := formats[format]
		what := names[0]
		if len(names) > 1 {
			what = fmt.Sprintf("%d files, %s to %s", len(names), names[0], names[len(names)-1])
		}
		wrap(b, "", what+": "+format)
	}
	line := plural(l.Lines, "line") + ", " + plural(l.Requests, "request")
	if l.Clients > 0 {
		line += " of " + plural(l.Clients, "client")
	}
	for _, n := range []struct {
		n    int64
		what string
	}{
		{l.Aside, "about the server itself"},
		{l.Outside, "outside of the time"}, {l.Unmatched, "not matched"}, {l.Ignored, "of clients left out"},
		{l.Reordered, "put back in order"},
		{l.Costless, "without a cost: taken as 1"},
	} {
		if n.n > 0 {
			line += fmt.Sprintf("; %s %s", number(n.n), n.what)
		}
	}
	wrap(b, "", line)
	for _, name := range sortedKeys(l.Missing) {
		wrap(b, "", fmt.Sprintf("%s had no %s: %s stands for it", plural(l.Missing[name], "request"), name, missing))
	}
	if l.Bad > 0 {
		wrap(b, "", fmt.Sprintf("%s could not be read (%s), such as", plural(l.Bad, "line"), share(l.Bad, l.Lines)))
		for _, e := range l.Examples {
			b.WriteString("  " + clip(e, lineWidth-2) + "\n")
		}
	}
	for _, f := range l.Files {
		if f.Error != "" {
			wrap(b, "", f.Name+": not read to its end: "+f.Error)
		}
	}
	if l.Interrupted {
		b.WriteString("Interrupted: what follows is of what had been read until then.\n")
	}
}

func sortedKeys(m map[string]int64) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func (t *Traffic) text(b *strings.Builder, key string) {
	heading(b, "What happened")
	span := t.To.Sub(t.From)
	fmt.Fprintf(b, "from    %s\nto      %s, %s\n", stamp(t.From), stamp(t.To), Duration(span))
	if t.Units > 0 {
		fmt.Fprintf(b, "units   %s\n", number(t.Units))
	}
	b.WriteByte('\n')
	t.plot(b)
	b.WriteString("\nThe busiest\n")
	for _, busy := range t.Busiest {
		fmt.Fprintf(b, "  %-7s %9s requests, %s\n", busy.Per, number(busy.Requests), stamp(busy.At))
	}
	b.WriteString("\nOf all clients, so many never sent more in one ... of the clock\n")
	fmt.Fprintf(b, "  %-7s %9s %9s %9s %9s %9s\n", "", "50%", "90%", "99%", "99.9%", "all")
	for _, d := range t.Clocks {
		fmt.Fprintf(b, "  %-7s %9s %9s %9s %9s %9s\n", d.Per, number(d.P50), number(d.P90), number(d.P99), number(d.P999), number(d.Max))
	}
	b.WriteString("\nThe least burst that would let everything of so many clients through\n")
	fmt.Fprintf(b, "  %-7s %9s %9s %9s %9s %9s\n", "rate", "50%", "90%", "99%", "99.9%", "all")
	for _, p := range t.Curve {
		fmt.Fprintf(b, "  %-7s %9s %9s %9s %9s %9s\n", p.Rate, number(p.P50), number(p.P90), number(p.P99), number(p.P999), number(p.Max))
		if last := t.Curve[len(t.Curve)-1]; p.P50 == last.P50 && p.P90 == last.P90 && p.P99 == last.P99 && p.P999 == last.P999 && p.Max == last.Max {
			break // so it is for all that are faster
		}
	}
	b.WriteString("\nThe heaviest clients, and the most of each in one\n")
	fmt.Fprintf(b, "  %-32s %9s %6s %8s %8s %8s\n", key, "requests", "share", "second", "minute", "hour")
	for _, h := range t.Heaviest {
		fmt.Fprintf(b, "  %-32s %9s %6s %8s %8s %8s\n", clip(h.Key, 32), number(h.Requests), share(h.Requests, t.Requests), number(h.Second), number(h.Minute), number(h.Hour))
	}
	if len(t.Outliers) > 0 {
		b.WriteByte('\n')
		wrap(b, "", fmt.Sprintf("Far from the rest: in its busiest minute, each of these sent over %d times what 99%% of the clients stay within. If that is abuse, leave it out of the choice with --ignore-key.", outlierFactor))
		for _, h := range t.Outliers {
			fmt.Fprintf(b, "  %-32s %9s a minute\n", clip(h.Key, 32), number(h.Minute))
		}
	}
}

func stamp(t time.Time) string { return t.Format("Mon 2 Jan 2006 15:04:05 MST") }

// plotWidth is how many columns bars are drawn in, after their label.
const plotWidth = 68

// blocks are the heights of a cell in eighths.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// plot draws the requests over time in two rows of blocks.
func (t *Traffic) plot(b *strings.Builder) {
	cells, per := gather(t.Bars, plotWidth)
	full := slices.Max(cells)
	const rows = 4
	for y := rows - 1; y >= 0; y-- {
		label := ""
		if y == rows-1 {
			label = number(full)
		}
		line := make([]rune, len(cells))
		for x, n := range cells {
			eighths := int64(0)
			if n > 0 {
				eighths = max(n*8*rows/full, 1)
			}
			line[x] = blocks[min(max(eighths-int64(8*y), 0), 8)]
		}
		fmt.Fprintf(b, "%9s│%s\n", label, strings.TrimRight(string(line), " "))
	}
	fmt.Fprintf(b, "%10s%s\n", "", strings.Repeat("─", len(cells)))
	fmt.Fprintf(b, "%10srequests each %s from %s\n", "", Duration(int64(t.Bar)*int64(per)), t.Start.Format("2 Jan 15:04:05 MST"))
}

// gather adds neighbours up until there are at most the given number.
func gather(bars []int64, most int) (cells []int64, per int) {
	per = (len(bars) + most - 1) / most
	for i, n := range bars {
		if i%per == 0 {
			cells = append(cells, 0)
		}
		cells[len(cells)-1] += n
	}
	return cells, per
}

func (r *Report) resultsText(b *strings.Builder) {
	fmt.Fprintf(b, "%-28s %11s %7s  %9s %7s  %9s\n", "", "requests", "", "clients", "", "longest")
	fmt.Fprintf(b, "%-28s %11s %7s  %9s %7s  %9s\n", "limit", "denied", "share", "denied", "share", "lock-out")
	for _, res := range r.Results {
		name := res.Limit
		if utf8.RuneCountInString(name) > 28 {
			wrap(b, "", name)
			name = ""
		}
		fmt.Fprintf(b, "%-28s %11s %7s  %9s %7s  %9s\n", name, number(res.Denied), share(res.Denied, res.Requests),
			number(res.ClientsDenied), share(res.ClientsDenied, res.Clients), res.LongestLockout)
	}
	for _, res := range r.Results {
		res.detail(b)
	}
}

// detail says who was denied.
func (res *Result) detail(b *strings.Builder) {
	if res.Denied == 0 {
		return
	}
	name := res.Limit
	fmt.Fprintf(b, "\n%s\n", name)
	wrap(b, "  ", fmt.Sprintf("denied first: %s, %s", res.FirstDenied, res.When()))
	if res.LongestLockout > 0 {
		wrap(b, "  ", fmt.Sprintf("longest in which nothing passed: %s, %s", res.LockedOut, res.LongestLockout))
	}
	if res.UnitsDenied > 0 {
		wrap(b, "  ", "units denied: "+number(res.UnitsDenied))
	}
	for _, d := range res.Top[:min(len(res.Top), 5)] {
		d.text(b)
	}
}

// text says the answer: the limit, whom it denies, how sure that is, and the rule.
func (c *Choice) text(b *strings.Builder) {
	w := &c.Would
	fmt.Fprintf(b, "%s\n\n", c.Limit)
	wrap(b, "", fmt.Sprintf("The tightest limit that denies at most %s is %s; with %.0f%% to grow it is this. On this log it would have denied %s of %s (%s), of %s of %s (%s).",
		c.Target, c.Tightest, 100*c.Margin,
		number(w.Denied), plural(w.Requests, "request"), share(w.Denied, w.Requests),
		number(w.ClientsDenied), plural(w.Clients, "client"), share(w.ClientsDenied, w.Clients)))
	if w.Denied > 0 {
		b.WriteString("\nWhom it would deny\n")
		for _, d := range w.Top {
			d.text(b)
		}
		if n := w.ClientsDenied - int64(len(w.Top)); n > 0 {
			fmt.Fprintf(b, "  and %s more\n", number(n))
		}
	}
	for i, l := range c.Left {
		if i == 0 {
			b.WriteString("\nThose that had no say\n")
		}
		fate := fmt.Sprintf("%s of %s denied", number(l.Denied), plural(l.Requests, "request"))
		if l.Exempt {
			fate = fmt.Sprintf("exempt: all of %s pass", plural(l.Requests, "request"))
		}
		fmt.Fprintf(b, "  %-32s %s\n", clip(plainText(l.Key), 32), fate)
	}
	b.WriteString("\nWho falls off as the limit tightens\n\n")
	c.Cliff.text(b)
	b.WriteString("\nHow sure that is\n")
	for _, d := range c.Doubts {
		wrap(b, "  - ", d)
	}
	fmt.Fprintf(b, "\nThe rule, in shadow first:\n\n%s\nTo look again later:\n\n%s\n", c.Rule, wrapCommand(c.Check))
}

// text says what was denied to a client, and what it did.
func (d *Denied) text(b *strings.Builder) {
	of := ""
	if d.Requests > 0 {
		of = " of " + number(d.Requests)
	}
	fmt.Fprintf(b, "  %-32s %9s denied%s\n", clip(plainText(d.Key), 32), number(d.Denied), of)
	if d.Evidence != nil {
		wrap(b, "      ", d.Evidence.String())
	}
}

// evidenceText shows the candidates.
func (c *Choice) evidenceText(b *strings.Builder) {
	fmt.Fprintf(b, "To deny at most %s, for each rate the least burst:\n\n", c.Target)
	fmt.Fprintf(b, "  %-8s %9s %14s %16s\n", "rate", "burst", "most a minute", "full again after")
	for _, k := range c.Candidates {
		mark := ""
		switch {
		case k.text() == c.Tightest:
			mark = "  ← the tightest"
		case !k.Fits:
			mark = "  too slow"
		}
		fmt.Fprintf(b, "  %-8s %9s %14s %16s%s\n", k.Rate, number(k.Burst), number(k.Minute), k.Recovers, mark)
		if k.Burst == c.Candidates[len(c.Candidates)-1].Burst {
			break // so it is for all that are faster
		}
	}
}

func (k *Candidate) text() string {
	return limitOf(k.rate, k.Burst)
}

// wrapCommand breaks a long command behind backslashes.
func wrapCommand(command string) string {
	if utf8.RuneCountInString(command) <= lineWidth-4 {
		return "    " + command
	}
	return "    " + strings.ReplaceAll(command, " --", " \\\n        --")
}
