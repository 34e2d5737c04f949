package rulesdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestCommitUnanswered loses the connection after the commit of an override was sent:
// it is there, and the writer is told that it may be. Where the connection is lost
// before, nothing is there, and the writer is told of a failure alone.
func TestCommitUnanswered(t *testing.T) {
	servers(t, func(t *testing.T, server *dbtest.Server) {
		direct, wire := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{}), dbtest.NewWire(t, server.URL)
		db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{})
		commit := "commit"
		if strings.HasPrefix(server.URL, "postgres") {
			commit += "\x00" // READ COMMITTED is something else
		}
		for _, one := range []struct {
			after, key string
			ambiguous  bool
		}{{commit, "a", true}, {"insert into stint_audit", "b", false}} {
			wire.CutAfter(one.after)
			_, _, err := db.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: one.key, Block: true}, 0)
			if err == nil || errors.Is(err, rulesdb.ErrAmbiguous) != one.ambiguous {
				t.Errorf("cut after %q: %v", one.after, err)
			}
			wire.CutAfter("")
			// A writer after it waits until it has ended.
			if err := direct.Note(t.Context(), rulesdb.Act{Act: "look"}); err != nil {
				t.Fatal(err)
			}
			if _, err := direct.Override(t.Context(), "api", one.key); errors.Is(err, rulesdb.ErrNotFound) == one.ambiguous {
				t.Errorf("cut after %q, then: %v", one.after, err)
			}
		}
	})
}

// TestNoteAct acts elsewhere. Where the connection is lost before the audit has the act, or
// with the answer that it has, nothing is done; where it is lost later, it is done, and the
// audit has that it was begun.
func TestNoteAct(t *testing.T) {
	servers(t, func(t *testing.T, server *dbtest.Server) {
		direct, wire := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{}), dbtest.NewWire(t, server.URL)
		db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{})
		commit := "commit"
		if strings.HasPrefix(server.URL, "postgres") {
			commit += "\x00" // READ COMMITTED is something else
		}
		for _, one := range []struct {
			after, noted string
			done         bool
		}{{"update stint_state", "", false}, {commit, "begun", false}, {"delete from stint_audit", "begun", true}} {
			done := false
			wire.CutAfter(one.after)
			err := db.NoteAct(t.Context(), rulesdb.Act{Act: "reset", Subject: "api"}, func(_ context.Context, a *rulesdb.Act) error {
				done, a.Was = true, "used"
				return nil
			})
			if err == nil || done != one.done || errors.Is(err, rulesdb.ErrAmbiguous) {
				t.Errorf("cut after %q: %v, done: %v", one.after, err, done)
			}
			wire.CutAfter("")
			if err := direct.Note(t.Context(), rulesdb.Act{Act: "look"}); err != nil { // it waits until the other has ended
				t.Fatal(err)
			}
			acts, err := direct.Audit(t.Context(), 0, 2)
			if noted := len(acts) == 2 && acts[1].Now == "begun"; err != nil || noted != (one.noted != "") {
				t.Errorf("cut after %q, then: %+v %v", one.after, acts, err)
			}
		}
		if err := db.NoteAct(t.Context(), rulesdb.Act{Act: "reset", Reason: rulesdb.UndoOf(1)}, func(context.Context, *rulesdb.Act) error {
			t.Error("done, and the audit does not take its reason")
			return nil
		}); !errors.Is(err, rulesdb.ErrInput) {
			t.Error(err)
		}
	})
}

// A shout is a logger of the driver for MySQL that reports what it gets.
type shout struct{ *testing.T }

func (s shout) Print(v ...any) { s.Error(v...) }

// TestDriverSilent loses a connection in the middle of a statement: the caller gets the
// error, and the driver writes nothing of its own, as to the program's stderr.
func TestDriverSilent(t *testing.T) {
	if err := mysql.SetLogger(shout{t}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mysql.SetLogger(&mysql.NopLogger{}) }()
	server := dbtest.MariaDB(t)
	dbtest.OpenMigrated(t, server.URL, rulesdb.Options{})
	wire := dbtest.NewWire(t, server.URL)
	db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{})
	for _, text := range []string{"commit", "insert", "select"} {
		wire.CutAfter(text)
		if _, _, err := db.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: "a", Block: true}, 0); err == nil {
			t.Errorf("cut after %q: no error", text)
		}
		wire.CutAfter("")
	}
}
