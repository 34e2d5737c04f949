package dbtest

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
)

// tables are the tables with the contents and the version of a database.
var tables = []string{"stint_state", "stint_marks", "stint_revisions", "stint_overrides", "stint_plans", "stint_audit"}

// backups numbers the backups, since each has tables of its own.
var backups atomic.Int64

// Backup keeps the contents of the database of a URL. The function that it returns restores them in
// one transaction.
func Backup(t testing.TB, url string) (restore func()) {
	t.Helper()
	at := backups.Add(1)
	saved := func(table string) string { return fmt.Sprintf("saved%d_%s", at, table) }
	for _, table := range tables {
		Exec(t, url, "CREATE TABLE "+saved(table)+" AS SELECT * FROM "+table)
	}
	return func() {
		t.Helper()
		s := of(url)
		db, err := sql.Open(s.ping, s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }() // without effect after a commit
		for _, table := range tables {
			for _, statement := range []string{"DELETE FROM " + table, "INSERT INTO " + table + " SELECT * FROM " + saved(table)} {
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}
