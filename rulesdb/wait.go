package rulesdb

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// Wait implements [rulesource.Source]. It checks the version at once, whenever the database
// announces a change or this DB has written one, and at least every [Options.Poll]. It returns an
// error of the database at once, so that the caller can report it.
func (db *DB) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		rings, err := db.bell.Listen(func(ctx context.Context) { db.d.watch(ctx, db) })
		if err != nil {
			return err
		}
		look, stop := context.WithTimeout(ctx, callTimeout)
		v, err := db.version(look, db.sql)
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return db.failed(err)
		case v != held:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rings:
		case <-time.After(db.o.Poll - rand.N(db.o.Poll/5+1)):
		}
	}
}
