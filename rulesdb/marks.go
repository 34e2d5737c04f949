package rulesdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/stint-dev/stint/rulesource"
)

const (
	// keptMarks is how many versions have marks. A reader with an older version cannot be told from
	// one of another history, so it reads everything.
	keptMarks = 1 << 17
	// marksStep is how many versions' marks are removed at a time.
	marksStep = 256
)

// ordinal numbers the versions of one history, in order and without gaps.
func ordinal(v rulesource.Version) int64 { return v.Epoch + v.Revision + v.Change }

// mark gives a mark to the version that w makes.
func (w *write) mark(ctx context.Context) error {
	mark, at := rand.Text(), ordinal(w.state.version())
	if err := w.db.run(ctx, w.tx, "UPDATE stint_state SET mark = ?", mark); err != nil {
		return err
	}
	// A mark with this number exists if only stint_state was restored.
	err := w.db.run(ctx, w.tx, "INSERT INTO stint_marks (number, mark) VALUES (?, ?)"+w.db.d.onConflict("number", "mark"), at, mark)
	if err != nil || at%marksStep != 0 {
		return err
	}
	return w.db.run(ctx, w.tx, "DELETE FROM stint_marks WHERE number <= ?", at-keptMarks)
}

// has reports whether the history of a database at the version now contains the version that a
// reader holds, and strayed whether it contains another version of that number. Both are false if
// it cannot tell: the version is older than the marks, or of a program that made none.
func (db *DB) has(ctx context.Context, tx *sql.Tx, held, now rulesource.Version) (has, strayed bool, err error) {
	comparable := held.Epoch == now.Epoch && (held.Identity == now.Identity || held.Identity == "")
	if held.Mark == "" || !comparable || ordinal(held) > ordinal(now) {
		return false, false, nil
	}
	var mark string
	err = tx.QueryRowContext(ctx, db.d.bind("SELECT mark FROM stint_marks WHERE number = ?"), ordinal(held)).Scan(&mark)
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return mark == held.Mark, err == nil && mark != held.Mark, err
}
