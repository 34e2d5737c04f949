package rulesdb_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// past moves all times of a database a year back.
func past(t *testing.T, url string) {
	t.Helper()
	const year int64 = 365 * 24 * 3600 * 1_000_000
	dbtest.Exec(t, url,
		fmt.Sprintf("UPDATE stint_audit SET created = created - %d", year),
		fmt.Sprintf("UPDATE stint_overrides SET created = created - %d, expires = CASE WHEN expires = 0 THEN 0 ELSE expires - %d END", year, year),
		fmt.Sprintf("UPDATE stint_plans SET created = created - %d", year),
		fmt.Sprintf("UPDATE stint_nodes SET seen = seen - %d", year),
		fmt.Sprintf("UPDATE stint_tokens SET expires = CASE WHEN expires = 0 THEN 0 ELSE expires - %d END, revoked = CASE WHEN revoked = 0 THEN 0 ELSE revoked - %d END", year, year))
}

// TestPrune removes what is old on each database, and nothing that is in force.
// A node that has missed the end of an override learns of it all the same.
func TestPrune(t *testing.T) {
	need.Time(t)
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{Node: "n1"})
		for i := range 12 {
			must(db.Publish(ctx, int64(i), rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: fmt.Append(nil, i)}))(t)
		}
		set := func(key string, lasts time.Duration, o rulesource.Override) {
			t.Helper()
			o.Rule, o.Key = "api", key
			if _, _, err := db.SetOverride(ctx, o, lasts); err != nil {
				t.Fatal(err)
			}
		}
		ending := make([]rulesource.Override, 2500) // more than one step
		for i := range ending {
			ending[i] = rulesource.Override{Rule: "api", Key: fmt.Sprint("gone ", i), Block: true, Expires: time.Now().Add(time.Hour)}
		}
		must(db.LoadOverrides(ctx, "anna", dbtest.All(ending), nil))(t)
		set("stays", 0, rulesource.Override{Block: true})
		set("customer", 0, rulesource.Override{Unlimited: true})
		set("removed", 0, rulesource.Override{Block: true})
		set("removed", 0, rulesource.Override{Removed: true})
		must(db.SetPlan(ctx, "jwt.org", "acme", "pro", "anna", ""))(t)
		must(db.SetPlan(ctx, "jwt.org", "acme", "", "anna", ""))(t)
		held := must(load(ctx, db, rulesource.Version{}))(t).Version
		set("customer", time.Hour, rulesource.Override{Block: true})
		must(db.NewToken(ctx, "anna", "ended", rulesdb.Viewer, time.Hour))(t)
		must(db.NewToken(ctx, "anna", "good", rulesdb.Viewer, 0))(t)
		past(t, url)
		set("late", time.Hour, rulesource.Override{Block: true})

		if _, err := db.Prune(ctx, "anna", rulesdb.Retention{Revisions: 1, Older: time.Minute}); err == nil {
			t.Error("a minute is kept")
		}
		if gone := must(db.Prune(ctx, "anna", rulesdb.Retention{}))(t); gone != (rulesdb.Pruned{}) {
			t.Errorf("what keeps all removes %+v", gone)
		}
		gone := must(db.Prune(ctx, "anna", rulesdb.Retention{Revisions: 5, Older: 300 * 24 * time.Hour}))(t)
		if want := (rulesdb.Pruned{Revisions: 7, Acts: 12 + 1 + 5 + 4, Overrides: 2502, Plans: 1, Tokens: 1}); gone != want {
			t.Errorf("gone: %+v, want %+v", gone, want)
		}
		all := must(db.Revisions(ctx, 0, 100))(t)
		if len(all) != 5 || all[0].Number != 12 || all[4].Number != 8 {
			t.Errorf("revisions: %+v", all)
		}
		acts := must(db.Audit(ctx, 0, 10))(t)
		if len(acts) != 2 || acts[0].Act.Act != "prune" || acts[0].Author != "anna" || !strings.Contains(acts[0].Subject, "2502 overrides") {
			t.Errorf("acts: %+v", acts)
		}
		tokens := must(db.Tokens(ctx))(t)
		if len(tokens) != 1 || tokens[0].Name != "good" {
			t.Errorf("tokens: %+v", tokens)
		}
		s := must(load(ctx, db, held))(t) // it holds that customer is unlimited
		there := make(map[string]bool)
		for _, o := range s.Overrides {
			there[o.Key] = true
		}
		if !s.Whole || len(there) != 2 || !there["stays"] || !there["late"] {
			t.Errorf("a node that holds %v: whole %v, %v", held, s.Whole, there)
		}
		if gone := must(db.Prune(ctx, "anna", rulesdb.Retention{Revisions: 5, Older: 300 * 24 * time.Hour}))(t); gone != (rulesdb.Pruned{}) {
			t.Errorf("again: %+v", gone)
		}
	})
}

// An act that was written while a clock was wrong takes no others with it.
func TestPruneWrongClock(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{Node: "n1"})
		for i := range 3 {
			must(db.Publish(t.Context(), int64(i), rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: fmt.Append(nil, i)}))(t)
		}
		dbtest.Exec(t, url, "UPDATE stint_audit SET created = 1 WHERE number = 3")
		if gone := must(db.Prune(t.Context(), "anna", rulesdb.Retention{Older: 300 * 24 * time.Hour}))(t); gone != (rulesdb.Pruned{}) {
			t.Errorf("gone: %+v, though all is of today", gone)
		}
	})
}
