package rulesdb_test

import (
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestUndoOverrides takes acts on one customer back, the newest first and out of order:
// each puts back what was, to the microsecond, and only what the act made is taken for it,
// whatever it says.
func TestUndoOverrides(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		set := func(o rulesource.Override, lasts time.Duration) rulesource.Override {
			t.Helper()
			o.Rule, o.Key = "api", "k\xff"
			_, now, err := db.SetOverride(ctx, o, lasts)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		undo := func(act int64, want string) {
			t.Helper()
			did, err := db.UndoOverrides(ctx, act, "anna")
			if want != "" {
				if !errors.Is(err, rulesdb.ErrInput) || !strings.Contains(err.Error(), want) {
					t.Errorf("undo %d: %q, %v, want %q", act, did, err, want)
				}
			} else if err != nil {
				t.Errorf("undo %d: %v", act, err)
			}
		}
		holds := func(want rulesource.Override) {
			t.Helper()
			o, err := db.Override(ctx, "api", "k\xff")
			if want.Removed && errors.Is(err, rulesdb.ErrNotFound) {
				return
			}
			if err != nil || rulesdb.Describe(&o) != rulesdb.Describe(&want) || !o.Expires.Equal(want.Expires) {
				t.Errorf("%+v %v, want %+v", o, err, want)
			}
		}
		first := set(rulesource.Override{Limits: []string{"5/m", "7/h"}}, time.Hour) // 1
		second := set(rulesource.Override{Unlimited: true}, 0)                       // 2
		set(rulesource.Override{Block: true}, 0)                                     // 3
		set(rulesource.Override{Unlimited: true}, 0)                                 // 4, with the words of 2
		undo(2, "is not what holds any more")
		undo(4, "")
		undo(3, "")
		holds(second)
		undo(2, "")
		holds(first)
		undo(1, "")
		holds(rulesource.Override{Removed: true})
		if _, err := db.UndoOverrides(ctx, 1, "anna"); !errors.Is(err, rulesdb.ErrConflict) {
			t.Errorf("once more: %v", err)
		}
		first = set(rulesource.Override{Block: true}, 0) // 9
		set(rulesource.Override{Removed: true}, 0)       // 10
		set(rulesource.Override{Unlimited: true}, 0)     // 11
		undo(11, "")
		holds(rulesource.Override{Removed: true})
		undo(10, "")
		holds(first)
		undo(13, "undo itself")
		undo(99, "not in the audit")
		set(rulesource.Override{Block: true}, 50*time.Millisecond) // 14
		time.Sleep(100 * time.Millisecond)
		undo(14, "has ended by itself")
	})
}

// TestUndoLoad takes a load back as one act: who had an override before has it again, who
// had none has none, and who was given another since keeps it.
func TestUndoLoad(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		set := func(key, limit string, lasts time.Duration) {
			t.Helper()
			if _, _, err := db.SetOverride(ctx, rulesource.Override{Rule: "api", Key: key, Limits: []string{limit}}, lasts); err != nil {
				t.Fatal(err)
			}
		}
		load := func(limit string, keys ...string) {
			t.Helper()
			var all iter.Seq2[*rulesource.Override, error] = func(yield func(*rulesource.Override, error) bool) {
				for _, key := range keys {
					if !yield(&rulesource.Override{Rule: "api", Key: key, Limits: []string{limit}}, nil) {
						return
					}
				}
			}
			if _, err := db.LoadOverrides(ctx, "anna", all, nil); err != nil {
				t.Fatal(err)
			}
		}
		held := func() string {
			t.Helper()
			var parts []string
			if err := db.EachOverride(ctx, rulesdb.Page{}, func(o rulesource.Override) error {
				parts = append(parts, o.Key+" "+rulesdb.Describe(&o))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return strings.Join(parts, "; ")
		}
		set("a", "1/m", time.Hour) // 1
		set("b", "1/m", 0)         // 2
		before := held()
		load("2/m", "a", "b", "c") // 3
		load("3/m", "a", "b", "c") // 4
		set("c", "9/m", 0)         // 5
		if _, err := db.UndoOverrides(ctx, 3, "otto"); !errors.Is(err, rulesdb.ErrInput) {
			t.Errorf("a load that another has replaced: %v", err)
		}
		for _, act := range []int64{4, 3} {
			if did, err := db.UndoOverrides(ctx, act, "otto"); err != nil || !strings.Contains(did, "2 as before, 0 ended") {
				t.Errorf("act %d: %q %v", act, did, err)
			}
		}
		if got := held(); got != before+"; c 9/m" {
			t.Errorf("%s\nwant %s; c 9/m", got, before)
		}
		load("4/m", "a", "d") // 8
		if did, err := db.UndoOverrides(ctx, 8, "otto"); err != nil || did != "1 as before, 1 ended" {
			t.Errorf("%q %v", did, err)
		}
		if got := held(); got != before+"; c 9/m" {
			t.Errorf("%s\nwant %s; c 9/m", got, before)
		}
		acts, err := db.Audit(ctx, 0, 1)
		if err != nil || acts[0].Author != "otto" || acts[0].Reason != rulesdb.UndoOf(8) || acts[0].Act.Act != rulesdb.ActLoad {
			t.Errorf("%+v %v", acts, err)
		}
	})
}
