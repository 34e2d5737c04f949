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

// Load implements [rulesource.Source]: it reads the version row, the document
// and what has changed in one transaction.
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
	defer func() { _ = tx.Rollback() }() // it has only read
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
	if !same || since < oldest || since > s.Version.Change {
		since, whole = 0, true
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
		if err := db.readOverrides(ctx, tx, since, whole, to, w); err != nil {
			return nil, w.why(err)
		}
	}
	return s, w.why(db.readPlans(ctx, tx, since, whole, to, w))
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

// ahead returns how far the database's clock, which showed at, is ahead of this
// machine's, and how much that is in doubt.
func ahead(before time.Time, at int64) (ahead, doubt time.Duration) {
	took := time.Since(before)
	return moment(at).Sub(before.Add(took / 2)), took / 2
}

var _ rulesource.Clock = (*DB)(nil)

// Clock implements [rulesource.Clock].
func (db *DB) Clock(ctx context.Context) (time.Duration, time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	conn, err := db.sql.Conn(ctx) // connecting takes time that would be in doubt
	if err != nil {
		return 0, 0, db.failed(err)
	}
	defer conn.Close() // it goes back to the others
	var at int64
	before := time.Now()
	if err := conn.QueryRowContext(ctx, "SELECT "+db.d.micros).Scan(&at); err != nil {
		return 0, 0, db.failed(err)
	}
	by, doubt := ahead(before, at)
	return by, doubt, nil
}

// readOverrides hands over overrides that changed after since; of a whole
// snapshot, without those that are gone.
func (db *DB) readOverrides(ctx context.Context, tx *sql.Tx, since int64, whole bool, to rulesource.Receiver, w *dog) error {
	there := ""
	if whole {
		there = " AND action <> 0 AND (expires = 0 OR expires > " + db.d.micros + ")"
	}
	rows, err := tx.QueryContext(ctx, db.d.bind("SELECT "+overrideColumns+" FROM stint_overrides WHERE change_number > ?"+there), since)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		o, err := scanOverride(rows)
		if err != nil {
			return fmt.Errorf("an override: %w", err)
		}
		if err := to.Override(&o); err != nil {
			w.cancel(err) // or closing would read the other rows
			return err
		}
		w.alive()
	}
	return rows.Err()
}

// readPlans is readOverrides for plans.
func (db *DB) readPlans(ctx context.Context, tx *sql.Tx, since int64, whole bool, to rulesource.Receiver, w *dog) error {
	there := ""
	if whole {
		there = " AND plan <> ''"
	}
	rows, err := tx.QueryContext(ctx, db.d.bind("SELECT "+planColumns+" FROM stint_plans WHERE change_number > ?"+there), since)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPlan(rows)
		if err != nil {
			return fmt.Errorf("a plan: %w", err)
		}
		if err := to.Plan(&p); err != nil {
			return err
		}
		w.alive()
	}
	return rows.Err()
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

// A dog cancels a long reading that has stood still.
type dog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
	ctx    context.Context
	after  atomic.Int64 // how long it may, a time.Duration
	rows   int
}

func watchdog(ctx context.Context, after time.Duration) (context.Context, *dog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &dog{cancel: cancel, ctx: ctx}
	w.after.Store(int64(after))
	w.timer = time.AfterFunc(after, func() { cancel(fmt.Errorf("nothing came for %v", time.Duration(w.after.Load()))) })
	return ctx, w
}

// wait gives what comes next another time.
func (w *dog) wait(after time.Duration) {
	w.after.Store(int64(after))
	w.timer.Reset(after)
}

// alive says that something has come. Resetting a timer at each of ten million
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

// why returns the cause of a cancellation in place of the error that it made, unless that
// says that something may be done.
func (w *dog) why(err error) error {
	if err == nil || w.ctx.Err() == nil || errors.Is(err, ErrAmbiguous) {
		return err
	}
	return context.Cause(w.ctx)
}
