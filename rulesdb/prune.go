package rulesdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Retention says how much of the past to keep.
type Retention struct {
	// Revisions is how many of the newest documents to keep; 0 keeps all.
	Revisions int
	// Older is how long to keep the rest: acts of the audit, overrides and plans that were removed
	// or have ended, tokens that have expired or were revoked, and nodes that were not seen. 0
	// keeps all.
	Older time.Duration
}

// check refuses a retention that would remove what people still look at.
func (r Retention) check() error {
	if r.Revisions < 0 || r.Older < 0 || r.Older > 0 && r.Older < time.Hour {
		return refuse("at least 1 revision and 1 hour are kept, not %d and %v", r.Revisions, r.Older)
	}
	return nil
}

// A Pruned counts the rows that were removed.
type Pruned struct {
	Revisions, Acts, Overrides, Plans, Tokens, Nodes int64
}

// String lists the counts that are not 0; "" if all are.
func (p Pruned) String() string {
	var all []string
	for _, one := range []struct {
		n    int64
		what string
	}{
		{p.Revisions, "revisions"}, {p.Acts, "acts"}, {p.Overrides, "overrides that had ended"},
		{p.Plans, "plans that had ended"}, {p.Tokens, "tokens that had ended"}, {p.Nodes, "nodes"},
	} {
		if one.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	return strings.Join(all, ", ")
}

// pruneStep is how many rows one transaction removes, since it holds the version row, and writers
// wait for it.
const pruneStep = 1000

// Prune removes what a retention does not keep, by the database's time. What is in force stays. The
// audit records what was removed, and by whom. Prune looks for old rows without blocking writers,
// and blocks them for some milliseconds at a time. A node whose version is older than what was
// removed reads everything again.
func (db *DB) Prune(ctx context.Context, author string, keep Retention) (gone Pruned, err error) {
	if err := keep.check(); err != nil {
		return gone, err
	}
	if err := checkLine("author", author, 255); err != nil {
		return gone, err
	}
	err = db.failed(db.prune(ctx, keep, &gone))
	if gone != (Pruned{}) {
		noteErr := db.Note(context.WithoutCancel(ctx), Act{Author: author, Act: "prune", Subject: gone.String()})
		if err == nil {
			err = noteErr
		}
	}
	return gone, err
}

func (db *DB) prune(ctx context.Context, keep Retention, gone *Pruned) error {
	var newest, now int64
	if err := db.sql.QueryRowContext(ctx, "SELECT revision, "+db.d.micros+" FROM stint_state").Scan(&newest, &now); err != nil {
		return err
	}
	if err := errors.Join(db.forgetStaged(ctx, now), db.forgetBefore(ctx, now)); err != nil {
		return err
	}
	if keep.Revisions > 0 {
		if err := db.pruneNumbers(ctx, "stint_revisions", newest-int64(keep.Revisions), &gone.Revisions); err != nil {
			return err
		}
	}
	if keep.Older == 0 {
		return nil
	}
	edge := now - keep.Older.Microseconds()
	var acts int64
	if err := db.sql.QueryRowContext(ctx, db.d.bind("SELECT coalesce((SELECT min(number) - 1 FROM stint_audit WHERE created >= ?), (SELECT max(number) FROM stint_audit), 0)"), edge).Scan(&acts); err != nil {
		return err
	}
	if err := db.pruneNumbers(ctx, "stint_audit", acts, &gone.Acts); err != nil {
		return err
	}
	if err := db.pruneEnded(ctx, "stint_overrides", "rule", "client_key", "action = 0 AND created < ? OR expires > 0 AND expires < ?", edge, &gone.Overrides); err != nil {
		return err
	}
	if err := db.pruneEnded(ctx, "stint_plans", "attribute", "attribute_value", "plan = '' AND created < ? AND created < ?", edge, &gone.Plans); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error {
		if err := w.count(ctx, &gone.Tokens, "DELETE FROM stint_tokens WHERE revoked > 0 AND revoked < ? OR expires > 0 AND expires < ?", edge, edge); err != nil {
			return err
		}
		return w.count(ctx, &gone.Nodes, "DELETE FROM stint_nodes WHERE seen < ?", edge)
	})
}

// count runs a statement and adds the number of affected rows.
func (w *write) count(ctx context.Context, gone *int64, query string, args ...any) error {
	r, err := w.tx.ExecContext(ctx, w.db.d.bind(query), args...)
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	*gone += n
	return err
}

// pruneNumbers removes the rows of a table up to a number.
func (db *DB) pruneNumbers(ctx context.Context, table string, last int64, gone *int64) error {
	for {
		var first int64
		if err := db.sql.QueryRowContext(ctx, "SELECT coalesce(min(number), 0) FROM "+table).Scan(&first); err != nil {
			return err
		}
		if first == 0 || first > last {
			return nil
		}
		err := db.write(ctx, func(ctx context.Context, w *write) error {
			return w.count(ctx, gone, "DELETE FROM "+table+" WHERE number <= ?", min(last, first+pruneStep-1))
		})
		if err != nil {
			return err
		}
	}
}

// An ended is the key of a row that no longer has an effect for any customer.
type ended struct {
	name   string
	value  []byte
	change int64
}

// pruneEnded removes ended rows of a table whose key has two columns. A reader that has not read
// the last of them would miss that they ended.
func (db *DB) pruneEnded(ctx context.Context, table, name, value, where string, edge int64, gone *int64) error {
	for {
		var old []ended
		err := each(ctx, db.sql, func(row scanner) (one ended, err error) {
			err = row.Scan(&one.name, &one.value, &one.change)
			return one, err
		}, func(one ended) error {
			old = append(old, one)
			return nil
		}, db.d.bind("SELECT "+name+", "+value+", change_number FROM "+table+" WHERE "+where+" LIMIT ?"), edge, edge, pruneStep)
		if err != nil || len(old) == 0 {
			return err
		}
		err = db.write(ctx, func(ctx context.Context, w *write) error {
			last := int64(0)
			for _, one := range old {
				// A row that was written again meanwhile has another change number.
				if err := w.count(ctx, gone, "DELETE FROM "+table+" WHERE "+name+" = ? AND "+value+" = ? AND change_number = ?", one.name, one.value, one.change); err != nil {
					return err
				}
				last = max(last, one.change)
			}
			return db.run(ctx, w.tx, "UPDATE stint_state SET oldest_change = ? WHERE oldest_change < ?", last, last)
		})
		if err != nil || len(old) < pruneStep {
			return err
		}
	}
}
