package rulesdb_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/internal/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// TestMigrationFails lets a migration fail in the middle: there is no trace of
// it, and it succeeds once what was in its way is gone.
func TestMigrationFails(t *testing.T) {
	url := dbtest.PostgresURL(t)
	dbtest.Exec(t, url, "CREATE TABLE stint_nodes (x INT)")
	db, err := rulesdb.Open(url, rulesdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
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
	each(t, func(t *testing.T, url string) {
		db := open(t, url, rulesdb.Options{})
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

// TestGrants follows a database as the user that docs/RULES-DB.md makes for
// servers, who may do nothing else.
func TestGrants(t *testing.T) {
	url := dbtest.PostgresURL(t)
	first := open(t, url, rulesdb.Options{})
	must(first.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("one")}))(t)
	page, err := os.ReadFile("../docs/RULES-DB.md")
	if err != nil {
		t.Skip("only this module is here")
	}
	_, grants, _ := strings.Cut(string(page), "```sql\n")
	grants, _, _ = strings.Cut(grants, "```")
	dbtest.Exec(t, url, "CREATE ROLE stint_node LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
	for one := range strings.SplitSeq(grants, ";") {
		if strings.TrimSpace(one) != "" {
			dbtest.Exec(t, url, one)
		}
	}
	node, err := rulesdb.Open(strings.Replace(url, "stint@", "stint_node@", 1), rulesdb.Options{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
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

// TestKilled kills a PostgreSQL while a node waits: the node gets an error, and
// what is published after the server is back.
func TestKilled(t *testing.T) {
	server := dbtest.Postgres(t)
	db := open(t, server.URL, rulesdb.Options{Poll: 200 * time.Millisecond})
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
}

// TestPgBouncer follows through a PgBouncer in transaction mode, which loses
// LISTEN: the poll finds what is new.
func TestPgBouncer(t *testing.T) {
	url := dbtest.PostgresURL(t)
	writer := open(t, url, rulesdb.Options{})
	must(writer.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("0")}))(t)
	node := open(t, dbtest.PgBouncer(t, url), rulesdb.Options{Poll: 200 * time.Millisecond})
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

// TestStopped stops a PostgreSQL as a machine that hangs does, with its
// connections open: a node's wait ends with an error, and goes on afterwards.
func TestStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for the time limit of a call")
	}
	server := dbtest.Postgres(t)
	db := open(t, server.URL, rulesdb.Options{Poll: 100 * time.Millisecond})
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
}
