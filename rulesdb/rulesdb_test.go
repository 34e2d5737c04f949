package rulesdb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestMain runs the tests, which share a server of each kind; or, in a child process
// of theirs, a writer.
func TestMain(m *testing.M) {
	if url := os.Getenv("STINT_TEST_WRITER"); url != "" {
		writeOn(url)
	}
	if url := os.Getenv(killedWriter); url != "" {
		loadOn(url)
	}
	os.Exit(dbtest.Main(m))
}

// each runs a test on every kind of database, each on one that is empty.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "a b%20.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, dbtest.PostgresURL(t)) })
	t.Run("mariadb", func(t *testing.T) { test(t, dbtest.MariaDBURL(t)) })
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// loaded is a snapshot with what was handed over beside it.
type loaded struct {
	*rulesource.Snapshot
	Whole     bool
	Overrides []rulesource.Override
	Plans     []rulesource.Plan
}

func (l *loaded) Begin(_ *rulesource.Snapshot, whole bool) error { l.Whole = whole; return nil }

func (l *loaded) Override(o *rulesource.Override) error {
	l.Overrides = append(l.Overrides, *o)
	return nil
}

func (l *loaded) Plan(p *rulesource.Plan) error {
	l.Plans = append(l.Plans, *p)
	return nil
}

func load(ctx context.Context, db *rulesdb.DB, held rulesource.Version) (l *loaded, err error) {
	l = new(loaded)
	l.Snapshot, err = db.Load(ctx, held, l)
	return l, err
}

// TestRoundTrip publishes, overrides, reads and removes on each database.
func TestRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{Node: "n1"})
		if _, err := load(ctx, db, rulesource.Version{}); !errors.Is(err, rulesource.ErrEmpty) {
			t.Fatalf("an empty database: %v", err)
		}
		first := must(db.Publish(ctx, 0, rulesdb.Revision{Author: "anna", Comment: "the first; DROP TABLE 'x' ö", Name: "stint.yaml", Document: []byte("rules: []\x00\xff")}))(t)
		if first.Number != 1 || first.Parent != 0 {
			t.Fatalf("first: %+v", first)
		}
		if _, err := db.Publish(ctx, 0, rulesdb.Revision{Name: "x"}); !errors.Is(err, rulesdb.ErrConflict) {
			t.Fatalf("a writer that did not see the first: %v", err)
		}
		s := must(load(ctx, db, rulesource.Version{}))(t)
		if string(s.Document) != "rules: []\x00\xff" || s.Version.Revision != 1 || !s.Whole || s.Hash != first.Hash || s.Name != "stint.yaml" {
			t.Fatalf("loaded %+v", s)
		}
		if s.Ahead.Abs() > time.Minute {
			t.Errorf("the database's clock is %v ahead", s.Ahead)
		}
		overrides(t, db, s.Version)
		history(t, db)
		nodesAndTokens(t, db)
	})
}

func overrides(t *testing.T, db *rulesdb.DB, held rulesource.Version) {
	t.Helper()
	ctx := t.Context()
	hostile := "a'; DROP TABLE stint_overrides; --\x00\xff\\"
	set := rulesource.Override{Rule: "api", Key: hostile, Limits: []string{"20/m", "100/h"}, Reason: `"quoted' \`, Author: "anna"}
	was, _, err := db.SetOverride(ctx, set, time.Hour)
	if err != nil || !was.Removed {
		t.Fatalf("set: was %+v, %v", was, err)
	}
	s := must(load(ctx, db, held))(t)
	if s.Document != nil || s.Whole || len(s.Overrides) != 1 {
		t.Fatalf("the change alone: %+v", s)
	}
	got := s.Overrides[0]
	if got.Key != hostile || got.Reason != set.Reason || strings.Join(got.Limits, ",") != "20/m,100/h" || got.Expires.IsZero() {
		t.Fatalf("override %+v", got)
	}
	for i := range 5 {
		o := rulesource.Override{Rule: "site", Key: fmt.Sprintf("cust-%d", i), Unlimited: i%2 == 0, Block: i%2 == 1}
		if _, _, err := db.SetOverride(ctx, o, 0); err != nil {
			t.Fatal(err)
		}
	}
	page := must(db.Overrides(ctx, rulesdb.Page{Rule: "site", Prefix: "cust", N: 2}))(t)
	next := must(db.Overrides(ctx, rulesdb.Page{Rule: "site", N: 10, AfterRule: page[1].Rule, AfterKey: page[1].Key}))(t)
	if len(page) != 2 || len(next) != 3 || next[0].Key != "cust-2" || !next[0].Unlimited || !next[1].Block {
		t.Fatalf("pages %v, %v", page, next)
	}
	if _, _, err := db.SetOverride(ctx, rulesource.Override{Rule: "site", Key: "cust-0", Removed: true}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Override(ctx, "site", "cust-0"); !errors.Is(err, rulesdb.ErrNotFound) {
		t.Fatalf("removed: %v", err)
	}
	s = must(load(ctx, db, s.Version))(t)
	if len(s.Overrides) != 5 {
		t.Fatalf("changes %+v", s.Overrides)
	}
	if was := must(db.SetPlan(ctx, "header.x-api-key", "acme", "pro", "anna", ""))(t); was != "" {
		t.Fatalf("plan before: %q", was)
	}
	if was := must(db.SetPlan(ctx, "header.x-api-key", "acme", "free", "anna", ""))(t); was != "pro" {
		t.Fatalf("plan before: %q", was)
	}
	if err := db.Accept(ctx, "anna", "restored"); err != nil {
		t.Fatal(err)
	}
	held = s.Version
	s = must(load(ctx, db, held))(t)
	if !s.Whole || s.Document == nil || !s.Version.Follows(held) || held.Follows(s.Version) {
		t.Fatalf("after an accept: %+v", s)
	}
	if len(s.Overrides) != 5 || len(s.Plans) != 1 || s.Plans[0].Plan != "free" || s.Version.Change != 9 {
		t.Fatalf("whole: %+v", s)
	}
}

func history(t *testing.T, db *rulesdb.DB) {
	t.Helper()
	ctx := t.Context()
	must(db.Publish(ctx, 1, rulesdb.Revision{Author: "bert", Name: "stint.yaml", Document: []byte("two")}))(t)
	back := must(db.Rollback(ctx, 2, 1, "anna", "two was wrong"))(t)
	if back.Number != 3 || back.Parent != 2 || string(back.Document) != "rules: []\x00\xff" {
		t.Fatalf("rolled back to %+v", back)
	}
	log := must(db.Revisions(ctx, 0, 10))(t)
	if len(log) != 3 || log[0].Number != 3 || log[2].Author != "anna" || log[0].Document != nil {
		t.Fatalf("log %+v", log)
	}
	acts := must(db.Audit(ctx, 0, 3))(t)
	if len(acts) != 3 || acts[0].Act.Act != "roll back" || acts[1].Author != "bert" {
		t.Fatalf("audit %+v", acts)
	}
}

func nodesAndTokens(t *testing.T, db *rulesdb.DB) {
	t.Helper()
	ctx := t.Context()
	for _, e := range []string{"", "cannot compile"} {
		if err := db.Report(ctx, rulesdb.Node{Version: rulesource.Version{Revision: 3}, Since: time.Now(), Error: e}); err != nil {
			t.Fatal(err)
		}
	}
	nodes := must(db.Nodes(ctx, time.Minute))(t)
	if len(nodes) != 1 || nodes[0].Name != "n1" || nodes[0].Error != "cannot compile" {
		t.Fatalf("nodes %+v", nodes)
	}
	text := must(db.NewToken(ctx, "anna", "ci", rulesdb.Admin, time.Hour))(t)
	if err := db.RevokeToken(ctx, "anna", "ci"); err != nil {
		t.Fatal(err)
	}
	if err := db.RevokeToken(ctx, "anna", "ci"); !errors.Is(err, rulesdb.ErrNotFound) {
		t.Fatalf("revoked twice: %v", err)
	}
	tokens := must(db.Tokens(ctx))(t)
	if len(tokens) != 1 || tokens[0].Hash != rulesdb.HashToken(text) || tokens[0].Revoked.IsZero() {
		t.Fatalf("tokens %+v", tokens)
	}
	for _, step := range []struct {
		holder string
		want   bool
	}{{"a", true}, {"b", false}, {"a", true}} {
		if held := must(db.Lease(ctx, "worker", step.holder, time.Minute))(t); held != step.want {
			t.Errorf("lease of %s: %v", step.holder, held)
		}
	}
	if err := db.Release(ctx, "worker", "a"); err != nil {
		t.Fatal(err)
	}
	if held := must(db.Lease(ctx, "worker", "b", time.Minute))(t); !held {
		t.Error("a lease that was given back is not to be had")
	}
}

// TestWriters runs writers at once: numbers have no gaps, nothing is lost, and
// a reader never sees half a version.
func TestWriters(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		const writers, times = 4, 15
		ctx := t.Context()
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range times {
					doc := fmt.Sprintf("writer %d, %d", w, i)
					if _, err := db.Publish(ctx, rulesdb.AnyVersion, rulesdb.Revision{Author: doc, Name: "x.yaml", Document: []byte(doc)}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		reading, stop := context.WithCancel(ctx)
		seen := make(chan int64, 1)
		go func() {
			held := rulesource.Version{}
			for db.Wait(reading, held) == nil {
				s, err := load(reading, db, held)
				if reading.Err() != nil {
					break
				}
				if errors.Is(err, rulesource.ErrEmpty) {
					continue
				}
				if err != nil || s.Version.Revision <= held.Revision || rulesource.HashOf(s.Document) != s.Hash {
					t.Errorf("after %v: %+v, %v", held, s, err)
					break
				}
				held = s.Version
				if held.Revision == writers*times {
					break
				}
			}
			seen <- held.Revision
		}()
		all.Wait()
		timer := time.AfterFunc(20*time.Second, stop)
		if n := <-seen; n != writers*times {
			t.Errorf("the reader saw revision %d of %d", n, writers*times)
		}
		timer.Stop()
		stop()
		log := must(db.Revisions(ctx, 0, 1000))(t)
		for i, r := range log {
			if want := int64(len(log) - i); r.Number != want || r.Parent != want-1 {
				t.Fatalf("revision %d of %d: %+v", i, len(log), r)
			}
		}
		if len(log) != writers*times {
			t.Errorf("%d revisions of %d", len(log), writers*times)
		}
	})
}

// TestSchemaRefused holds the text of what a database without tables, or with
// newer ones, answers.
func TestSchemaRefused(t *testing.T) {
	db := dbtest.Open(t, dbtest.PostgresURL(t), rulesdb.Options{})
	err := db.CheckSchema(t.Context())
	if _, ok := errors.AsType[*rulesdb.SchemaError](err); !ok || !strings.Contains(err.Error(), "stint rules migrate") {
		t.Fatalf("without tables: %v", err)
	}
	if from, to, err := db.Migrate(t.Context()); err != nil || from != 0 || to != rulesdb.SchemaVersion() {
		t.Fatalf("migrated from %d to %d: %v", from, to, err)
	}
	if err := db.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefuses has URLs that can never work.
func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{"", "oracle://x", "sqlite:", "sqlite:x?mode=ro", "mysql://h", "mysql://h/db?x=1", "postgres://h:port/x", "postgres://u:secret@h:99999999/db"} {
		db, err := rulesdb.Open(url, rulesdb.Options{})
		if err == nil {
			db.Close()
			t.Errorf("%q was opened", url)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
}

// What SQLite cannot open says what it needs, which is more than reading: a directory that
// is there, and a file that may be written.
func TestOpenUnwritable(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none", "a.db"), dir} {
		if _, err := rulesdb.Open("sqlite:"+path, rulesdb.Options{}); err == nil || !strings.Contains(err.Error(), "its directory must be there") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestWritersIsolated runs writers at once on a database whose transactions are
// serializable unless they say otherwise: each waits for its turn, none is refused.
func TestWritersIsolated(t *testing.T) {
	const writers, times = 4, 10
	db := dbtest.OpenMigrated(t, dbtest.PostgresURL(t)+"&options=-c%20default_transaction_isolation%3Dserializable", rulesdb.Options{})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range times {
				if _, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "x.yaml", Document: fmt.Append(nil, w, i)}); err != nil {
					t.Error(err)
					return
				}
				if _, err := db.Lease(t.Context(), "w", fmt.Sprint(w), time.Second); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if log := must(db.Revisions(t.Context(), 0, 1000))(t); len(log) != writers*times {
		t.Errorf("%d revisions of %d", len(log), writers*times)
	}
}
