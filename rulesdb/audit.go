package rulesdb

import (
	"context"
	"errors"
	"time"
)

// An AuditEntry is an act as the audit keeps it.
type AuditEntry struct {
	Number int64
	At     time.Time
	Act
}

// Note writes an act into the audit that changed something elsewhere, such as a
// key that was reset.
func (db *DB) Note(ctx context.Context, a Act) error {
	if err := errors.Join(line("author", a.Author, 255), line("act", a.Act, 64), line("reason", a.Reason, 1000)); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error { return w.audit(ctx, a) })
}

// Audit returns up to n acts before a number, newest first; 0 begins at the
// newest.
func (db *DB) Audit(ctx context.Context, before int64, n int) ([]AuditEntry, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	if before <= 0 {
		before = 1<<63 - 1
	}
	rows, err := db.sql.QueryContext(ctx, db.d.bind("SELECT number, created, author, act, subject, was, now, reason FROM stint_audit WHERE number < ? ORDER BY number DESC LIMIT ?"), before, n)
	if err != nil {
		return nil, db.failed(err)
	}
	defer rows.Close()
	var out []AuditEntry
	for rows.Next() {
		var d AuditEntry
		var at int64
		if err := rows.Scan(&d.Number, &at, &d.Author, &d.Act.Act, &d.Subject, &d.Was, &d.Now, &d.Reason); err != nil {
			return nil, db.failed(err)
		}
		d.At = moment(at)
		out = append(out, d)
	}
	return out, db.failed(rows.Err())
}
