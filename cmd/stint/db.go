package main

import (
	"cmp"
	"fmt"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

type dbMigrateCmd struct {
	backendFlags `embed:""`
}

// Run brings the schema up to date.
func (c *dbMigrateCmd) Run(e *env) error {
	c.makes = true
	db, err := c.database()
	if err != nil {
		return err
	}
	defer db.Close() // it has only read since the migration
	from, to, err := db.Migrate(e.ctx)
	if err != nil {
		return err
	}
	if from == to {
		_, err = fmt.Fprintf(e.out, "%s has version %d of the schema\n", db, to)
		return err
	}
	_, err = fmt.Fprintf(e.out, "%s: from version %d of the schema to %d\n", db, from, to)
	return err
}

type dbStatusCmd struct {
	backendFlags `embed:""`
	jsonFlag     `embed:""`
}

// Run prints the state of the database.
func (c *dbStatusCmd) Run(e *env) error {
	db, err := c.database()
	if err != nil {
		return err
	}
	defer db.Close() // it has only read
	s, err := db.Status(e.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, struct {
			Schema    int    `json:"schema"`
			Program   int    `json:"program"`
			Oldest    int    `json:"oldest"`
			Identity  string `json:"identity"`
			Version   int64  `json:"version"`
			Change    int64  `json:"change"`
			Overrides int64  `json:"overrides"`
			Plans     int64  `json:"plans"`
		}{s.Schema, s.Program, s.Oldest, s.Identity, s.Revision, s.Change, s.Overrides, s.Plans})
	}
	text := fmt.Sprintf("%s\nschema     %d, this program is of %d\n", db, s.Schema, s.Program)
	if s.Schema == 0 {
		text += "there are no tables yet: run stint rules migrate\n"
	} else {
		text += fmt.Sprintf("identity   %s\nrevision   %d\nchange     %d\noverrides  %d\nplans      %d\n", s.Identity, s.Revision, s.Change, s.Overrides, s.Plans)
	}
	return wrap(e.out, text, "    ")
}

type dbPruneCmd struct {
	backendFlags `embed:""`
	authorFlag   `embed:""`
	Revisions    int    `default:"1000" placeholder:"N" help:"How many revisions to keep (${default})."`
	Older        string `default:"365d" placeholder:"DURATION" help:"Remove audit entries, ended overrides, plans and tokens, and servers not seen, that are older than this (${default})."`
}

// Help is what "stint rules prune --help" says below the summary.
func (dbPruneCmd) Help() string {
	return `Workers, and servers whose database user has the right, do this by themselves, as
--keep-revisions and --keep-past say. What is in force stays.

For example:

    stint rules prune --revisions 200 --older 90d --rules sqlite:stint.db`
}

// Run removes old revisions, and audit entries, overrides, plans and tokens that ended.
func (c *dbPruneCmd) Run(e *env) error {
	older, err := rulesapi.ParseLasts(c.Older)
	if err != nil {
		return &usageError{"--older", err}
	}
	if c.Revisions < 1 {
		return usage("--revisions", "%d: at least 1 is kept", c.Revisions)
	}
	db, err := c.database()
	if err != nil {
		return err
	}
	defer db.Close() // what was written is committed
	gone, err := db.Prune(e.ctx, c.author(), rulesdb.Retention{Revisions: c.Revisions, Older: older})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, "removed: "+cmp.Or(gone.String(), "nothing"))
	return err
}
