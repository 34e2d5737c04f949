package main_test

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// A dumping is a database server with its programs to dump and to restore.
type dumping struct {
	programs      []string
	url           func(t testing.TB) string
	dump, restore func(url, file string) []string
}

var dumpings = map[string]dumping{
	"postgres": {
		programs: []string{"pg_dump", "psql"},
		url:      func(t testing.TB) string { return dbtest.Postgres(t).URL },
		dump: func(url, file string) []string {
			return []string{"pg_dump", "--clean", "--if-exists", "--file", file, url}
		},
		restore: func(url, file string) []string {
			return []string{"psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file, url}
		},
	},
	"mariadb": {
		programs: []string{"mariadb-dump", "mariadb"},
		url:      func(t testing.TB) string { return dbtest.MariaDB(t).URL },
		dump: func(url, file string) []string {
			return append([]string{"mariadb-dump", "--result-file=" + file}, mariadbAt(url)...)
		},
		restore: func(url, file string) []string {
			return append([]string{"mariadb", "--execute=source " + file}, mariadbAt(url)...)
		},
	},
}

// mariadbAt returns what MariaDB's programs take in place of a URL.
func mariadbAt(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		panic(err) // dbtest made it
	}
	return []string{"--host=" + u.Hostname(), "--port=" + u.Port(), "--user=" + u.User.Username(), strings.TrimPrefix(u.Path, "/")}
}

// TestRestoredDatabase restores PostgreSQL and MariaDB to an older state with their
// own programs, while a server runs: it decides by what it holds, says so, also
// after a restart and when the older state is changed, and takes that once it is
// accepted.
func TestRestoredDatabase(t *testing.T) {
	need.Time(t)
	for name, d := range dumpings {
		t.Run(name, func(t *testing.T) { restoredDatabase(t, d) })
	}
}

func restoredDatabase(t *testing.T, d dumping) {
	for _, program := range d.programs {
		need.Program(t, program)
	}
	url, dir := d.url(t), t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		return session{args: append(args, "--rules", url)}.run()
	}
	program := func(args []string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	command("rules", "migrate")
	command("rules", "push", "testdata/database/one.yaml")
	dump := filepath.Join(dir, "dump.sql")
	program(d.dump(url, dump))
	command("rules", "push", "testdata/database/two.yaml")
	start := func() *serving {
		return startServe(t, "--rules", url, "--rules-copy", filepath.Join(dir, "copy"), "--node", "n1", "--http", "127.0.0.1:0")
	}
	s := start()
	limit := func(want string) bool {
		_, answer := s.ask("/v1/peek", `{"attributes":{"path":"/api/a","header.x-api-key":"k","ip":"192.0.2.1"}}`, "")
		return strings.Contains(answer, `"limit":`+want+",")
	}
	await.Until(t, "the newest rules", func() bool { return limit("20") })
	alarm := func() bool { return strings.Contains(command("rules", "nodes", "--json"), "stint rules accept") }
	program(d.restore(url, dump))
	await.Until(t, "the alarm", alarm)
	if !limit("20") {
		t.Error("the older state is taken before it is accepted")
	}
	_ = s.end(syscall.SIGKILL) // as a crash does
	s = start()
	await.Until(t, "the alarm after a restart", alarm)
	if !limit("20") {
		t.Error("after a restart, the older state is taken before it is accepted")
	}
	command("rules", "push", "testdata/database/three.yaml") // under the number that the server holds
	_ = s.end(syscall.SIGKILL)
	s = start()
	await.Until(t, "the alarm for another history", alarm)
	if !limit("20") {
		t.Error("another history is taken before it is accepted")
	}
	command("rules", "accept", "--reason", "restored on purpose")
	await.Until(t, "what was accepted", func() bool { return limit("30") })
}
