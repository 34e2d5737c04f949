package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
)

// Text writes the report for a terminal of 80 columns.
func (r *Report) Text(w io.Writer) error {
	return write(w, &r.Log, r.Findings, r.asked, r.document())
}

// Text writes the proposal for a terminal of 80 columns. Its file is at name.
func (p *Proposal) Text(w io.Writer, name string) error {
	return write(w, &p.Log, p.Findings, true, p.document(name))
}

// write writes what was read, the findings, and sections. asked says whether a proposal was asked
// for.
func write(w io.Writer, log *LogReport, findings []Finding, asked bool, sections []section) error {
	var b strings.Builder
	log.text(&b)
	for _, f := range findings {
		mark := "note: "
		if f.Stops {
			mark = "NO PROPOSAL: "
			if !asked {
				mark = "NOT TO BE TRUSTED: "
			}
		}
		wrap(&b, "", mark+f.Text)
	}
	for _, one := range sections {
		if one.drawn {
			continue
		}
		heading(&b, one.Title)
		apart := false
		for i := range one.Parts {
			apart = one.Parts[i].write(&b, apart) || apart
		}
	}
	_, err := io.WriteString(w, plainLines(b.String()))
	return err
}

func heading(b *strings.Builder, text string) {
	fmt.Fprintf(b, "\n%s\n%s\n", text, strings.Repeat("─", utf8.RuneCountInString(text)))
}

// lineWidth is the width of the terminal.
const lineWidth = 80

// wrap writes text in lines of at most lineWidth, the first behind a mark.
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

// share writes part/of in percent, with enough digits to tell it from none and from all.
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
	line := wording.Count(l.Lines, "line") + ", " + wording.Count(l.Requests, "request")
	if l.Clients > 0 {
		line += " of " + wording.Count(l.Clients, "client")
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
			line += fmt.Sprintf("; %s %s", wording.Grouped(n.n), n.what)
		}
	}
	wrap(b, "", line)
	for _, name := range sortedKeys(l.Missing) {
		wrap(b, "", fmt.Sprintf("%s had no %s: %s stands for it", wording.Count(l.Missing[name], "request"), name, missing))
	}
	if l.Bad > 0 {
		hold := ""
		if l.BadRequests > l.Bad {
			hold = fmt.Sprintf(" and may hold %s", wording.Count(l.BadRequests, "request"))
		}
		wrap(b, "", fmt.Sprintf("%s could not be read (%s)%s, such as", wording.Count(l.Bad, "line"), share(l.Bad, l.Lines), hold))
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

// write writes a part, with an empty line before it if apart is true. It reports whether it wrote
// anything.
func (p *part) write(b *strings.Builder, apart bool) bool {
	if p.Head == "" && p.Big == "" && p.Say == "" && p.Items == nil && p.Table == nil {
		return false
	}
	if apart {
		b.WriteByte('\n')
	}
	switch {
	case p.Code != "":
		fmt.Fprintf(b, "%s:\n\n%s\n", p.Head, strings.TrimSuffix(p.Code, "\n"))
		return true
	case p.Head != "":
		b.WriteString(p.Head + "\n")
	}
	if p.Big != "" {
		b.WriteString(p.Big + "\n")
	}
	if p.Say != "" {
		mark := ""
		if p.Head != "" {
			mark = "  "
		}
		wrap(b, mark, p.Say)
	}
	for _, one := range p.Items {
		if p.Lists {
			wrap(b, "  - ", one.What)
			continue
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-32s %s", clip(plainText(one.Name), 32), one.What), " ") + "\n")
		if one.More != "" {
			wrap(b, "      ", one.More)
		}
	}
	if p.Table != nil {
		p.Table.write(b)
	}
	return true
}

// write writes a table with columns of their stated width. A name that is longer has a line of its
// own.
func (t *table) write(b *strings.Builder) {
	if t.Caption != "" {
		b.WriteString(t.Caption + "\n")
	}
	above, below := make([]string, len(t.Columns)), make([]string, len(t.Columns))
	for i, c := range t.Columns {
		var two bool
		if above[i], below[i], two = strings.Cut(c.Name, "|"); !two {
			above[i], below[i] = "", c.Name
		}
	}
	if strings.Join(above, "") != "" {
		t.line(b, above, "")
	}
	t.line(b, below, "")
	for _, r := range t.Rows {
		t.line(b, r.Cells, r.Mark)
	}
}

func (t *table) line(b *strings.Builder, cells []string, mark string) {
	line := ""
	if mark != "" {
		mark = "  ← " + mark
	}
	for i, c := range t.Columns {
		cell := plainText(cells[i])
		if width := -c.width; c.Names() && i < len(t.Columns)-1 && utf8.RuneCountInString(cell) > width {
			b.WriteString(clip(cell, lineWidth) + "\n")
			cell = ""
		}
		if i > 0 {
			line += "  "
		}
		if room := lineWidth - utf8.RuneCountInString(line) - utf8.RuneCountInString(mark); c.Names() && i == len(t.Columns)-1 && i > 0 {
			cell = clip(cell, max(room, 1))
		}
		line += fmt.Sprintf("%*s", c.width, cell)
	}
	if mark != "" {
		line = strings.TrimRight(line, " ") + mark
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func stamp(t time.Time) string { return t.Format("Mon 2 Jan 2006 15:04:05 MST") }

func (k *Candidate) text() string {
	return limitOf(k.rate, k.Burst)
}

// wrapCommand breaks a long command with backslashes.
func wrapCommand(command string) string {
	if utf8.RuneCountInString(command) <= lineWidth-4 {
		return command
	}
	return strings.ReplaceAll(command, " --", " \\\n    --")
}
