package dbtest

import (
	"testing"

	"github.com/stint-dev/stint/rulesdb"
)

// Open opens the database of a URL until the test ends.
func Open(t testing.TB, url string, o rulesdb.Options) *rulesdb.DB {
	t.Helper()
	db, err := rulesdb.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenMigrated is [Open] with a migrated schema.
func OpenMigrated(t testing.TB, url string, o rulesdb.Options) *rulesdb.DB {
	t.Helper()
	db := Open(t, url, o)
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}
