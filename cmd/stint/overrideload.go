package main

import (
	"fmt"
	"os"

	"github.com/stint-dev/stint/rulesdb"
)

type overrideLoadCmd struct {
	editorFlags `embed:""`
	authorFlag  `embed:""`
	File        string `arg:"" help:"The file; - is standard input."`
}

// Help is what "stint override load --help" says below the summary.
func (overrideLoadCmd) Help() string {
	return `The first line of the file names the columns: rule, key and limits, and, if you
need them, expires (2027-01-31T12:00:00Z), reason, and key_base64 for keys that are
no text. Limits have ; between them, or are unlimited, or block. A key is as override
set takes it.

Everything is checked first, then put in force as one change. Overrides of customers
that are not in the file stay; a row whose time is over is left out. If it is
interrupted, nothing has changed: run it again, and it goes on from there. For
seven days, stint audit undo takes a load back.

For example:

    stint override export --rules sqlite:old.db >customers.csv
    stint override load customers.csv --rules postgres://stint@127.0.0.1/stint
    printf 'rule,key,limits\napi,partner-1,50/s;100_000/d\n' |
        stint override load - --server http://127.0.0.1:9090 --token-file token`
}

// Run loads overrides.
func (c *overrideLoadCmd) Run(e *env) error {
	from := e.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer file.Close() // it has only been read
		from = file
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	var progress func(read, inForce int)
	if isTerminal(e.err) {
		progress = func(read, inForce int) { fmt.Fprintf(e.err, "\r%d read, %d in force ", read, inForce) }
		defer fmt.Fprintln(e.err)
	}
	n, err := d.LoadOverrides(e.ctx, c.author(), from, progress)
	if err != nil {
		return err
	}
	text := count(n.Set, "override") + " set\n"
	if n.Over > 0 {
		text += "left out: " + count(n.Over, "row") + " whose time is over\n"
	}
	if n.InFlight > 0 {
		text += fmt.Sprintf("Of these, %d with limits in flight: /v1/check, /auth and Envoy's protocol refuse such customers from now on, since they do not learn when a request ends.\n", n.InFlight)
	}
	return wrap(e.out, text, "    ")
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type overrideExportCmd struct {
	editorFlags `embed:""`
	Rule        string `arg:"" optional:"" help:"Only those of this rule."`
	prefixFlag  `embed:""`
}

// Help is what "stint override export --help" says below the summary.
func (overrideExportCmd) Help() string {
	return `It writes what stint override load reads: all that is in force at one moment. What
changes meanwhile is not in it. Of one that fails, what was written is not all.

For example:

    stint override export --rules sqlite:stint.db >customers.csv
    stint override export api --prefix partner- --rules sqlite:stint.db`
}

// Run writes overrides one by one: there may be millions.
func (c *overrideExportCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	if err := ruleOfOverrides(e, d, c.Rule); err != nil {
		return err
	}
	return d.ExportOverrides(e.ctx, rulesdb.Page{Rule: c.Rule, Prefix: c.Prefix}, e.out)
}
