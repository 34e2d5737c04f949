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
	// ErrConflict is for a writer that changed another version than the one in
	// force: another author wrote in between. Nothing was written.
	ErrConflict = errors.New("somebody else has changed it meanwhile")
	// ErrNotFound is for what is not there.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is for a write whose commit was not answered, as when the
	// connection is lost then: the database may have done it.
	ErrAmbiguous = errors.New("the answer was lost: this may have been done, so look before you repeat it")
	// ErrInput is for what cannot be written, whatever the database holds.
	ErrInput = errors.New("refused")
)

// An inputError is an [ErrInput] that says what is wrong alone.
type inputError struct{ error }

func (inputError) Is(target error) bool { return target == ErrInput }

func refuse(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// A write is one writing transaction. It holds the version row.
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

// version is the row without the number of the audit.
func (s state) version() rulesource.Version {
	return rulesource.Version{Epoch: s.epoch, Revision: s.revision, Change: s.change}
}

// An Act is what the audit keeps of a write.
type Act struct {
	Author string `json:"author"`
	// Act names what was done, such as "publish" or "override set".
	Act string `json:"act"`
	// Subject is what it was done to; Was and Now are before and after.
	Subject string `json:"subject"`
	Was     string `json:"was"`
	Now     string `json:"now"`
	Reason  string `json:"reason"`
}

// write runs f in a transaction that holds the version row, and commits what it
// did with the numbers that it took.
func (db *DB) write(ctx context.Context, f func(ctx context.Context, w *write) error) error {
	return db.writeWithin(ctx, callTimeout, f)
}

// writeWithin is write for what may take another time.
func (db *DB) writeWithin(ctx context.Context, most time.Duration, f func(ctx context.Context, w *write) error) error {
	within, stop := context.WithTimeoutCause(ctx, most, fmt.Errorf("not done within %v", most))
	defer stop()
	err := db.writeTx(within, f)
	if err != nil && ctx.Err() == nil && within.Err() != nil { // drivers say little of it
		err = fmt.Errorf("%w: %w", context.Cause(within), err)
	}
	return db.failed(err)
}

func (db *DB) writeTx(ctx context.Context, f func(ctx context.Context, w *write) error) error {
	tx, err := db.sql.BeginTx(ctx, db.d.writing)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	w := &write{db: db, tx: tx}
	// The update takes the row's lock: writers come one after another.
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

// commit commits. An error is [ErrAmbiguous] unless the database has said no.
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

// newVersion marks the version that w makes, and announces it.
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

// replace puts an act in the place of a row of the audit, or takes that out.
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

// cut shortens text for people to what a column holds, in whole runes.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// word refuses a name that is no line, and one with blanks around it: MySQL takes
// those at the end for nothing.
func word(what, text string, most int) error {
	if text != strings.TrimSpace(text) {
		return refuse("%s: %q: without the blanks around it", what, text)
	}
	return line(what, text, most)
}

// line refuses text that is not one printable line of at most that many
// characters.
func line(what, text string, most int) error {
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
