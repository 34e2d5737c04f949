package rulesdb_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// clocked runs a test on each server, with a clock of its own.
func clocked(t *testing.T, test func(t *testing.T, db *rulesdb.DB, clock *dbtest.Clock)) {
	for kind, start := range map[string]func(*testing.T, *dbtest.Clock) *dbtest.Server{
		"postgres": func(t *testing.T, c *dbtest.Clock) *dbtest.Server { return dbtest.PostgresBy(t, c) },
		"mariadb":  func(t *testing.T, c *dbtest.Clock) *dbtest.Server { return dbtest.MariaDBBy(t, c) },
	} {
		t.Run(kind, func(t *testing.T) {
			clock := dbtest.NewClock(t)
			clock.Zone = "Europe/Berlin"
			test(t, dbtest.OpenMigrated(t, start(t, clock).URL, rulesdb.Options{}), clock)
		})
	}
}

// TestLocalTime: the hour before local clocks are set back, the hour after, and
// those in summer and in winter are where they are in UTC.
func TestLocalTime(t *testing.T) {
	clocked(t, func(t *testing.T, db *rulesdb.DB, clock *dbtest.Clock) {
		back := time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC) // in Berlin, from 3 to 2 o'clock
		for _, off := range []time.Duration{-90 * 24 * time.Hour, -90 * time.Minute, -30 * time.Minute, 30 * time.Minute, 90 * time.Minute, 90 * 24 * time.Hour} {
			ahead := time.Until(back.Add(off)).Round(time.Second)
			clock.Set(t, ahead)
			got, doubt := aheadOf(t, db)
			if (got - ahead).Abs() > time.Minute+doubt {
				t.Errorf("%v from the end of summer time: the database is %v ahead, and says %v", off, ahead, got)
			}
		}
	})
}

func aheadOf(t *testing.T, db *rulesdb.DB) (ahead, doubt time.Duration) {
	t.Helper()
	ahead, doubt, err := db.Clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ahead, doubt
}

// TestLeaseClockBack: who held a lease when the clock went back holds it, as long as
// they say so, and no longer.
func TestLeaseClockBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *rulesdb.DB, clock *dbtest.Clock) {
		lease := func(name, holder string, want bool) {
			t.Helper()
			if held := must(db.Lease(t.Context(), name, holder, time.Minute))(t); held != want {
				t.Errorf("%s asks for %s: %v, want %v", holder, name, held, want)
			}
		}
		lease("renewed", "a", true)
		lease("lost", "a", true)
		clock.Set(t, -time.Hour)
		lease("renewed", "a", true)
		lease("renewed", "b", false)
		lease("lost", "b", true)
		lease("lost", "a", false)
		clock.Set(t, time.Hour)
		lease("renewed", "b", true)
	})
}

// TestTokenClock: a token expires by the clock that dates it.
func TestTokenClock(t *testing.T) {
	clocked(t, func(t *testing.T, db *rulesdb.DB, clock *dbtest.Clock) {
		clock.Set(t, -2*time.Hour)
		for name, lasts := range map[string]time.Duration{"hour": time.Hour, "good": 0, "revoked": 0} {
			must(db.NewToken(t.Context(), "anna", name, rulesdb.Viewer, lasts))(t)
		}
		if err := db.RevokeToken(t.Context(), "anna", "revoked"); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			ahead time.Duration
			want  string
		}{{-2 * time.Hour, "revoked"}, {-90 * time.Minute, "revoked"}, {-30 * time.Minute, "hour revoked"}} {
			clock.Set(t, step.ahead)
			var ended []string
			for _, token := range must(db.Tokens(t.Context()))(t) {
				if token.Ended {
					ended = append(ended, token.Name)
				}
			}
			if got := strings.Join(ended, " "); got != step.want {
				t.Errorf("%v ahead: %q have ended, want %q", step.ahead, got, step.want)
			}
		}
	})
}

// TestNamesApart: names that differ in case, in accents or in their end are names of
// their own, and any text can be written, whatever the database's default is.
func TestNamesApart(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, "mysql:") {
			name := url[strings.LastIndex(url, "/")+1:]
			dbtest.Exec(t, url, "ALTER DATABASE "+name+" CHARACTER SET latin1 COLLATE latin1_swedish_ci")
		}
		ctx, db := t.Context(), dbtest.OpenMigrated(t, url, rulesdb.Options{})
		names := []string{"api", "API", "apí", "ap", "жук"}
		for i, name := range names {
			o := rulesource.Override{Rule: name, Key: "k", Limits: []string{fmt.Sprint(i+1, "/s")}, Reason: "причина ☃", Author: "Ольга 😀"}
			was, _, err := db.SetOverride(ctx, o, 0)
			if err != nil || !was.Removed {
				t.Errorf("%s: before %+v, %v", name, was, err)
			}
			if was, err := db.SetPlan(ctx, "jwt."+name, "acme", name, "Ольга", "☃"); err != nil || was != "" {
				t.Errorf("plan of jwt.%s: before %q, %v", name, was, err)
			}
			if held := must(db.Lease(ctx, name, name, time.Minute))(t); !held {
				t.Errorf("lease %s is another's", name)
			}
			if err := db.Report(ctx, rulesdb.Node{Name: name}); err != nil {
				t.Error(err)
			}
			must(db.NewToken(ctx, "Ольга", name, rulesdb.Viewer, 0))(t)
		}
		if _, _, err := db.SetOverride(ctx, rulesource.Override{Rule: "api", Key: "k", Removed: true}, 0); err != nil {
			t.Error(err)
		}
		if err := db.RevokeToken(ctx, "anna", "api"); err != nil {
			t.Error(err)
		}
		left := must(db.Overrides(ctx, rulesdb.Page{}))(t)
		plans, nodes := must(db.Plans(ctx, "", rulesource.Plan{}, 10))(t), must(db.Nodes(ctx, 0))(t)
		if len(left) != len(names)-1 || len(plans) != len(names) || len(nodes) != len(names) {
			t.Errorf("%d overrides, %d plans, %d nodes of %d", len(left), len(plans), len(nodes), len(names))
		}
		for _, token := range must(db.Tokens(ctx))(t) {
			if token.Ended != (token.Name == "api") {
				t.Errorf("token %s has ended: %v", token.Name, token.Ended)
			}
		}
		for _, blank := range []string{"api ", " api", "api\u00a0"} {
			_, _, overridden := db.SetOverride(ctx, rulesource.Override{Rule: blank, Key: "k", Block: true}, 0)
			_, planned := db.SetPlan(ctx, blank, "acme", "pro", "anna", "")
			_, made := db.NewToken(ctx, "anna", blank, rulesdb.Viewer, 0)
			if overridden == nil || planned == nil || made == nil {
				t.Errorf("%q is taken: %v, %v, %v", blank, overridden, planned, made)
			}
		}
	})
}
