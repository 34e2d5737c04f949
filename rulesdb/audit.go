package rulesdb

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// An AuditEntry is an act as the audit keeps it.
type AuditEntry struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Act
}

// Note writes an act into the audit that changed something elsewhere, such as a
// key that was reset.
func (db *DB) Note(ctx context.Context, a Act) error {
	if err := checkAct(&a); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error { return w.audit(ctx, a) })
}

// NoteAct runs do, which acts elsewhere, and writes a into the audit, to which do adds
// what was before and is now. do runs once the database has begun to write: while it
// cannot, nothing is done. After an error of do nothing is written.
func (db *DB) NoteAct(ctx context.Context, a Act, do func(ctx context.Context, a *Act) error) error {
	if err := checkAct(&a); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error {
		if err := do(ctx, &a); err != nil {
			return err
		}
		return w.audit(ctx, a)
	})
}

// checkAct refuses what Note would not write.
func checkAct(a *Act) error {
	return errors.Join(line("author", a.Author, 255), line("act", a.Act, 64), CheckReason(a.Reason))
}

const undoes = "undo of act "

// UndoOf is the reason, in the audit, of what takes an act back.
func UndoOf(act int64) string { return undoes + strconv.FormatInt(act, 10) }

// CheckReason returns an [ErrInput] for a reason that the audit does not take from its
// author: it is one line of at most 1,000 characters, and not that of an undo, which
// would mark an act as taken back. What cannot be written later has to be refused
// before anything is done.
func CheckReason(reason string) error {
	return errors.Join(line("reason", reason, 1000), noUndo("reason", reason))
}

func noUndo(what, text string) error {
	if strings.HasPrefix(text, undoes) {
		return refuse("%s: begins with %q, which is what an undo writes: use other words", what, undoes)
	}
	return nil
}

// Undoes reports whether an act took another one back.
func (a *Act) Undoes() bool { return strings.HasPrefix(a.Reason, undoes) }

// NoteUndo runs do, which takes an act back elsewhere, and writes what do returns into
// the audit, with [UndoOf] as its reason; at is the time by the clock that dates acts. Of
// an act that has been taken back before, it runs nothing: the error is [ErrConflict]. No
// other writer comes between.
func (db *DB) NoteUndo(ctx context.Context, act int64, do func(ctx context.Context, at time.Time) (Act, error)) error {
	return db.write(ctx, func(ctx context.Context, w *write) error {
		if err := w.notUndone(ctx, act); err != nil {
			return err
		}
		a, err := do(ctx, moment(w.at))
		if err != nil {
			return err
		}
		a.Reason = UndoOf(act)
		return w.audit(ctx, a)
	})
}

// Audit returns up to n acts before a number, newest first; 0 begins at the
// newest.
func (db *DB) Audit(ctx context.Context, before int64, n int) ([]AuditEntry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	return list(ctx, db, func(row scanner) (d AuditEntry, err error) {
		err = d.scan(row)
		return d, err
	}, "SELECT "+auditColumns+" FROM stint_audit WHERE number < ? ORDER BY number DESC LIMIT ?", before, n)
}

const auditColumns = "number, created, author, act, subject, was, now, reason"

// scan reads a row of auditColumns.
func (d *AuditEntry) scan(row scanner) error {
	var at int64
	err := row.Scan(&d.Number, &at, &d.Author, &d.Act.Act, &d.Subject, &d.Was, &d.Now, &d.Reason)
	d.At = moment(at)
	return err
}
