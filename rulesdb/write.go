package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-dev/stint/rulesource"
)

// Errors of writers, for errors.Is.
var (
	// ErrConflict says that the version in force is not the one that the writer changed, because
	// another author wrote in between. Nothing was written.
	ErrConflict = errors.New("somebody else has changed it meanwhile")
	// ErrNotFound says that the row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous says that the commit was not answered, for example because the connection was
	// lost: the database may have committed.
	ErrAmbiguous = errors.New("the answer was lost: this may have been done, so look before you repeat it")
	// ErrInput says that a value can never be written, whatever the database holds.
	ErrInput = errors.New("refused")
)

// An inputError is an [ErrInput] whose text is only what is wrong.
type inputError struct{ error }

func (inputError) Is(target error) bool { return target == ErrInput }

func refuse(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// A write is one writing transaction. It holds the lock of the version row.
type write struct {
	db    *DB
	tx    *sql.Tx
	at    int64 // the database's time
	state state
	was   state
}

// state is the version row.
type state struct {
	epoch, revision, change, audit int64
}

// version returns the row's version. The number of the audit is no part of it.
func (s state) version() rulesource.Version {
	return rulesource.Version{Epoch: s.epoch, Revision: s.revision, Change: s.change}
}

// An Act is a write as the audit records it.
type Act struct {
	Author string `json:"author"`
	// Act is the name of the act, such as "publish" or "override set".
	Act string `json:"act"`
	// Subject is what the act changed; Was and Now are its values before and after.
	Subject string `json:"subject"`
	Was     string `json:"was"`
	Now     string `json:"now"`
	Reason  string `json:"reason"`
}

// write runs f in a transaction that holds the version row. It commits what f did, with the numbers
// that f took.
func (db *DB) write(ctx context.Context, f func(ctx context.Context, w *write) error) error {
	return db.writeWithin(ctx, callTimeout, f)
}

// writeWithin is write with another time limit.
func (db *DB) writeWithin(ctx context.Context, most time.Duration, f func(ctx context.Context, w *write) error) error {
	within, stop := context.WithTimeoutCause(ctx, most, fmt.Errorf("not done within %v", most))
	defer stop()
	err := db.writeTx(within, f)
	if err != nil && ctx.Err() == nil && within.Err() != nil { // drivers say little about a timeout
		err = fmt.Errorf("%w: %w", context.Cause(within), err)
	}
	return db.failed(err)
}

func (db *DB) writeTx(ctx context.Context, f func(ctx context.Context, w *write) error) error {
	tx, err := db.sql.BeginTx(ctx, db.d.writing)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	w := &write{db: db, tx: tx}
	// The update locks the row, so that writers come one after another.
	if err := db.run(ctx, tx, "UPDATE stint_state SET audit_number = audit_number"); err != nil {
		return err
	}
	s := &w.was
	err = tx.QueryRowContext(ctx, "SELECT epoch, revision, change_number, audit_number, "+db.d.micros+" FROM stint_state").
		Scan(&s.epoch, &s.revision, &s.change, &s.audit, &w.at)
	if err != nil {
		return err
	}
	w.state = w.was
	if err := f(ctx, w); err != nil {
		return err
	}
	if w.state == w.was {
		return w.commit(ctx)
	}
	err = db.run(ctx, tx, "UPDATE stint_state SET epoch = ?, revision = ?, change_number = ?, audit_number = ?", w.state.epoch, w.state.revision, w.state.change, w.state.audit)
	if err != nil {
		return err
	}
	if w.state.version() == w.was.version() {
		return w.commit(ctx)
	}
	if err := w.newVersion(ctx); err != nil {
		return err
	}
	if err := w.commit(ctx); err != nil {
		return err
	}
	db.bell.Ring()
	if f := db.onWrite.Load(); f != nil {
		(*f)(ctx, w.state.version())
	}
	return nil
}

// commit commits. An error is [ErrAmbiguous], unless the database has answered that it did not
// commit.
func (w *write) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // nothing has been sent
	}
	err := w.tx.Commit()
	if err == nil || w.db.d.refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// newVersion gives the version that w makes a mark, and announces it.
func (w *write) newVersion(ctx context.Context) error {
	if err := w.mark(ctx); err != nil || w.db.d.announce == "" {
		return err
	}
	return w.db.run(ctx, w.tx, w.db.d.announce)
}

// audit adds a row to the audit.
func (w *write) audit(ctx context.Context, a Act) error {
	w.state.audit++
	return w.row(ctx, w.state.audit, w.at, &a)
}

func (w *write) row(ctx context.Context, number, at int64, a *Act) error {
	return w.db.run(ctx, w.tx, "INSERT INTO stint_audit ("+auditColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		number, at, a.Author, a.Act, cut(a.Subject, 1000), cut(a.Was, 8000), cut(a.Now, 8000), a.Reason)
}

// replace replaces a row of the audit with an act, or removes the row if a is nil.
func (w *write) replace(ctx context.Context, number, at int64, a *Act) error {
	err := w.db.run(ctx, w.tx, "DELETE FROM stint_audit WHERE number = ?", number)
	if err != nil || a == nil {
		return err
	}
	return w.row(ctx, number, at, a)
}

// version reads the version row.
func (db *DB) version(ctx context.Context, r reader) (v rulesource.Version, err error) {
	err = r.QueryRowContext(ctx, "SELECT identity, epoch, revision, change_number, mark FROM stint_state").Scan(&v.Identity, &v.Epoch, &v.Revision, &v.Change, &v.Mark)
	return v, err
}

// cut shortens a text for people to what a column holds, without breaking a rune.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// checkName refuses a name that is not one line, or that begins or ends with a blank: MySQL ignores
// blanks at the end.
func checkName(what, text string, most int) error {
	if text != strings.TrimSpace(text) {
		return refuse("%s: %q: without the blanks around it", what, text)
	}
	return checkLine(what, text, most)
}

// checkLine refuses text that is not one printable line of at most that many characters.
func checkLine(what, text string, most int) error {
	switch {
	case !utf8.ValidString(text):
		return refuse("%s: not UTF-8", what)
	case utf8.RuneCountInString(text) > most:
		return refuse("%s: %d characters: at most %d", what, utf8.RuneCountInString(text), most)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) }):
		return refuse("%s: a control character: write one line of text", what)
	}
	return nil
}
