package rulesdb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestNoteActUnwritten acts elsewhere while the audit takes no row, as on a full disk:
// nothing is done. What fails leaves no row, and a failed undo can be tried again.
func TestNoteActUnwritten(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		note := func(fails error) (done bool, err error) {
			err = db.NoteAct(t.Context(), rulesdb.Act{Act: "reset", Subject: "api"}, func(_ context.Context, a *rulesdb.Act) error {
				done, a.Was, a.Now = true, "used", "as if never used"
				return fails
			})
			return done, err
		}
		failure := errors.New("the store is away")
		if done, err := note(failure); !done || !errors.Is(err, failure) {
			t.Errorf("%v, %v", done, err)
		}
		if done, err := note(nil); !done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		acts, err := db.Audit(t.Context(), 0, 9)
		if err != nil || len(acts) != 1 || acts[0].Was != "used" || acts[0].Now != "as if never used" || acts[0].At.IsZero() {
			t.Fatalf("%+v %v", acts, err)
		}
		for _, fails := range []error{failure, nil, rulesdb.ErrConflict} {
			err := db.NoteUndo(t.Context(), acts[0].Number, func(context.Context, time.Time) (rulesdb.Act, error) {
				return rulesdb.Act{Act: "charge"}, fails
			})
			if !errors.Is(err, fails) {
				t.Errorf("undo: %v, want %v", err, fails)
			}
		}
		dbtest.Exec(t, url, "DROP TABLE stint_audit")
		if done, err := note(nil); done || err == nil {
			t.Errorf("done without the audit: %v, %v", done, err)
		}
	})
}
