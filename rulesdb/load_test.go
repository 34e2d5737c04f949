package rulesdb_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// customers yields overrides of so many customers, and then an error, unless it is nil.
func customers(n, perMinute int, then error) iter.Seq2[*rulesource.Override, error] {
	return func(yield func(*rulesource.Override, error) bool) {
		for i := range n {
			o := &rulesource.Override{Rule: "many", Key: fmt.Sprintf("customer-%07d", i), Limits: []string{fmt.Sprintf("%d/m", perMinute), "1000/h"}, Reason: "loaded"}
			if !yield(o, nil) {
				return
			}
		}
		if then != nil {
			yield(nil, then)
		}
	}
}

// inForce returns how many overrides there are, of which all must have a limit.
func inForce(t *testing.T, db *rulesdb.DB, limit string) int {
	t.Helper()
	s := must(load(t.Context(), db, rulesource.Version{}))(t)
	for _, o := range s.Overrides {
		if o.Limits[0] != limit {
			t.Fatalf("%s has %q, want %s", o.Key, o.Limits, limit)
		}
	}
	return len(s.Overrides)
}

// stagedRows returns how many overrides are staged.
func stagedRows(t *testing.T, url string) (n int) {
	t.Helper()
	dbtest.Query(t, url, "SELECT count(*) FROM stint_staged", &n)
	return n
}

// TestLoad: overrides are set as one change, and again; of a load with an error,
// nothing is; and what was cut off is neither in force nor lost.
func TestLoad(t *testing.T) {
	const n = 25_001 // of three batches
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: []")}))(t)
		_, held, err := db.SetOverride(t.Context(), rulesource.Override{Rule: "many", Key: "customer-0000007", Limits: []string{"1/m"}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		cut := errors.New("the line is cut")
		if _, err := db.LoadOverrides(t.Context(), "anna", customers(n-1, 2, cut), nil); !errors.Is(err, cut) {
			t.Fatal(err)
		}
		if got, staged := inForce(t, db, "1/m"), stagedRows(t, url); got != 1 || staged != 20_000 {
			t.Fatalf("cut off: %d in force, %d staged", got, staged)
		}
		dbtest.Exec(t, url, "UPDATE stint_staged SET reason = 'staged before' WHERE number = 9999")
		var last [2]int
		if got := must(db.LoadOverrides(t.Context(), "anna", customers(n, 2, nil), func(staged, inForce int) { last = [2]int{staged, inForce} }))(t); got != n || last != [2]int{n, n} {
			t.Fatalf("%d are in force, and progress is %v", got, last)
		}
		s := must(load(t.Context(), db, rulesource.Version{}))(t)
		resumed := 0
		for _, o := range s.Overrides {
			if o.Change != held.Change+1 || o.Author != "anna" || o.Limits[0] != "2/m" || o.Limits[1] != "1000/h" {
				t.Fatalf("%+v", o)
			}
			if o.Reason == "staged before" {
				resumed++
			}
		}
		if len(s.Overrides) != n || s.Version.Change != held.Change+1 || resumed != 2 || stagedRows(t, url) != 0 {
			t.Fatalf("%d in force, change %d, %d batches of before, %d staged", len(s.Overrides), s.Version.Change, resumed, stagedRows(t, url))
		}
		enough := &breaksOff{with: errors.New("enough")}
		if _, err := db.Load(t.Context(), rulesource.Version{}, enough); !errors.Is(err, enough.with) || inForce(t, db, "2/m") != n {
			t.Fatalf("a reading that its receiver breaks off: %v", err)
		}
		if acts := must(db.Audit(t.Context(), 0, 2))(t); acts[0].Act.Act != "overrides load" || acts[0].Subject != "25001 overrides" || acts[1].Act.Act != "override set" {
			t.Fatalf("%+v", acts)
		}
		if _, err := db.LoadOverrides(t.Context(), "anna", func(yield func(*rulesource.Override, error) bool) {
			for o, err := range customers(n, 3, nil) {
				if !yield(o, err) {
					return
				}
			}
			yield(&rulesource.Override{Rule: "many"}, nil)
		}, nil); !errors.Is(err, rulesdb.ErrInput) {
			t.Fatal(err)
		}
		if got, staged := inForce(t, db, "2/m"), stagedRows(t, url); got != n || staged != 0 {
			t.Fatalf("refused: %d in force, %d staged", got, staged)
		}
		if _, err := db.LoadOverrides(t.Context(), "anna", customers(0, 3, nil), nil); !errors.Is(err, rulesdb.ErrInput) {
			t.Fatal(err)
		}
	})
}

// A breaksOff receiver takes nothing.
type breaksOff struct {
	loaded
	with error
}

func (r *breaksOff) Override(*rulesource.Override) error { return r.with }

// TestLoadForgets: what nobody has repeated for a day is removed by the next load, or a prune.
func TestLoadForgets(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		_, _ = db.LoadOverrides(t.Context(), "anna", customers(10_000, 2, errors.New("cut")), nil)
		dbtest.Exec(t, url, fmt.Sprintf("UPDATE stint_staged SET staged = %d", time.Now().Add(-25*time.Hour).UnixMicro()))
		must(db.LoadOverrides(t.Context(), "anna", customers(1, 3, nil), nil))(t)
		if n := stagedRows(t, url); n != 0 {
			t.Fatalf("%d staged", n)
		}
		_, _ = db.LoadOverrides(t.Context(), "anna", customers(10_000, 2, errors.New("cut")), nil)
		for _, left := range []int{10_000, 0} {
			must(db.Prune(t.Context(), "anna", rulesdb.Retention{Revisions: 1}))(t)
			if n := stagedRows(t, url); n != left {
				t.Fatalf("%d staged after a prune, want %d", n, left)
			}
			dbtest.Exec(t, url, fmt.Sprintf("UPDATE stint_staged SET staged = %d", time.Now().Add(-25*time.Hour).UnixMicro()))
		}
	})
}

// TestLoadTwice: of two loads of the same overrides at once, each succeeds or says
// that the other one was first.
func TestLoadTwice(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: []")}))(t)
		failed := make(chan error)
		for range 2 {
			go func() {
				_, err := db.LoadOverrides(t.Context(), "anna", customers(20_000, 2, nil), nil)
				failed <- err
			}()
		}
		if a, b := <-failed, <-failed; a != nil && b != nil {
			t.Fatal(a, b)
		}
		if n := inForce(t, db, "2/m"); n != 20_000 {
			t.Fatalf("%d in force", n)
		}
	})
}

// TestLoadInterruptedAtCommit interrupts a load whose commit was sent: it is told that it
// may be in force.
func TestLoadInterruptedAtCommit(t *testing.T) {
	wire := dbtest.NewWire(t, dbtest.PostgresURL(t))
	db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	wire.Lose("commit\x00") // READ COMMITTED is something else
	go func() {
		for wire.Lost() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		interrupt()
	}()
	if _, err := db.LoadOverrides(ctx, "anna", customers(1, 2, nil), nil); !errors.Is(err, rulesdb.ErrAmbiguous) || wire.Lost() != 1 {
		t.Fatal(err, wire.Lost())
	}
}

const (
	killedRows   = 60_000
	killedWriter = "STINT_TEST_LOADER"
)

// loadOn loads overrides, k per minute each, for k from 1 on, until it is killed, and
// prints k and how far it is.
func loadOn(url string) {
	db, err := rulesdb.Open(url, rulesdb.Options{})
	for k := 1; err == nil; k++ {
		_, err = db.LoadOverrides(context.Background(), "anna", customers(killedRows, k, nil), func(staged, inForce int) { fmt.Println(k, staged, inForce) })
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestLoaderKilled kills a process that loads, and PostgreSQL with it every other time:
// at every step all overrides are of the load before, or all of this one, and a load goes on.
func TestLoaderKilled(t *testing.T) {
	need.Time(t)
	t.Run("sqlite", func(t *testing.T) { loaderKilled(t, "sqlite:"+t.TempDir()+"/a.db", nil) })
	t.Run("postgres", func(t *testing.T) {
		s := dbtest.Postgres(t)
		loaderKilled(t, s.URL, s)
	})
	t.Run("mariadb", func(t *testing.T) { loaderKilled(t, dbtest.MariaDBURL(t), nil) })
}

func loaderKilled(t *testing.T, url string, server *dbtest.Server) {
	t.Helper()
	self := must(os.Executable())(t)
	must(dbtest.OpenMigrated(t, url, rulesdb.Options{}).Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: []")}))(t)
	for step := range 14 { // the first load has 6 batches to stage and 6 to put in force
		loader := exec.Command(self)
		loader.Env = append(os.Environ(), killedWriter+"="+url)
		out := must(loader.StdoutPipe())(t)
		if err := loader.Start(); err != nil {
			t.Fatal(err)
		}
		var k, staged, moved int
		for range step + 1 {
			if _, err := fmt.Fscan(out, &k, &staged, &moved); err != nil {
				t.Fatal(err)
			}
		}
		crash := server != nil && step%2 == 1
		if crash {
			server.Kill()
		}
		_ = loader.Process.Kill()
		_ = loader.Wait() // it was killed
		if crash {
			server.Start(t)
		}
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		s := must(load(t.Context(), db, rulesource.Version{}))(t)
		if n := len(s.Overrides); n != 0 && n != killedRows || n == 0 && s.Version.Change > 0 {
			t.Fatalf("killed at %d %d %d: %d overrides after %d changes", k, staged, moved, n, s.Version.Change)
		}
		for _, o := range s.Overrides {
			if o.Limits[0] != s.Overrides[0].Limits[0] {
				t.Fatalf("killed at %d %d %d: %q and %q", k, staged, moved, s.Overrides[0].Limits, o.Limits)
			}
		}
	}
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	must(db.LoadOverrides(t.Context(), "anna", customers(killedRows, 9, nil), nil))(t)
	if n := inForce(t, db, "9/m"); n != killedRows {
		t.Fatalf("%d in force", n)
	}
}
