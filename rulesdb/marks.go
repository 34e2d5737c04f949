package rulesdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/stint-dev/stint/rulesource"
)

const (
	// keptMarks is how many versions can be told from those of another history. A
	// reader that is further behind reads all.
	keptMarks = 1 << 17
	// marksStep is after how many versions marks are removed, as many at once.
	marksStep = 256
)

// place numbers the versions of one history, in their order and without gaps.
func place(v rulesource.Version) int64 { return v.Epoch + v.Revision + v.Change }

// mark gives the version that w makes a mark.
func (w *write) mark(ctx context.Context) error {
	mark, at := rand.Text(), place(w.state.version())
	if err := w.db.run(ctx, w.tx, "UPDATE stint_state SET mark = ?", mark); err != nil {
		return err
	}
	// There is a mark already if stint_state alone was restored.
	err := w.db.run(ctx, w.tx, "INSERT INTO stint_marks (number, mark) VALUES (?, ?)"+w.db.d.onConflict("number", "mark"), at, mark)
	if err != nil || at%marksStep != 0 {
		return err
	}
	return w.db.run(ctx, w.tx, "DELETE FROM stint_marks WHERE number <= ?", at-keptMarks)
}

// has reports whether the history of a database, whose version is now, has the
// version that a reader holds; strayed that it has another one in its place.
// Neither is for what it does not know: the version is older than marks are kept,
// or of a program that made none.
func (db *DB) has(ctx context.Context, tx *sql.Tx, held, now rulesource.Version) (has, strayed bool, err error) {
	comparable := held.Epoch == now.Epoch && (held.Identity == now.Identity || held.Identity == "")
	if held.Mark == "" || !comparable || place(held) > place(now) {
		return false, false, nil
	}
	var mark string
	err = tx.QueryRowContext(ctx, db.d.bind("SELECT mark FROM stint_marks WHERE number = ?"), place(held)).Scan(&mark)
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return mark == held.Mark, err == nil && mark != held.Mark, err
}
