package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint/rulesdb"
)

type auditCmd struct {
	List auditListCmd `cmd:"" default:"withargs" help:"Show who changed what, newest first: stint audit says it as well."`
	Undo undoCmd      `cmd:"" help:"Undo an override, a block, a load, a reset or a refund."`
}

// Help is what "stint audit --help" says below the summary.
func (auditCmd) Help() string {
	return `Shows who changed what in a database of rules, or by a server whose rules are in a
file, and takes a change back.

For example:

    stint audit --rules postgres://stint@127.0.0.1/stint
    stint audit -n 10 --server http://127.0.0.1:9090
    stint audit undo 17 --server http://127.0.0.1:9090`
}

type auditListCmd struct {
	editorFlags `embed:""`
	Last        int `short:"n" default:"100" placeholder:"N" help:"At most the last N (${default})."`
	jsonFlag    `embed:""`
}

// Run lists acts.
func (c *auditListCmd) Run(e *env) error {
	if c.Last < 1 {
		return usage("-n", "%d: at least 1", c.Last)
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	all, err := collect(pages(c.Last, func(last rulesdb.AuditEntry, n int) ([]rulesdb.AuditEntry, error) {
		return d.Audit(e.ctx, last.Number, n)
	}))
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, append([]rulesdb.AuditEntry{}, all...))
	}
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%d  %s  %s  %s %s", d.Number, clock(d.At), shown(d.Author), inLine(d.Act.Act), inLine(d.Subject))
		var said []string
		if d.Now != "" {
			said = append(said, inLine(d.Now))
		}
		if was := before(d.Was); was != "" {
			said = append(said, inLine(was))
		}
		if len(said) > 0 {
			b.WriteString(": " + strings.Join(said, ", "))
		}
		if d.Reason != "" {
			fmt.Fprintf(&b, " (%s)", inLine(d.Reason))
		}
		b.WriteByte('\n')
	}
	return wrap(e.out, b.String(), "    ")
}

// before describes the state before an act. Of a reset and a refund, which keep it as JSON,
// it says what they gave back.
func before(was string) string {
	if was == "" {
		return ""
	}
	if was != "null" && was[0] != '[' {
		return "before " + was
	}
	type charged struct {
		Label string
		Gave  int64
		State string // that limits of several plans share
	}
	var gave []charged
	if json.Unmarshal([]byte(was), &gave) != nil { // long JSON is cut off in the audit
		return ""
	}
	var parts []string
	for i, one := range gave {
		if one.State != "" && slices.ContainsFunc(gave[:i], func(o charged) bool { return o.State == one.State }) {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d of %s", one.Gave, one.Label))
	}
	if len(parts) == 0 {
		return "nothing was in use, as far as is known"
	}
	return "gave back " + strings.Join(parts, ", ")
}
