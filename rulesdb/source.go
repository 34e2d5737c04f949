package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

var _ rulesource.Source = (*DB)(nil)

// Load implements [rulesource.Source]. It reads the version row, the document and the changes in
// one transaction.
func (db *DB) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	s, err := db.load(ctx, held, to)
	return s, db.failed(err)
}

func (db *DB) load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	ctx, w := watchdog(ctx, callTimeout)
	defer w.stop()
	tx, err := db.sql.BeginTx(ctx, db.d.snapshot)
	if err != nil {
		return nil, w.why(err)
	}
	defer func() { _ = tx.Rollback() }() // the transaction has only read
	s := new(rulesource.Snapshot)
	oldest, err := db.readState(ctx, tx, s)
	if err != nil {
		return nil, w.why(err)
	}
	w.alive()
	if s.Version.Revision == 0 {
		return s, rulesource.ErrEmpty
	}
	var r Revision
	var has bool
	if has, s.Strayed, err = db.has(ctx, tx, held, s.Version); err != nil {
		return nil, w.why(err)
	}
	same := has && held.Identity == s.Version.Identity
	if !same || held.Revision != s.Version.Revision {
		w.wait(documentTimeout)
		if r, err = db.revision(ctx, tx, s.Version.Revision); err != nil {
			return nil, w.why(err)
		}
		s.Document = r.Document
	} else if err = tx.QueryRowContext(ctx, db.d.bind("SELECT name, hash FROM stint_revisions WHERE number = ?"), s.Version.Revision).Scan(&r.Name, &r.Hash); err != nil {
		return nil, w.why(err)
	}
	s.Name, s.Hash = r.Name, r.Hash
	w.wait(callTimeout)
	since, whole := held.Change, false
	overrides, plans := "", ""
	if !same || since < oldest || since > s.Version.Change {
		since, whole = 0, true // a full load needs no removed rows
		overrides, plans = " AND action <> 0 AND (expires = 0 OR expires > "+db.d.micros+")", " AND plan <> ''"
	}
	err = to.Begin(s, whole)
	plansOnly := errors.Is(err, rulesource.ErrPlansOnly)
	if err != nil && !plansOnly {
		return nil, err
	}
	if since == s.Version.Change && !whole {
		return s, nil
	}
	if !plansOnly {
		if err := readChanges(ctx, tx, w, scanOverride, to.Override, db.d.bind("SELECT "+overrideColumns+" FROM stint_overrides WHERE change_number > ?"+overrides), since); err != nil {
			return nil, w.why(err)
		}
	}
	return s, w.why(readChanges(ctx, tx, w, scanPlan, to.Plan, db.d.bind("SELECT "+planColumns+" FROM stint_plans WHERE change_number > ?"+plans), since))
}

// readState reads the version row and the database's clock.
func (db *DB) readState(ctx context.Context, tx *sql.Tx, s *rulesource.Snapshot) (oldest int64, err error) {
	before := time.Now()
	var at int64
	err = tx.QueryRowContext(ctx, "SELECT identity, epoch, revision, change_number, mark, oldest_change, "+db.d.micros+" FROM stint_state").
		Scan(&s.Version.Identity, &s.Version.Epoch, &s.Version.Revision, &s.Version.Change, &s.Version.Mark, &oldest, &at)
	s.Ahead, s.Doubt = ahead(before, at)
	return oldest, err
}

// ahead returns how far the database's clock, which showed at, is ahead of this machine's, and the
// uncertainty of that.
func ahead(before time.Time, at int64) (ahead, doubt time.Duration) {
	took := time.Since(before)
	return moment(at).Sub(before.Add(took / 2)), took / 2
}

var _ rulesource.Clock = (*DB)(nil)

// Clock implements [rulesource.Clock].
func (db *DB) Clock(ctx context.Context) (time.Duration, time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	conn, err := db.sql.Conn(ctx) // first, since the time to connect would add to the uncertainty
	if err != nil {
		return 0, 0, db.failed(err)
	}
	defer conn.Close() // returns it to the pool
	var at int64
	before := time.Now()
	if err := conn.QueryRowContext(ctx, "SELECT "+db.d.micros).Scan(&at); err != nil {
		return 0, 0, db.failed(err)
	}
	by, doubt := ahead(before, at)
	return by, doubt, nil
}

// readChanges passes the rows of a query to take, and resets the watchdog at each.
func readChanges[T any](ctx context.Context, tx *sql.Tx, w *dog, scan func(scanner) (T, error), take func(*T) error, query string, since int64) error {
	return each(ctx, tx, scan, func(one T) error {
		if err := take(&one); err != nil {
			w.cancel(err) // without this, closing would read the remaining rows
			return err
		}
		w.alive()
		return nil
	}, query, since)
}

var _ rulesource.OverrideFinder = (*DB)(nil)

// FindOverride implements [rulesource.OverrideFinder].
func (db *DB) FindOverride(ctx context.Context, rule, key string) (rulesource.Override, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	o, err := scanOverride(db.sql.QueryRowContext(ctx, db.d.bind("SELECT "+overrideColumns+" FROM stint_overrides WHERE rule = ? AND client_key = ? AND (expires = 0 OR expires > "+db.d.micros+")"), rule, []byte(key)))
	if errors.Is(err, sql.ErrNoRows) {
		return rulesource.Override{Rule: rule, Key: key, Removed: true}, nil
	}
	return o, db.failed(err)
}

// A dog is a watchdog: it cancels a long read in which no row has come for a while.
type dog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
	ctx    context.Context
	after  atomic.Int64 // how long a row may take, a time.Duration
	rows   int
}

func watchdog(ctx context.Context, after time.Duration) (context.Context, *dog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &dog{cancel: cancel, ctx: ctx}
	w.after.Store(int64(after))
	w.timer = time.AfterFunc(after, func() { cancel(fmt.Errorf("nothing came for %v", time.Duration(w.after.Load()))) })
	return ctx, w
}

// wait sets how long the next row may take.
func (w *dog) wait(after time.Duration) {
	w.after.Store(int64(after))
	w.timer.Reset(after)
}

// alive tells the watchdog that a row has come. It resets no timer, which for each of ten million
// rows would take longer than reading them.
func (w *dog) alive() {
	if w.rows++; w.rows%1024 == 1 {
		w.timer.Reset(time.Duration(w.after.Load()))
	}
}

func (w *dog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// why returns the cause of a cancellation in place of the error that it led to, unless the error is
// that a commit was not answered.
func (w *dog) why(err error) error {
	if err == nil || w.ctx.Err() == nil || errors.Is(err, ErrAmbiguous) {
		return err
	}
	return context.Cause(w.ctx)
}
