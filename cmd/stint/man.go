package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type manCmd struct {
	Dir string `arg:"" help:"The directory for the pages, such as /usr/local/share/man/man1. It is created if it is missing."`
}

// Help is what "stint man --help" says below the summary.
func (manCmd) Help() string {
	return `A page for stint and one for each command, from the same text as --help.

For example:

    stint man /usr/local/share/man/man1
    man stint-serve`
}

// Run writes the pages.
func (c *manCmd) Run(e *env) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	pages := manPages(e.program.Node)
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(c.Dir, p.name+".1"), []byte(p.text), 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(e.out, "%d pages in %s\n", len(pages), c.Dir)
	return err
}

// A manPage is one page, in the macros of man(7).
type manPage struct{ name, text string }

// manPages returns the page of a command and those below it.
func manPages(at *kong.Node) []manPage {
	pages := []manPage{{pageName(at), writePage(at)}}
	for _, n := range at.Children {
		if !n.Hidden {
			pages = append(pages, manPages(n)...)
		}
	}
	return pages
}

// pageName returns the name of a command's page: stint, stint-serve, stint-rules-push.
func pageName(at *kong.Node) string {
	return strings.ReplaceAll(at.FullPath(), " ", "-")
}

func writePage(at *kong.Node) string {
	var b strings.Builder
	name := pageName(at)
	// No date: the same program writes the same page.
	fmt.Fprintf(&b, ".TH %s 1 \"\" stint \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n",
		roff(strings.ToUpper(name)), roff(name), roff(strings.TrimSuffix(at.Help, ".")), roff("stint "+strings.TrimSpace(at.Summary())))
	if detail := at.Detail; detail != "" {
		b.WriteString(".SH DESCRIPTION\n")
		paragraphs(&b, detail)
	}
	under := "" // the section
	section := func(title string) {
		if title != under {
			b.WriteString(".SH " + title + "\n")
			under = title
		}
	}
	for _, arg := range at.Positional {
		section("ARGUMENTS")
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(arg.Summary()), roff(arg.Help))
	}
	for _, f := range slices.Concat(at.AllFlags(true)...) {
		if f.Name == "version" && at.Parent != nil {
			continue
		}
		section("OPTIONS")
		word := f.Summary()
		if f.Short != 0 {
			word = fmt.Sprintf("-%c, %s", f.Short, word)
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(word), roff(kong.DefaultHelpValueFormatter(f.Value)))
	}
	for _, n := range at.Children {
		if !n.Hidden {
			section("COMMANDS")
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(n)), roff(n.Help))
		}
	}
	if at.Parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(at.Parent)))
	}
	return b.String()
}

// paragraphs writes text as paragraphs. Indented lines stay as they are.
func paragraphs(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "    ")
		switch {
		case indented && !verbatim:
			b.WriteString(".PP\n.RS 4\n.nf\n")
			verbatim = true
		case !indented && line != "" && verbatim:
			b.WriteString(".fi\n.RE\n.PP\n")
			verbatim = false
		}
		switch {
		case line != "":
			b.WriteString(roff(strings.TrimPrefix(line, "    ")) + "\n")
		case !verbatim:
			b.WriteString(".PP\n")
		}
	}
	if verbatim {
		b.WriteString(".fi\n.RE\n")
	}
}

// roff escapes text, so that a page shows it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
