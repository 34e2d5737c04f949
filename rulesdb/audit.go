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

// NoteAct runs do, which acts elsewhere, once the audit has a. do adds to it what was
// before and is now. While the audit cannot be written, do is not run; after an error of
// do, the audit has nothing of it. After any other error it has that a was begun.
func (db *DB) NoteAct(ctx context.Context, a Act, do func(ctx context.Context, a *Act) error) error {
	if err := checkAct(&a); err != nil {
		return err
	}
	none := func(context.Context, *write) error { return nil }
	return db.intend(ctx, a, none, func(ctx context.Context, _ time.Time, a *Act) error { return do(ctx, a) })
}

// begun is what the audit has in the place of what an act did until that is known.
const begun = "begun"

// intend has an act committed, if it may be, before do does it, and what do adds to it
// afterwards.
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
		return fmt.Errorf("nothing is done: %v", err) //nolint:errorlint // what may have been written is that it was begun
	}
	if err != nil {
		return err
	}
	a.Now = ""
	var failed error
	ctx = context.WithoutCancel(ctx) // who has begun ends it
	err = db.write(ctx, func(ctx context.Context, w *write) error {
		if failed = do(ctx, moment(at), &a); failed != nil {
			return w.replace(ctx, number, at, nil)
		}
		return w.replace(ctx, number, at, &a)
	})
	return errors.Join(failed, err)
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

// NoteUndo is [DB.NoteAct] for what takes an act back elsewhere: do returns what the audit
// has of it, with [UndoOf] as its reason; at is the time by the clock that dates acts. Of
// an act that has been taken back before, it runs nothing: the error is [ErrConflict].
func (db *DB) NoteUndo(ctx context.Context, act int64, do func(ctx context.Context, at time.Time) (Act, error)) error {
	may := func(ctx context.Context, w *write) error { return w.notUndone(ctx, act) }
	return db.intend(ctx, Act{Act: "undo", Reason: UndoOf(act)}, may, func(ctx context.Context, at time.Time, a *Act) error {
		did, err := do(ctx, at)
		did.Reason = a.Reason
		*a = did
		return err
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
