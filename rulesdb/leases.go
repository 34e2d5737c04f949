package rulesdb

import (
	"context"
	"time"
)

// Lease takes or renews a lease by the database's clock, so that one worker at a time does some
// work. It reports whether holder has the lease now. All workers must ask for the same time: a
// lease that ends later than that from now counts as over, since the clock must have been set back.
func (db *DB) Lease(ctx context.Context, name, holder string, lasts time.Duration) (held bool, err error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	tx, err := db.sql.BeginTx(ctx, db.d.writing)
	if err != nil {
		return false, db.failed(err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	insert := "INSERT INTO stint_leases (name, holder, ends) VALUES (?, ?, 0)" + db.d.onConflict("name", "name")
	if err := db.run(ctx, tx, insert, name, holder); err != nil {
		return false, db.failed(err)
	}
	r, err := tx.ExecContext(ctx, db.d.bind("UPDATE stint_leases SET holder = ?, ends = "+db.d.micros+" + ? WHERE name = ? AND (holder = ? OR ends <= "+db.d.micros+" OR ends > "+db.d.micros+" + ?)"),
		holder, lasts.Microseconds(), name, holder, lasts.Microseconds())
	if err != nil {
		return false, db.failed(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return false, db.failed(err)
	}
	return n > 0, db.failed(tx.Commit())
}

// Release ends a lease of holder.
func (db *DB) Release(ctx context.Context, name, holder string) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	_, err := db.sql.ExecContext(ctx, db.d.bind("UPDATE stint_leases SET ends = 0 WHERE name = ? AND holder = ?"), name, holder)
	return db.failed(err)
}
