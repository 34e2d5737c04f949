package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules/rulesworker"
	"github.com/stint-dev/stint/service/rulesapi"
)

// retentionFlags say how much of its history a database of rules keeps.
type retentionFlags struct {
	KeepRevisions int    `name:"keep-revisions" env:"STINT_KEEP_REVISIONS" default:"1000" placeholder:"N" more:"" help:"How many revisions the database of rules keeps (${default}); 0 keeps all."`
	KeepPast      string `name:"keep-past" env:"STINT_KEEP_PAST" default:"365d" placeholder:"DURATION" more:"" help:"How long it keeps audit entries, and overrides, plans and tokens that ended (${default}); none keeps all."`
}

// retention reads the flags.
func (c *retentionFlags) retention() (keep rulesdb.Retention, err error) {
	if c.KeepRevisions < 0 {
		return keep, usage("--keep-revisions", "%d: at least 1, or 0 to keep all", c.KeepRevisions)
	}
	keep.Revisions = c.KeepRevisions
	if c.KeepPast == "none" {
		return keep, nil
	}
	keep.Older, err = rulesapi.ParseLasts(c.KeepPast)
	if err == nil && keep.Older < time.Hour {
		err = fmt.Errorf("%q: at least 1h, or none to keep all", c.KeepPast)
	}
	if err != nil {
		return keep, &usageError{"--keep-past", err}
	}
	return keep, nil
}

// retain removes what the flags do not keep from a database, in the background, until ctx
// is done.
func (c *retentionFlags) retain(ctx context.Context, db *rulesdb.DB, name string, background *sync.WaitGroup, logger *slog.Logger) error {
	keep, err := c.retention()
	if err != nil || keep == (rulesdb.Retention{}) {
		return err
	}
	background.Go(func() { (&rulesworker.Retainer{From: db, Keep: keep, Name: name, Log: logger}).Run(ctx) })
	return nil
}
