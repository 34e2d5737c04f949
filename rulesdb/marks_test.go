package rulesdb_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestStrayed restores each database to an older state and changes it until its
// numbers are those that a reader holds, or higher: it is another history, until
// that is accepted, or the one before is brought back.
func TestStrayed(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		put := func(text string) {
			t.Helper()
			must(db.Publish(ctx, rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml", Document: []byte(text)}))(t)
		}
		set := func(key, limit string) {
			t.Helper()
			if _, _, err := db.SetOverride(ctx, rulesource.Override{Rule: "api", Key: key, Limits: []string{limit}}, 0); err != nil {
				t.Fatal(err)
			}
		}
		put("one")
		set("a", "1/m")
		back := dbtest.Backup(t, url)
		early := must(load(ctx, db, rulesource.Version{}))(t).Version
		put("two")
		set("b", "2/m")
		held := must(load(ctx, db, early))(t)
		if held.Strayed || held.Whole || len(held.Overrides) != 1 {
			t.Fatalf("what has changed: %+v", held)
		}
		back()
		put("another two")
		set("c", "3/m")
		for later := range 3 {
			s := must(load(ctx, db, held.Version))(t)
			if !s.Strayed || !s.Whole || string(s.Document) != "another two" {
				t.Fatalf("%d changes later: strayed %v, whole %v, %q", later, s.Strayed, s.Whole, s.Document)
			}
			if later == 0 && s.Version.Follows(held.Version) {
				t.Errorf("the same numbers: %+v follows %+v", s.Version, held.Version)
			}
			if s := must(load(ctx, db, held.Version.ForFullLoad()))(t); !s.Strayed {
				t.Error("not for who wants everything")
			}
			set(fmt.Sprint(later), "4/m")
		}
		if s := must(load(ctx, db, early))(t); s.Strayed || s.Whole || len(s.Overrides) != 4 {
			t.Errorf("who holds what was restored: strayed %v, whole %v, %d overrides", s.Strayed, s.Whole, len(s.Overrides))
		}
		if err := db.Accept(ctx, "anna", ""); err != nil {
			t.Fatal(err)
		}
		accepted := must(load(ctx, db, held.Version))(t)
		if accepted.Strayed || !accepted.Whole || !accepted.Version.Follows(held.Version) {
			t.Fatalf("accepted: %+v", accepted)
		}
		back() // before it was accepted
		if err := db.Accept(ctx, "anna", ""); err != nil {
			t.Fatal(err)
		}
		if s := must(load(ctx, db, accepted.Version))(t); !s.Version.Follows(accepted.Version) || s.Strayed || !s.Whole {
			t.Errorf("accepted once more: %+v after %+v", s.Version, accepted.Version)
		}
	})
}

// TestMarksKept makes more versions than marks are kept for: who is far behind
// reads all, and is not told that the history is another one.
func TestMarksKept(t *testing.T) {
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
	dbtest.Exec(t, url, "UPDATE stint_state SET change_number = 199999")
	for range 512 {
		if _, _, err := db.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: "a", Block: true}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if s := must(load(t.Context(), db, held))(t); s.Strayed || !s.Whole {
		t.Errorf("far behind: strayed %v, whole %v", s.Strayed, s.Whole)
	}
	db.Close()
	if _, err := load(t.Context(), db, held); err == nil || errors.Is(err, rulesource.ErrEmpty) {
		t.Errorf("closed: %v", err)
	}
}

// TestMigrated brings a database of version 1, with what it holds, to this
// version's schema, and has a program of version 1 write to it.
func TestMigrated(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		set := func(key string) {
			t.Helper()
			if _, _, err := db.SetOverride(ctx, rulesource.Override{Rule: "api", Key: key, Block: true}, 0); err != nil {
				t.Fatal(err)
			}
		}
		must(db.Publish(ctx, 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
		set("a")
		dbtest.Exec(t, url, "DROP TABLE stint_marks", "DROP TABLE stint_staged", "DROP TABLE stint_before", "ALTER TABLE stint_overrides DROP COLUMN act", "ALTER TABLE stint_state DROP COLUMN mark", "ALTER TABLE stint_nodes DROP COLUMN address", "UPDATE stint_schema SET version = 1, oldest = 1")
		if err := db.CheckSchema(ctx); err == nil {
			t.Error("version 1 of the schema is not refused")
		}
		if from, to, err := db.Migrate(ctx); err != nil || from != 1 || to != rulesdb.SchemaVersion() {
			t.Fatalf("migrated from %d to %d: %v", from, to, err)
		}
		held := must(load(ctx, db, rulesource.Version{}))(t)
		if string(held.Document) != "one" || len(held.Overrides) != 1 {
			t.Fatalf("migrated: %+v", held)
		}
		set("b")
		if s := must(load(ctx, db, held.Version))(t); s.Strayed || !s.Version.Follows(held.Version) || len(s.Overrides) != 2 {
			t.Errorf("changed: %+v after %+v", s, held.Version)
		} else {
			held = s
		}
		// Version 1 makes no marks: what it has changed is read as a whole.
		dbtest.Exec(t, url, "UPDATE stint_state SET change_number = change_number + 1", "UPDATE stint_overrides SET change_number = 3 WHERE change_number = 1")
		for _, key := range []string{"", "c", "d"} {
			if key != "" {
				set(key)
			}
			s := must(load(ctx, db, held.Version))(t)
			if s.Strayed || !s.Version.Follows(held.Version) || key == "c" && !s.Whole || key == "d" && s.Whole {
				t.Errorf("beside version 1, %q: strayed %v, whole %v, %+v after %+v", key, s.Strayed, s.Whole, s.Version, held.Version)
			}
			held = s
		}
	})
}
