package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestRestoredDatabase restores a PostgreSQL to an older state by pg_dump and
// psql, while a server runs: it decides by what it holds, says so, also after a
// restart, and takes the older state once that is accepted.
func TestRestoredDatabase(t *testing.T) {
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	url, dir := dbtest.Postgres(t).URL, t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		return session{args: append(args, "--rules", url)}.run()
	}
	program := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	command("db", "migrate")
	command("rules", "push", "testdata/database/one.yaml")
	dump := filepath.Join(dir, "dump.sql")
	program("pg_dump", "--clean", "--if-exists", "--file", dump, url)
	command("rules", "push", "testdata/database/two.yaml")
	start := func() *serving {
		return startServe(t, "--rules", url, "--rules-copy", filepath.Join(dir, "copy"), "--node", "n1", "--http", "127.0.0.1:0")
	}
	s := start()
	limit := func(want string) bool {
		_, answer := s.ask("/v1/peek", `{"attributes":{"path":"/api/a","header.x-api-key":"k","ip":"192.0.2.1"}}`, "")
		return strings.Contains(answer, `"limit":`+want+",")
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for begun := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
			if time.Since(begun) > patience {
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("the newest rules", func() bool { return limit("20") })
	alarm := func() bool { return strings.Contains(command("nodes", "--json"), "stint rules accept") }
	program("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, url)
	until("the alarm", alarm)
	if !limit("20") {
		t.Error("the older state is taken before it is accepted")
	}
	_ = s.process.Process.Kill() // as a crash does
	_ = s.process.Wait()
	s = start()
	until("the alarm after a restart", alarm)
	if !limit("20") {
		t.Error("after a restart, the older state is taken before it is accepted")
	}
	command("rules", "accept", "--reason", "restored on purpose")
	until("the older state", func() bool { return limit("10") })
}
