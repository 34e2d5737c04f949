package rulesdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An AuditEntry is an act as the audit records it.
type AuditEntry struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Act
}

// Note records in the audit an act that changed something outside of the database, such as the
// reset of a key.
func (db *DB) Note(ctx context.Context, a Act) error {
	if err := checkAct(&a); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error { return w.audit(ctx, a) })
}

// NoteAct records the act a, and then runs do, which acts outside of the database and fills in what
// was before and is now. If the audit cannot be written, do is not run. After an error of do, the
// audit has no record of the act. After any other error it records that the act was begun.
func (db *DB) NoteAct(ctx context.Context, a Act, do func(ctx context.Context, a *Act) error) error {
	if err := checkAct(&a); err != nil {
		return err
	}
	none := func(context.Context, *write) error { return nil }
	return db.intend(ctx, a, none, func(ctx context.Context, _ time.Time, a *Act) error { return do(ctx, a) })
}

// begun is the result of an act in the audit until the act has ended.
const begun = "begun"

// intend records an act before do acts, and afterwards records the result that do fills in. If may
// returns an error, nothing is recorded and do is not run.
func (db *DB) intend(ctx context.Context, a Act, may func(ctx context.Context, w *write) error, do func(ctx context.Context, at time.Time, a *Act) error) error {
	var number, at int64
	a.Now = begun
	err := db.write(ctx, func(ctx context.Context, w *write) error {
		if err := may(ctx, w); err != nil {
			return err
		}
		number, at = w.state.audit+1, w.at
		return w.audit(ctx, a)
	})
	if errors.Is(err, ErrAmbiguous) {
		return fmt.Errorf("nothing is done: %v", err) //nolint:errorlint // not ErrAmbiguous: all that may be written is that the act was begun
	}
	if err != nil {
		return err
	}
	a.Now = ""
	var failed error
	ctx = context.WithoutCancel(ctx) // an act that was begun must be ended
	err = db.write(ctx, func(ctx context.Context, w *write) error {
		if failed = do(ctx, moment(at), &a); failed != nil {
			return w.replace(ctx, number, at, nil)
		}
		return w.replace(ctx, number, at, &a)
	})
	return errors.Join(failed, err)
}

// checkAct refuses an act that Note could not write.
func checkAct(a *Act) error {
	return errors.Join(checkLine("author", a.Author, 255), checkLine("act", a.Act, 64), CheckReason(a.Reason))
}

const undoes = "undo of act "

// UndoOf returns the reason, in the audit, of the undo of an act.
func UndoOf(act int64) string { return undoes + strconv.FormatInt(act, 10) }

// CheckReason returns an [ErrInput] for a reason that the audit refuses. A reason is one line of at
// most 1,000 characters, and not the reason of an undo, which would mark an act as undone. Callers
// check it first, so that nothing is done that cannot be recorded.
func CheckReason(reason string) error {
	return errors.Join(checkLine("reason", reason, 1000), noUndo("reason", reason))
}

func noUndo(what, text string) error {
	if strings.HasPrefix(text, undoes) {
		return refuse("%s: begins with %q, which is what an undo writes: use other words", what, undoes)
	}
	return nil
}

// Undoes reports whether the act is the undo of another act.
func (a *Act) Undoes() bool { return strings.HasPrefix(a.Reason, undoes) }

// NoteUndo is [DB.NoteAct] for undoing an act outside of the database. It calls do with the time by
// the clock that dates acts; do returns the act to record, with [UndoOf] as its reason. If the act
// has been undone before, do is not run and the error is [ErrConflict].
func (db *DB) NoteUndo(ctx context.Context, act int64, do func(ctx context.Context, at time.Time) (Act, error)) error {
	may := func(ctx context.Context, w *write) error { return w.notUndone(ctx, act) }
	return db.intend(ctx, Act{Act: "undo", Reason: UndoOf(act)}, may, func(ctx context.Context, at time.Time, a *Act) error {
		did, err := do(ctx, at)
		did.Reason = a.Reason
		*a = did
		return err
	})
}

// Audit returns up to n acts before a number, newest first; 0 begins with the newest.
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
