package dbtest

import (
	"database/sql"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/rulesource"
)

// shared are servers for all tests of a process, since starting one takes seconds. Each test gets a
// database of its own.
var shared struct {
	mu        sync.Mutex
	postgres  *Server
	mariadb   *Server
	databases int
	cleanups  []func()
}

// lasting is a test whose cleanups run after all tests.
type lasting struct{ testing.TB }

func (lasting) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

// Main runs the tests and then stops the shared servers: call it in TestMain.
func Main(m *testing.M) int {
	status := m.Run()
	for i := len(shared.cleanups) - 1; i >= 0; i-- {
		shared.cleanups[i]()
	}
	return status
}

// PostgresURL returns the URL of an empty database on the shared PostgreSQL.
func PostgresURL(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres == nil {
		shared.postgres = startPostgres(lasting{t}, nil)
	}
	return shared.postgres.database(t, "/postgres?", "/%s?")
}

// MariaDBURL returns the URL of an empty database on the shared MariaDB.
func MariaDBURL(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.mariadb == nil {
		shared.mariadb = startMariaDB(lasting{t}, nil)
	}
	return shared.mariadb.database(t, "/stint", "/%s")
}

// database creates a database, and returns the server's URL with the name of the other database
// replaced by its name.
func (s *Server) database(t testing.TB, other, name string) string {
	t.Helper()
	shared.databases++
	made := fmt.Sprintf("test%d", shared.databases)
	s.Exec(t, "CREATE DATABASE "+made)
	return strings.Replace(s.URL, other, fmt.Sprintf(name, made), 1)
}

// Database creates a database in a PostgreSQL, and returns its URL.
func (s *Server) Database(t testing.TB, name string) string {
	t.Helper()
	s.Exec(t, "CREATE DATABASE "+name)
	return strings.Replace(s.URL, "/postgres?", "/"+name+"?", 1)
}

// Exec runs statements as the server's first user.
func (s *Server) Exec(t testing.TB, statements ...string) {
	t.Helper()
	db, err := sql.Open(s.ping, s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, one := range statements {
		if _, err := db.Exec(one); err != nil {
			t.Fatalf("%s: %v", one, err)
		}
	}
}

// signal sends a signal to the server and to its children, which have its connections.
func (s *Server) signal(which syscall.Signal) {
	pid := strconv.Itoa(s.cmd.Process.Pid)
	files, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, file := range files {
		children, _ := os.ReadFile(file) // a child that has ended needs no signal
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(n, which)
			}
		}
	}
	_ = s.cmd.Process.Signal(which)
}

// Exec runs statements in the database of a URL.
func Exec(t testing.TB, text string, statements ...string) {
	t.Helper()
	of(text).Exec(t, statements...)
}

// of returns a Server for running statements at a URL.
func of(text string) *Server {
	if file, ok := strings.CutPrefix(text, "sqlite:"); ok {
		return &Server{ping: "sqlite", dsn: file + "?_pragma=busy_timeout(10000)"}
	}
	if u, err := url.Parse(text); err == nil && u.Scheme == "mysql" {
		return &Server{ping: "mysql", dsn: fmt.Sprintf("%s@tcp(%s)%s", u.User.Username(), u.Host, u.Path)}
	}
	return &Server{ping: "pgx", dsn: text}
}

// Query reads the single row of a query in the database of a URL.
func Query(t testing.TB, text, statement string, into ...any) {
	t.Helper()
	s := of(text)
	db, err := sql.Open(s.ping, s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(statement).Scan(into...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// All yields overrides as LoadOverrides takes them.
func All(overrides []rulesource.Override) iter.Seq2[*rulesource.Override, error] {
	return func(yield func(*rulesource.Override, error) bool) {
		for i := range overrides {
			if !yield(&overrides[i], nil) {
				return
			}
		}
	}
}
