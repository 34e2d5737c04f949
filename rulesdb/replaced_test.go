package rulesdb_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestFileReplaced moves a backup to the place of a SQLite file that is waited
// on: what has that name from then on is the source.
func TestFileReplaced(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "rules.db"), filepath.Join(dir, "backup.db")
	db := dbtest.Open(t, "sqlite:"+path, rulesdb.Options{Poll: time.Second})
	put := func(db *rulesdb.DB) int64 {
		t.Helper()
		r, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: []byte("rules: []\n")})
		if err != nil {
			t.Fatal(err)
		}
		return r.Number
	}
	put(db)
	if err := db.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	put(db)
	put(db)
	var held all
	now, err := db.Load(t.Context(), rulesource.Version{}, &held)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go func() { done <- db.Wait(ctx, now.Version) }()
	time.Sleep(100 * time.Millisecond) // it waits
	for _, beside := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + beside) // they may be gone
	}
	if err := os.Rename(backup, path); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("the other file is not noticed: %v", err)
	}
	if s, err := db.Load(t.Context(), rulesource.Version{}, &held); err != nil || s.Version.Revision != 1 {
		t.Fatalf("read from the file before: %+v, %v", s, err)
	}
}

// TestBackupWritten opens a backup while another program writes it, which is not in
// WAL mode then: opening waits for the writer.
func TestBackupWritten(t *testing.T) {
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup.db")
	if err := dbtest.OpenMigrated(t, "sqlite:"+filepath.Join(dir, "rules.db"), rulesdb.Options{}).Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", backup+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	writing, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writing.Exec("UPDATE stint_state SET epoch = 1"); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		db, err := rulesdb.Open("sqlite:"+backup, rulesdb.Options{})
		if err == nil {
			err = db.Close()
		}
		opened <- err
	}()
	time.Sleep(100 * time.Millisecond) // it waits
	if err := writing.Commit(); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// all takes whatever it is handed.
type all struct{}

func (*all) Begin(*rulesource.Snapshot, bool) error { return nil }
func (*all) Override(*rulesource.Override) error    { return nil }
func (*all) Plan(*rulesource.Plan) error            { return nil }
