package plan

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
)

// Text writes the proposal for a terminal of 80 columns; the file is at name.
func (p *Proposal) Text(w io.Writer, name string) error {
	var b strings.Builder
	p.Log.text(&b)
	for _, f := range p.Findings {
		mark := "note: "
		if f.Stops {
			mark = "NO PROPOSAL: "
		}
		wrap(&b, "", mark+f.Text)
	}
	if p.File == "" {
		_, err := io.WriteString(w, b.String())
		return err
	}
	width := 8
	for _, r := range p.Routes {
		width = max(width, utf8.RuneCountInString(r.title()))
	}
	fmt.Fprintf(&b, "\n%-*s %10s %8s  %-18s %s\n", width, "route", "requests", "clients", "limit", "apart")
	for _, r := range p.Routes {
		limit, apart := r.Limit, ""
		if limit == "" {
			limit = "too little"
		}
		if r.Name == "health" {
			limit = "unlimited"
		}
		becomes := map[string]string{"abuse": "of abuse, denied", "heavy": "heavy, denied", "partner": "with a limit of their own"}
		if limit == "too little" {
			becomes = map[string]string{"abuse": "of abuse, no rule", "heavy": "heavy, no rule", "partner": "partner, no rule"}
		}
		for _, verdict := range []string{"abuse", "heavy", "partner"} {
			n := 0
			for _, a := range r.Apart {
				if a.Verdict == verdict {
					n++
				}
			}
			if n > 0 {
				apart += fmt.Sprintf(" %d %s", n, becomes[verdict])
			}
		}
		fmt.Fprintf(&b, "%-*s %10s %8s  %-18s%s\n", width, r.title(), number(r.Requests), number(r.Clients), limit, apart)
		for _, a := range r.Apart {
			wrap(&b, "    ", fmt.Sprintf("%s: %s: %s", plainText(a.Key), a.Verdict, a.Evidence))
		}
	}
	fmt.Fprintf(&b, "\nWritten to %s, all in shadow. Then:\n\n    stint validate %s\n    stint rehearse %s --log LATER.log\n", name, wording.QuoteShell(name), wording.QuoteShell(name))
	_, err := io.WriteString(w, b.String())
	return err
}

// Refused reports whether the log cannot bear a proposal.
func (p *Proposal) Refused() bool { return p.File == "" }
