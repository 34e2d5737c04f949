package rulesdb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

const (
	// batchRows is how many overrides are staged at once, all or none.
	batchRows = 10_000
	// stagedFor is how long the staged rows of an interrupted load are kept for the next try.
	stagedFor = 24 * time.Hour
)

// A batch is rows that are staged under a name.
type batch struct {
	name string
	rows int64
}

// LoadOverrides sets many overrides as one change with one entry in the audit: all of them, or none
// if one is an error. A customer of a rule may occur once. The overrides are first staged in a
// table of their own, so that other writers wait only while they are put in force. After a failure
// or a crash, a load that begins with the same overrides continues from what is staged. If progress
// is not nil, it is called now and then with how many are staged and in force.
func (db *DB) LoadOverrides(ctx context.Context, author string, all iter.Seq2[*rulesource.Override, error], progress func(staged, inForce int)) (n int, err error) {
	if err := checkLine("author", author, 255); err != nil {
		return 0, err
	}
	l := &load{db: db, author: author, progress: progress}
	if l.progress == nil {
		l.progress = func(int, int) {}
	}
	if err := l.begin(ctx); err != nil {
		return 0, db.failed(err)
	}
	if err := l.stageAll(ctx, all); err != nil {
		if errors.Is(err, ErrInput) { // the same load would fail again
			_ = l.forget(ctx) // otherwise it is removed a day later
		}
		return 0, err
	}
	if l.staged == 0 {
		return 0, refuse("there are no overrides to load")
	}
	return l.staged, db.failed(l.apply(ctx))
}

// A load is one call of LoadOverrides.
type load struct {
	db       *DB
	author   string
	at       int64 // the database's time when it began
	batches  []batch
	staged   int
	progress func(staged, inForce int)
}

// begin reads the database's time, and removes what old loads have left.
func (l *load) begin(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, documentTimeout)
	defer stop()
	if err := l.db.sql.QueryRowContext(ctx, "SELECT "+l.db.d.micros).Scan(&l.at); err != nil {
		return err
	}
	return errors.Join(l.db.forgetStaged(ctx, l.at), l.db.forgetBefore(ctx, l.at))
}

// forgetStaged removes staged rows that are older than stagedFor, by the database's time.
func (db *DB) forgetStaged(ctx context.Context, now int64) error {
	_, err := db.sql.ExecContext(ctx, db.d.bind("DELETE FROM stint_staged WHERE staged < ?"), now-stagedFor.Microseconds())
	return err
}

// stageAll stages batch after batch.
func (l *load) stageAll(ctx context.Context, all iter.Seq2[*rulesource.Override, error]) error {
	rows := make([]rulesource.Override, 0, batchRows)
	for o, err := range all {
		if err == nil {
			err = CheckOverride(o)
		}
		if err == nil && o.Removed {
			err = refuse("an override that is removed cannot be loaded")
		}
		if err != nil {
			return err
		}
		if rows = append(rows, *o); len(rows) < batchRows {
			continue
		}
		if err := l.stage(ctx, rows); err != nil {
			return l.db.failed(err)
		}
		rows = rows[:0]
	}
	if len(rows) == 0 {
		return nil
	}
	return l.db.failed(l.stage(ctx, rows))
}

// stage stages one batch, unless it is staged already.
func (l *load) stage(ctx context.Context, rows []rulesource.Override) error {
	ctx, stop := context.WithTimeoutCause(ctx, documentTimeout, fmt.Errorf("%d overrides were not staged within %v", len(rows), documentTimeout))
	defer stop()
	one := batch{l.nameOf(rows), int64(len(rows))}
	there, err := l.isStaged(ctx, one)
	if err == nil && !there {
		if err = l.insert(ctx, one.name, rows); err != nil { // a concurrent load of the same overrides may have been faster
			if there, _ = l.isStaged(ctx, one); there {
				err = nil
			}
		}
	}
	if err != nil {
		return err
	}
	l.batches = append(l.batches, one)
	l.staged += len(rows)
	l.progress(l.staged, 0)
	return nil
}

func (l *load) isStaged(ctx context.Context, one batch) (bool, error) {
	var rows int64
	err := l.db.sql.QueryRowContext(ctx, l.db.d.bind("SELECT count(*) FROM stint_staged WHERE batch = ?"), one.name).Scan(&rows)
	return rows == one.rows, err
}

// nameOf returns the name of the next batch.
func (l *load) nameOf(rows []rulesource.Override) string {
	sum := sha256.New()
	var b []byte
	if len(l.batches) > 0 {
		b = append(b, l.batches[len(l.batches)-1].name...)
	}
	for i := range rows {
		o := &rows[i]
		for _, text := range []string{o.Rule, o.Key, strings.Join(o.Limits, "\n"), o.Reason} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		b = binary.AppendVarint(append(b, byte(actionOf(o))), micros(o.Expires))
		sum.Write(b)
		b = b[:0]
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// stagedColumns are the columns of stint_staged.
var stagedColumns = []string{"batch", "number", "staged", "rule", "client_key", "action", "limits", "expires", "reason"}

// insert writes a batch, all or nothing.
func (l *load) insert(ctx context.Context, name string, rows []rulesource.Override) error {
	row := func(i int) []any {
		o := &rows[i]
		return []any{name, i, l.at, o.Rule, []byte(o.Key), actionOf(o), strings.Join(o.Limits, "\n"), micros(o.Expires), o.Reason}
	}
	if l.db.d.copyRows != nil {
		return l.db.d.copyRows(ctx, l.db, "stint_staged", stagedColumns, len(rows), row)
	}
	tx, err := l.db.sql.BeginTx(ctx, l.db.d.writing)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	values := "(" + strings.Repeat("?, ", len(stagedColumns)-1) + "?)"
	for first := 0; first < len(rows); first += mostBatch {
		n := min(mostBatch, len(rows)-first)
		var args []any
		for i := range n {
			args = append(args, row(first+i)...)
		}
		err := l.db.run(ctx, tx, "INSERT INTO stint_staged ("+strings.Join(stagedColumns, ", ")+") VALUES "+strings.Repeat(values+", ", n-1)+values, args...)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// forget removes what this load has staged.
func (l *load) forget(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), documentTimeout)
	defer stop()
	for _, one := range l.batches {
		if _, err := l.db.sql.ExecContext(ctx, l.db.d.bind("DELETE FROM stint_staged WHERE batch = ?"), one.name); err != nil {
			return err
		}
	}
	return nil
}

// apply moves all staged rows to the overrides, in one transaction.
func (l *load) apply(ctx context.Context) error {
	ctx, dog := watchdog(ctx, documentTimeout)
	defer dog.stop()
	return dog.why(l.db.writeTx(ctx, func(ctx context.Context, w *write) error {
		w.state.change++
		inForce, replaced := 0, int64(0)
		for _, one := range l.batches {
			dog.wait(documentTimeout)
			if err := w.move(ctx, one, l.author, &replaced); err != nil {
				return err
			}
			inForce += int(one.rows)
			l.progress(l.staged, inForce)
		}
		dog.wait(documentTimeout)
		return w.audit(ctx, Act{Author: l.author, Act: ActLoad, Subject: fmt.Sprintf("%d overrides", l.staged), Was: fmt.Sprintf("%d of these customers had others", replaced)})
	}))
}

// move replaces the customers' overrides with those of a batch. It keeps the former ones for an
// undo, and counts them.
func (w *write) move(ctx context.Context, one batch, author string, replaced *int64) error {
	// PostgreSQL would read a parameter in the SELECT list as text, so the number is written out.
	before := fmt.Sprintf("INSERT INTO stint_before (number, rule, client_key, action, limits, expires, act) SELECT %d, o.rule, o.client_key, o.action, o.limits, o.expires, o.act"+
		" FROM stint_staged s JOIN stint_overrides o ON o.rule = s.rule AND o.client_key = s.client_key WHERE s.batch = ?", w.state.audit+1)
	if err := w.count(ctx, replaced, before, one.name); err != nil {
		return err
	}
	query := fmt.Sprintf("INSERT INTO stint_overrides (%s) SELECT rule, client_key, action, limits, %d, expires, reason, ?, %d, %d FROM stint_staged WHERE batch = ?",
		overrideColumns, w.at, w.state.change, w.state.audit+1)
	if err := w.db.run(ctx, w.tx, query+w.db.d.onConflict("rule, client_key", putColumns...), author, one.name); err != nil {
		return err
	}
	var gone int64
	if err := w.count(ctx, &gone, "DELETE FROM stint_staged WHERE batch = ?", one.name); err != nil {
		return err
	}
	if gone != one.rows {
		return errors.New("what was staged is gone: another load of the same overrides has put it in force meanwhile, or load them again")
	}
	return nil
}
