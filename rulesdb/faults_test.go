package rulesdb_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestMigrationFails lets a migration fail in the middle: there is no trace of
// it, and it succeeds once what was in its way is gone.
func TestMigrationFails(t *testing.T) {
	url := dbtest.PostgresURL(t)
	dbtest.Exec(t, url, "CREATE TABLE stint_nodes (x INT)")
	db := dbtest.Open(t, url, rulesdb.Options{})
	if _, _, err := db.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "stint_nodes") {
		t.Fatalf("a table was in the way: %v", err)
	}
	if s, err := db.Status(t.Context()); err != nil || s.Schema != 0 {
		t.Fatalf("after a migration that failed: %+v, %v", s, err)
	}
	dbtest.Exec(t, url, "DROP TABLE stint_nodes")
	if _, to, err := db.Migrate(t.Context()); err != nil || to != rulesdb.SchemaVersion() {
		t.Fatalf("again: to %d, %v", to, err)
	}
}

// TestLargeDocument publishes and reads a document of 30 MB, and refuses one
// that is larger than any may be.
func TestLargeDocument(t *testing.T) {
	need.Time(t)
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		document := bytes.Repeat([]byte("# 30 MB of a comment\x00\xff\n"), 30<<20/24)
		must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: document}))(t)
		if s := must(load(t.Context(), db, rulesource.Version{}))(t); !bytes.Equal(s.Document, document) {
			t.Errorf("%d bytes of %d", len(s.Document), len(document))
		}
		if _, err := db.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: make([]byte, rulesdb.MaxDocument+1)}); err == nil {
			t.Error("more than 32 MiB were taken")
		}
	})
}

// TestSlowNetwork publishes and reads a document over a connection that needs longer
// for it than any other statement may take.
func TestSlowNetwork(t *testing.T) {
	need.Time(t)
	servers(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		one, two := bytes.Repeat([]byte("# one MB of a comment\xff\n"), 1<<20/24), bytes.Repeat([]byte("# and another one MB\xff\n\n"), 1<<20/24)
		direct := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{})
		must(direct.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: one}))(t)
		slow, silent := dbtest.NewWire(t, server.URL), dbtest.NewWire(t, server.URL)
		bySlow, bySilent := dbtest.OpenMigrated(t, slow.URL, rulesdb.Options{}), dbtest.OpenMigrated(t, silent.URL, rulesdb.Options{})
		slow.Slow(2 * len(one) / 21)
		silent.Silence()
		var all sync.WaitGroup
		all.Go(func() {
			if s, err := load(t.Context(), bySlow, rulesource.Version{}); err != nil || !bytes.Equal(s.Document, one) {
				t.Errorf("reading: %v", err)
			}
		})
		all.Go(func() {
			_, err := bySilent.SetPlan(t.Context(), "user", "1", "pro", "alice", "")
			if err == nil || !strings.Contains(err.Error(), "not done within 10s") {
				t.Errorf("a write that is not answered: %v", err)
			}
		})
		all.Go(func() {
			if _, err := bySlow.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: two}); err != nil {
				t.Errorf("writing: %v", err)
			}
		})
		all.Wait()
		if s := must(load(t.Context(), direct, rulesource.Version{}))(t); !bytes.Equal(s.Document, two) {
			t.Errorf("%d bytes of %d were written", len(s.Document), len(two))
		}
	})
}

// TestGrants follows a database as the users of docs/configs, who may do nothing else.
func TestGrants(t *testing.T) {
	if _, err := os.Stat("../docs"); err != nil {
		t.Skip("only this module is here")
	}
	statements := func(name string) string {
		return string(must(os.ReadFile("../docs/configs/" + name))(t))
	}
	t.Run("postgres", func(t *testing.T) {
		url := dbtest.PostgresURL(t)
		dbtest.OpenMigrated(t, url, rulesdb.Options{})
		dbtest.Exec(t, url, "CREATE ROLE stint_node LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
		grants(t, statements("postgres-server.sql"), url, strings.Replace(url, "stint@", "stint_node@", 1))
		dbtest.Exec(t, url, "CREATE ROLE stint_worker LOGIN IN ROLE stint_node")
		workerGrants(t, statements("postgres-worker.sql"), url, strings.Replace(url, "stint@", "stint_worker@", 1))
	})
	t.Run("mariadb", func(t *testing.T) {
		url := dbtest.MariaDBURL(t)
		dbtest.OpenMigrated(t, url, rulesdb.Options{})
		dbtest.Exec(t, url, "CREATE USER stint_node")
		grants(t, statements("mysql-server.sql"), url, strings.Replace(url, "root@", "stint_node@", 1))
	})
}

// grants runs statements, and then does what a server does, as the user of servers.
func grants(t *testing.T, statements, url, as string) {
	t.Helper()
	first := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	must(first.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	grant(t, statements, url)
	node := dbtest.Open(t, as, rulesdb.Options{Node: "n1"})
	if err := node.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if err := node.Wait(t.Context(), rulesource.Version{}); err != nil {
		t.Error(err)
	}
	must(load(t.Context(), node, rulesource.Version{}))(t)
	for range 2 {
		if err := node.Report(t.Context(), rulesdb.Node{Since: time.Now()}); err != nil {
			t.Error(err)
		}
	}
	must(node.Tokens(t.Context()))(t)
	if _, err := node.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml"}); err == nil {
		t.Error("a server may publish")
	}
	if _, _, err := node.SetOverride(t.Context(), rulesource.Override{Rule: "a", Key: "b", Block: true}, 0); err == nil {
		t.Error("a server may block")
	}
}

func grant(t *testing.T, statements, url string) {
	t.Helper()
	for one := range strings.SplitSeq(statements, ";") {
		if strings.TrimSpace(one) != "" {
			dbtest.Exec(t, url, one)
		}
	}
}

// workerGrants runs statements, and then does what a worker does beside what a server
// does, as its user.
func workerGrants(t *testing.T, statements, url, as string) {
	t.Helper()
	grant(t, statements, url)
	past(t, url)
	worker := dbtest.Open(t, as, rulesdb.Options{Node: "w1"})
	if held, err := worker.Lease(t.Context(), "worker", "w1", time.Second); err != nil || !held {
		t.Error(held, err)
	}
	must(load(t.Context(), worker, rulesource.Version{}))(t)
	gone := must(worker.Prune(t.Context(), "w1", rulesdb.Retention{Revisions: 1, Older: time.Hour}))(t)
	if gone.Acts != 1 || gone.Nodes != 1 {
		t.Errorf("gone: %+v", gone)
	}
	if _, err := worker.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml"}); err == nil {
		t.Error("a worker may publish")
	}
}

// servers runs a test on a server of its own of each kind that can be killed.
func servers(t *testing.T, test func(t *testing.T, server *dbtest.Server)) {
	t.Run("postgres", func(t *testing.T) { test(t, dbtest.Postgres(t)) })
	t.Run("mariadb", func(t *testing.T) { test(t, dbtest.MariaDB(t, "--innodb-flush-log-at-trx-commit=1")) })
}

// TestKilled kills a server while a node waits: the node gets an error, and what
// is published after the server is back.
func TestKilled(t *testing.T) {
	servers(t, func(t *testing.T, server *dbtest.Server) {
		db := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{Poll: 200 * time.Millisecond})
		must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
		held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
		waited := make(chan error, 1)
		go func() { waited <- db.Wait(t.Context(), held) }()
		server.Kill()
		if err := <-waited; err == nil {
			t.Fatal("a wait for a database that is gone ended without an error")
		}
		server.Start(t)
		must(db.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: []byte("two")}))(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := db.Wait(ctx, held); err != nil {
			t.Fatal(err)
		}
		if s := must(load(ctx, db, held))(t); string(s.Document) != "two" || !s.Version.Follows(held) {
			t.Errorf("after: %+v", s)
		}
	})
}

// TestKilledWhileWriting kills a server while several write: what a writer saw
// committed is there, numbers have no gaps, and nothing is there twice.
func TestKilledWhileWriting(t *testing.T) {
	need.Time(t)
	servers(t, func(t *testing.T, server *dbtest.Server) {
		db := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{})
		var mu sync.Mutex
		reported := make(map[string]int64)
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for w := range 4 {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					text := fmt.Sprintf("writer %d, %d", w, i)
					if r, err := db.Publish(ctx, rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml", Comment: text, Document: []byte(text)}); err == nil {
						mu.Lock()
						reported[text] = r.Number
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		server.Kill()
		time.Sleep(50 * time.Millisecond)
		server.Start(t)
		time.Sleep(300 * time.Millisecond)
		stop()
		all.Wait()
		log := must(db.Revisions(t.Context(), 0, 100_000))(t)
		there := make(map[string]int64)
		for i, r := range log {
			if want := int64(len(log) - i); r.Number != want || r.Parent != want-1 {
				t.Fatalf("revision %d of %d: %+v", i, len(log), r)
			}
			if there[r.Comment] != 0 {
				t.Errorf("%s is there twice", r.Comment)
			}
			there[r.Comment] = r.Number
		}
		for text, n := range reported {
			if there[text] != n {
				t.Fatalf("%s: told revision %d, there is %d", text, n, there[text])
			}
		}
		t.Logf("%d of %d revisions were told to their writers", len(reported), len(log))
	})
}

// TestPgBouncer follows through a PgBouncer in transaction mode, which loses
// LISTEN: the poll finds what is new.
func TestPgBouncer(t *testing.T) {
	url := dbtest.PostgresURL(t)
	writer := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	must(writer.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("0")}))(t)
	node := dbtest.OpenMigrated(t, dbtest.PgBouncer(t, url), rulesdb.Options{Poll: 200 * time.Millisecond})
	held := rulesource.Version{}
	for i := range 5 {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		if err := node.Wait(ctx, held); err != nil {
			t.Fatal(err)
		}
		s := must(load(ctx, node, held))(t)
		stop()
		if s.Version.Revision != int64(i+1) {
			t.Fatalf("revision %d after %d", s.Version.Revision, i)
		}
		held = s.Version
		must(writer.Publish(t.Context(), int64(i+1), rulesdb.Revision{Name: "a.yaml", Document: []byte("n")}))(t)
	}
}

// TestStopped stops a server as a machine that hangs does, with its connections
// open: a node's wait ends with an error, and goes on afterwards.
func TestStopped(t *testing.T) {
	need.Time(t)
	servers(t, func(t *testing.T, server *dbtest.Server) {
		db := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{Poll: 100 * time.Millisecond})
		must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
		held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
		server.Stop()
		if err := db.Wait(t.Context(), held); err == nil {
			t.Error("a wait for a database that hangs ended without an error")
		}
		server.Continue()
		must(db.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: []byte("two")}))(t)
		if err := db.Wait(t.Context(), held); err != nil {
			t.Error(err)
		}
	})
}

// TestHalfOpen loses everything on the way to a server, connections stay open: a
// node's wait ends with an error, and goes on when the way is back.
func TestHalfOpen(t *testing.T) {
	need.Time(t)
	servers(t, func(t *testing.T, server *dbtest.Server) {
		writer := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{})
		must(writer.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
		wire := dbtest.NewWire(t, server.URL)
		db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{Poll: 100 * time.Millisecond})
		held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
		wire.Silence()
		if err := db.Wait(t.Context(), held); err == nil {
			t.Error("a wait on a silent connection ended without an error")
		}
		wire.Restore()
		must(writer.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: []byte("two")}))(t)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		for ctx.Err() == nil {
			if err := db.Wait(ctx, held); err == nil {
				break
			}
		}
		if s := must(load(ctx, db, held))(t); string(s.Document) != "two" {
			t.Errorf("after: %+v", s)
		}
	})
}

// TestNotifyLost changes a PostgreSQL without a notification: the poll finds it.
func TestNotifyLost(t *testing.T) {
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{Poll: 300 * time.Millisecond})
	must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
	waited := make(chan error, 1)
	go func() { waited <- db.Wait(t.Context(), held) }()
	dbtest.Exec(t, url, "INSERT INTO stint_revisions SELECT 2, 1, author, created, remark, name, hash, document FROM stint_revisions",
		"UPDATE stint_state SET revision = 2")
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if s := must(load(t.Context(), db, held))(t); s.Version.Revision != 2 {
		t.Errorf("after: %+v", s)
	}
}

// TestListenLost loses the statement by which a node asks a PostgreSQL for notifications,
// on a connection that stays open: the node gives it up, and asks on another one.
func TestListenLost(t *testing.T) {
	url := dbtest.PostgresURL(t)
	writer, wire := dbtest.OpenMigrated(t, url, rulesdb.Options{}), dbtest.NewWire(t, url)
	must(writer.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	db := dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{Poll: time.Hour})
	held := must(load(t.Context(), db, rulesource.Version{}))(t).Version
	wire.Lose("listen ")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	waited := make(chan error, 1)
	go func() { waited <- db.Wait(ctx, held) }()
	for wire.Lost() == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	wire.Lose("")
	must(writer.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: []byte("two")}))(t)
	if err := <-waited; err != nil {
		t.Error("the change was not noticed: ", err)
	}
}

// TestDatabaseFull fills the disk of a database: a writer gets an error, nothing of
// what it wrote is there, and what was there can be read.
func TestDatabaseFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	db := dbtest.OpenMigrated(t, "sqlite:"+filepath.Join(dir, "a.db"), rulesdb.Options{})
	t.Cleanup(func() { db.Close() })
	must(db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	_, err := db.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: make([]byte, 4<<20)})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("more than the disk holds: %v", err)
	}
	if s := must(load(t.Context(), db, rulesource.Version{}))(t); string(s.Document) != "one" || s.Version.Revision != 1 {
		t.Errorf("after: %+v", s)
	}
	must(db.Publish(t.Context(), 1, rulesdb.Revision{Name: "a.yaml", Document: []byte("two")}))(t)
}
