package commandline

import (
	"cmp"
	"fmt"
	"go/doc/comment"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// widest is how many columns the help has, if the terminal has as many.
const widest = 80

// columns returns how wide a line of the help may be.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return min(n, widest)
	}
	return widest
}

// WriteHelp writes the help of c.
func (c *Command) WriteHelp(w io.Writer) error {
	h := helpText{width: columns()}
	h.line("Usage: " + c.root().Name + " " + c.Summary())
	for _, text := range []string{c.Help, c.Detail()} {
		if text != "" {
			h.line("")
			h.paragraphs(text)
		}
	}
	if len(c.Args) > 0 {
		h.line("\nArguments:")
		var rows [][2]string
		for _, a := range c.Args {
			rows = append(rows, [2]string{a.Summary(), a.described()})
		}
		h.table(rows)
	}
	h.flags(c.AllFlags())
	var rows [][2]string
	for _, child := range c.Children {
		if !child.Hidden {
			rows = append(rows, [2]string{child.Path(), child.Help})
		}
	}
	if len(rows) > 0 {
		h.line("\nCommands:")
		h.table(rows)
	}
	if c.Parent == nil && len(rows) > 0 {
		h.line(fmt.Sprintf("\nRun \"%s <command> --help\" for more information on a command.", c.Name))
	}
	_, err := io.WriteString(w, h.String())
	return err
}

// A helpText is the help as far as it is written.
type helpText struct {
	strings.Builder
	width int
}

func (h *helpText) line(text string) { h.WriteString(strings.TrimRight(text, " ") + "\n") }

// paragraphs writes text in the form of Go's doc comments.
func (h *helpText) paragraphs(text string) {
	for line := range strings.SplitSeq(wrapped(text, "    ", h.width), "\n") {
		h.line(line)
	}
}

// flags writes a part for each group, those without one first. A blank line is
// between those of one command and those of the next.
func (h *helpText) flags(levels [][]*Value) {
	titles := []string{""}
	for _, level := range levels {
		for _, f := range level {
			if !slices.Contains(titles, f.Group) {
				titles = append(titles, f.Group)
			}
		}
	}
	for _, title := range titles {
		var in [][]*Value
		for _, level := range levels {
			if of := slices.DeleteFunc(slices.Clone(level), func(f *Value) bool { return f.Group != title }); len(of) > 0 {
				in = append(in, of)
			}
		}
		title = cmp.Or(title, "Flags:")
		h.line("\n" + title)
		h.table(flagRows(in))
	}
}

func flagRows(levels [][]*Value) (rows [][2]string) {
	indent := ""
	if slices.ContainsFunc(slices.Concat(levels...), func(f *Value) bool { return f.Short != 0 }) {
		indent = "    "
	}
	for i, level := range levels {
		if i > 0 {
			rows = append(rows, [2]string{})
		}
		for _, f := range level {
			before := indent
			if f.Short != 0 {
				before = "-" + string(f.Short) + ", "
			}
			rows = append(rows, [2]string{before + f.Summary(), f.described()})
		}
	}
	return rows
}

// described returns the help of a value with its environment variable.
func (v *Value) described() string {
	if v.Env == "" {
		return v.Help
	}
	text, stop := strings.CutSuffix(v.Help, ".")
	text = strings.TrimSpace(text + " ($" + v.Env + ")")
	if stop {
		text += "."
	}
	return text
}

// table writes two columns, a little indented. What is too long for the first
// stands on a line of its own.
func (h *helpText) table(rows [][2]string) {
	const indent, gap, least = 2, 4, 30
	width := h.width - indent
	most := max(375*width/1000, least)
	left := 0
	for _, row := range rows {
		if n := len(row[0]); n < most {
			left = max(left, n)
		}
	}
	margin := strings.Repeat(" ", indent)
	hang := strings.Repeat(" ", left+gap)
	for _, row := range rows {
		lines := strings.Split(wrapped(row[1], "  ", width-left-gap), "\n")
		first := fmt.Sprintf("%-*s", left, row[0])
		if len(row[0]) < most {
			first += strings.Repeat(" ", gap) + lines[0]
			lines = lines[1:]
		}
		h.line(margin + first)
		for _, line := range lines {
			h.line(margin + hang + line)
		}
	}
}

// wrapped writes text in the form of Go's doc comments in lines of that width.
func wrapped(text, code string, width int) string {
	p := comment.Printer{TextCodePrefix: code, TextWidth: max(width, 10)}
	return strings.TrimRight(string(p.Text(new(comment.Parser).Parse(strings.TrimSpace(text)))), "\n")
}
