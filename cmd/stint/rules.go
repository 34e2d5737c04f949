package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

type rulesCmd struct {
	Push     rulesPushCmd     `cmd:"" help:"Check a rules file, show what it changes, and put it in force."`
	Pull     rulesPullCmd     `cmd:"" help:"Print the rules in force, or those of a revision."`
	Show     rulesShowCmd     `cmd:"" help:"Show who published a revision, when, and what it changed."`
	Log      rulesLogCmd      `cmd:"" help:"List revisions, newest first."`
	Diff     rulesDiffCmd     `cmd:"" help:"Show how revisions or files differ."`
	Rollback rulesRollbackCmd `cmd:"" help:"Put an earlier revision in force again, as a new one."`
	Nodes    nodesCmd         `cmd:"" help:"Show which server uses which rules of a database."`
	Copy     copyCmd          `cmd:"" help:"Copy rules from a database to Redis or a directory, where servers read them."`
	Migrate  dbMigrateCmd     `cmd:"" help:"Create or update the tables of a database of rules."`
	Status   dbStatusCmd      `cmd:"" help:"Show what a database of rules contains."`
	Prune    dbPruneCmd       `cmd:"" help:"Remove old revisions and old audit entries."`
	Accept   rulesAcceptCmd   `cmd:"" help:"Confirm the database although nodes have something newer, as after a restore."`
}

// Help is what "stint rules --help" says below the summary.
func (rulesCmd) Help() string {
	return `A database has revisions of the rules, customers' own limits, and the audit. A
revision is a whole rules file, and is never changed. Every server that follows
the database takes a new one within moments; stint rules nodes shows which server
uses which. docs/RULES-DB.md has the details.

For example:

    export STINT_RULES=postgres://stint@127.0.0.1/stint
    stint rules migrate
    stint rules push stint.yaml --comment 'more for partners'
    stint rules push stint.yaml --if-changed
    stint rules log
    stint rules rollback 3 --comment 'too much for partners'`
}

type rulesPushCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	File          string `arg:"" help:"The rules file, YAML or JSON; - is standard input."`
	revisionFlags `embed:""`
	IfChanged     bool `help:"Do nothing if these rules are in force already."`
	DryRun        bool `help:"Only check, and show what it changes."`

	DenyAtMost        *string `placeholder:"SHARE" help:"Rehearse first, and publish nothing if a greater share of the requests that a server recorded would be newly denied, such as 0.1%."`
	RehearseAt        string  `env:"STINT_REHEARSE_AT" placeholder:"URL" help:"With --deny-at-most: the admin address of that server. The default is --server."`
	RehearseTokenFile string  `env:"STINT_REHEARSE_TOKEN_FILE" placeholder:"FILE" help:"With --rehearse-at: a file with your token there. The default is --token-file."`

	jsonFlag `embed:""`
}

// Help is what "stint rules push --help" says below the summary.
func (rulesPushCmd) Help() string {
	return `Nothing is written if the file is wrong, or if someone else has published in the
meantime. With --if-changed you can run it as often as you like, as in CI.

For example:

    stint rules push stint.yaml --rules sqlite:stint.db
    stint rules push stint.yaml --if-changed --comment "$(git log -1 --format=%h)"
    stint rules push - --parent 7 <stint.yaml
    stint rules push stint.yaml --server https://10.0.0.1:9090 --token-file token \
        --deny-at-most 0.1%`
}

// Run publishes a file.
func (c *rulesPushCmd) Run(e *env) error {
	name, document, err := readRules(e, c.File)
	if err != nil {
		return err
	}
	c.makes = !c.DryRun
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	f, err := d.Check(name, document)
	if err != nil {
		return err
	}
	held, err := rulesapi.InForce(e.ctx, d)
	if err != nil {
		return err
	}
	if c.IfChanged && held.Number > 0 && held.Hash == rulesource.HashOf(document) {
		if c.JSON {
			return printRevision(e, held)
		}
		_, err := fmt.Fprintf(e.out, "revision %d is in force, and the same\n", held.Number)
		return err
	}
	if !c.JSON {
		if err := c.showChanges(e, held, name, document, f); err != nil {
			return err
		}
	}
	if err := c.rehearsed(e, name, document); err != nil {
		return err
	}
	if c.DryRun {
		return c.would(e, held, document)
	}
	parent := parentOf(c.Parent, held)
	r, err := d.Publish(e.ctx, parent, rulesdb.Revision{Author: c.author(), Comment: c.Comment, Name: name, Document: document})
	if err != nil {
		return conflict(err)
	}
	if c.JSON {
		return printRevision(e, r)
	}
	_, err = fmt.Fprintf(e.out, "revision %d is in force, %s\n", r.Number, count(len(f.Rules.Names()), "rule"))
	return err
}

// would says what a push of a valid file would do.
func (c *rulesPushCmd) would(e *env, held rulesdb.Revision, document []byte) error {
	if c.JSON {
		return nil
	}
	says := "would be published; nothing was written\n"
	if held.Number > 0 && held.Hash == rulesource.HashOf(document) {
		says = fmt.Sprintf("revision %d is in force, and the same\n", held.Number)
	}
	_, err := fmt.Fprint(e.out, says)
	return err
}

// showChanges shows what the file changes, and the rules whose keys begin with nothing used.
func (c *rulesPushCmd) showChanges(e *env, held rulesdb.Revision, name string, document []byte, f *rules.File) error {
	text := rulesapi.Diff(fmt.Sprintf("revision %d", held.Number), name, string(held.Document), string(document))
	if held.Number == 0 {
		text = "" // everything is new
	} else if before, err := rules.Decode(held.Name, held.Document); err == nil { // else only an older program can read it
		for _, change := range f.Rules.Compare(before.Rules) {
			if change.Fresh {
				text += change.String() + "\n"
			}
		}
	}
	if len(f.Warnings) > 0 {
		text += count(len(f.Warnings), "warning") + ": stint validate says which\n"
	}
	_, err := fmt.Fprint(e.out, text)
	return err
}

// readRules reads a file, or standard input as -.
func readRules(e *env, path string) (name string, document []byte, err error) {
	if path == "-" {
		document, err = rules.ReadAll(e.in)
		return "stint.yaml", document, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", nil, usage("file", "%s is a directory: name the file in it", path)
	}
	document, err = readFile(path)
	return filepath.Base(path), document, err
}

// conflict adds a hint to the error if another author has published meanwhile.
func conflict(err error) error {
	if errors.Is(err, rulesdb.ErrConflict) {
		return fmt.Errorf("%w; nothing was written: stint rules pull or diff shows what is in force, then push again", err)
	}
	return err
}

// parentOf returns the revision that must be in force: the flag's, else the one found.
func parentOf(flag int64, held rulesdb.Revision) int64 {
	if flag < 0 {
		return held.Number
	}
	return flag
}

// printRevision writes a revision as JSON, without its document.
func printRevision(e *env, r rulesdb.Revision) error {
	r.Document = nil
	return printJSON(e.out, rulesapi.RevisionOf(r))
}

// diff returns the difference between the documents of two revisions.
func diff(from, to rulesdb.Revision) string {
	name := func(r rulesdb.Revision) string { return fmt.Sprintf("revision %d", r.Number) }
	return rulesapi.Diff(name(from), name(to), string(from.Document), string(to.Document))
}

type rulesPullCmd struct {
	editorFlags `embed:""`
	Version     int64  `arg:"" optional:"" name:"revision" help:"The revision. The default is the one in force."`
	Output      string `short:"o" placeholder:"FILE" help:"Write to a file."`
}

// Help is what "stint rules pull --help" says below the summary.
func (rulesPullCmd) Help() string {
	return `For example:

    stint rules pull --rules sqlite:stint.db -o stint.yaml
    stint rules pull 3 --rules postgres://stint@127.0.0.1/stint`
}

// Run writes a document.
func (c *rulesPullCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	r, err := revision(e, d, c.Version)
	if err != nil {
		return err
	}
	if c.Output != "" {
		return os.WriteFile(c.Output, r.Document, 0o644)
	}
	_, err = e.out.Write(r.Document)
	return err
}

// revision returns a revision, the one in force for 0.
func revision(e *env, d *rulesapi.Editor, number int64) (rulesdb.Revision, error) {
	r, err := d.Revision(e.ctx, number)
	if number == 0 && errors.Is(err, rulesdb.ErrNotFound) {
		return r, fmt.Errorf("%s: %w", d, rulesource.ErrEmpty)
	}
	return r, err
}

type rulesShowCmd struct {
	editorFlags `embed:""`
	Version     int64 `arg:"" optional:"" name:"revision" help:"The revision. The default is the one in force."`
	jsonFlag    `embed:""`
}

// Run shows a revision.
func (c *rulesShowCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	r, err := revision(e, d, c.Version)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, rulesapi.RevisionOf(r))
	}
	text := fmt.Sprintf("revision %d\nauthor    %s\nat        %s\nhash      %s\nname      %s\n", r.Number, shown(r.Author), clock(r.Created), r.Hash, shown(r.Name))
	if r.Comment != "" {
		text += "comment   " + r.Comment + "\n"
	}
	if err := wrap(e.out, text, "          "); err != nil {
		return err
	}
	before, err := d.Revision(e.ctx, max(r.Parent, 1))
	if r.Parent == 0 || err != nil { // the parent may have been removed
		_, err = fmt.Fprintf(e.out, "\n%s", r.Document)
		return err
	}
	_, err = fmt.Fprintf(e.out, "\n%s", diff(before, r))
	return err
}

type rulesLogCmd struct {
	editorFlags `embed:""`
	Last        int `short:"n" placeholder:"N" help:"Only the last N. The default is all."`
	jsonFlag    `embed:""`
}

// Run lists revisions.
func (c *rulesLogCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	all, err := collect(pages(c.Last, func(last rulesdb.Revision, n int) ([]rulesdb.Revision, error) {
		return d.Revisions(e.ctx, last.Number, n)
	}))
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, rulesapi.List(all, rulesapi.RevisionOf))
	}
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%4d  %s  %s  %s\n", r.Number, clock(r.Created), shown(r.Author), r.Comment)
	}
	return wrap(e.out, b.String(), "      ")
}

type rulesDiffCmd struct {
	editorFlags `embed:""`
	From        string `arg:"" help:"A revision's number, or a rules file that the rules in force are compared with."`
	To          string `arg:"" optional:"" help:"A revision's number or a file. The default is the one in force, or the file if only that is given."`
}

// Help is what "stint rules diff --help" says below the summary.
func (rulesDiffCmd) Help() string {
	return `The status is 0 also if there is a difference.

For example:

    stint rules diff stint.yaml --rules sqlite:stint.db    what a push would change
    stint rules diff 3 --rules sqlite:stint.db             what changed since revision 3
    stint rules diff 3 5 --rules sqlite:stint.db`
}

// Run shows a difference.
func (c *rulesDiffCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	from, to := c.From, c.To
	if _, err := strconv.ParseInt(from, 10, 64); err != nil && to == "" {
		from, to = "0", from // a file alone: what pushing it would change
	}
	fromName, a, err := c.side(e, d, from)
	if err != nil {
		return err
	}
	toName, b, err := c.side(e, d, cmp.Or(to, "0"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(e.out, rulesapi.Diff(fromName, toName, a, b))
	return err
}

// side returns one side of a difference.
func (c *rulesDiffCmd) side(e *env, d *rulesapi.Editor, text string) (name, document string, err error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		name, data, err := readRules(e, text)
		return name, string(data), err
	}
	r, err := revision(e, d, number)
	return fmt.Sprintf("revision %d", r.Number), string(r.Document), err
}

type rulesRollbackCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	Version       int64 `arg:"" name:"revision" help:"The revision to go back to."`
	revisionFlags `embed:""`
	jsonFlag      `embed:""`
}

// Help is what "stint rules rollback --help" says below the summary.
func (rulesRollbackCmd) Help() string {
	return `What the revision holds is published again, as a new revision: nothing of the
history is lost, and a roll back can be rolled back.

For example:

    stint rules rollback 3 --rules sqlite:stint.db --comment 'partners complain'`
}

// Run publishes an earlier revision again.
func (c *rulesRollbackCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	held, err := revision(e, d, 0)
	if err != nil {
		return err
	}
	parent := parentOf(c.Parent, held)
	r, err := d.Rollback(e.ctx, parent, c.Version, c.author(), c.Comment)
	if err != nil {
		return conflict(err)
	}
	if c.JSON {
		return printRevision(e, r)
	}
	_, err = fmt.Fprintf(e.out, "%srevision %d is in force: that of revision %d\n", diff(held, r), r.Number, c.Version)
	return err
}

type rulesAcceptCmd struct {
	editorFlags `embed:""`
	authorFlag  `embed:""`
	reasonFlag  `embed:""`
}

// Help is what "stint rules accept --help" says below the summary.
func (rulesAcceptCmd) Help() string {
	return `Servers that find an older state than they hold, or another database, keep what
they hold and say so. Where that is meant, this makes them take it.

For example:

    stint rules accept --rules postgres://stint@127.0.0.1/stint \
        --reason 'restored from the backup of this morning'`
}

// Run makes all servers take the present state of the database.
func (c *rulesAcceptCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	if err := d.Accept(e.ctx, c.author(), c.Reason); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, "every server takes what the database holds now")
	return err
}
