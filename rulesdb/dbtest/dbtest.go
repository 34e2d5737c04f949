// Package dbtest starts database servers of a test's own on loopback, and stops
// them by their process.
package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"

	_ "github.com/go-sql-driver/mysql" // to see that the server is up
	_ "github.com/jackc/pgx/v5/stdlib"
)

// A Server is a database server.
type Server struct {
	// URL is what rulesdb.Open takes.
	URL  string
	Port int
	dir  string
	name string
	args []string
	env  []string // nil is the test's
	as   *syscall.Credential
	cmd  *exec.Cmd
	done chan error
	ping string // driver for database/sql
	dsn  string
}

// Postgres starts a PostgreSQL with an empty database, or skips the test where
// there is none.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return PostgresBy(t, nil)
}

// PostgresBy is [Postgres] with a clock.
func PostgresBy(t testing.TB, clock *Clock) *Server {
	t.Helper()
	bin := find(t, "postgres", "initdb")
	s := &Server{dir: directory(t), Port: port(t), name: filepath.Join(bin, "postgres"), env: clock.environment(), as: nobody(t), ping: "pgx"}
	own(t, s.dir, s.as)
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", s.dir+"/data", "-U", "stint", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.args = []string{"-D", s.dir + "/data", "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", s.dir}
	s.URL = fmt.Sprintf("postgres://stint@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
	s.dsn = s.URL
	s.Start(t)
	return s
}

// Standby starts a hot standby of a PostgreSQL, which can be read.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	b := &Server{dir: directory(t), Port: port(t), name: s.name, as: s.as, ping: s.ping}
	own(t, b.dir, b.as)
	base := exec.Command(filepath.Join(filepath.Dir(s.name), "pg_basebackup"), "-D", b.dir+"/data", "-R", "-c", "fast", "--no-sync", "-d", s.URL)
	base.SysProcAttr = &syscall.SysProcAttr{Credential: b.as}
	if out, err := base.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	b.args = []string{"-D", b.dir + "/data", "-p", strconv.Itoa(b.Port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", b.dir}
	b.URL = strings.Replace(s.URL, ":"+strconv.Itoa(s.Port)+"/", ":"+strconv.Itoa(b.Port)+"/", 1)
	b.dsn = b.URL
	b.Start(t)
	return b
}

// MariaDB starts a MariaDB with an empty database, and further arguments, or
// skips the test where there is none.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return MariaDBBy(t, nil, args...)
}

// MariaDBBy is [MariaDB] with a clock.
func MariaDBBy(t testing.TB, clock *Clock, args ...string) *Server {
	t.Helper()
	find(t, "mariadbd", "mariadb-install-db")
	s := &Server{dir: directory(t), Port: port(t), name: "mariadbd", env: clock.environment(), as: nobody(t), ping: "mysql"}
	own(t, s.dir, s.as)
	// One that starts removes the temporary tables that it finds in its directory for them.
	s.args = []string{"--no-defaults", "--datadir=" + s.dir + "/data", "--tmpdir=" + s.dir}
	install := exec.Command("mariadb-install-db", append(s.args, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	install.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	s.args = append(s.args, "--socket="+s.dir+"/s", "--port="+strconv.Itoa(s.Port),
		"--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M")
	s.args = append(s.args, args...)
	s.URL = fmt.Sprintf("mysql://root@127.0.0.1:%d/stint", s.Port)
	s.dsn = fmt.Sprintf("root@tcp(127.0.0.1:%d)/", s.Port)
	s.Start(t)
	db, err := sql.Open("mysql", s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE IF NOT EXISTS stint CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return s
}

// Start starts the server, again after Kill, and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		err := s.launch(t, end)
		if err == nil {
			return
		}
		// Children of a killed PostgreSQL go on until they notice.
		if !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// launch starts the server, and returns when it answers or why it does not.
func (s *Server) launch(t testing.TB, end time.Time) error {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.name, s.args...)
	s.cmd.Env = s.env
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	s.done = done
	go func() { done <- s.cmd.Wait() }()
	t.Cleanup(func() { s.Kill() })
	for time.Now().Before(end) {
		if err = s.answers(); err == nil {
			return nil
		}
		select {
		case err := <-done:
			done <- err
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s ended: %w\n%s", s.name, err, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer: %w", s.name, err)
}

// answers asks whether the server is up.
func (s *Server) answers() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, err := sql.Open(s.ping, s.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop makes it stand still until Continue, with its connections open.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue lets it go on.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) end(with syscall.Signal) {
	_ = s.cmd.Process.Signal(with)
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	err := <-s.done
	s.done <- err
}

// find returns the directory of programs, or skips the test.
func find(t testing.TB, programs ...string) (dir string) {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, d := range append(dirs, "") {
		found := true
		for _, p := range programs {
			path := filepath.Join(d, p)
			if d == "" {
				path = p
			}
			if _, err := exec.LookPath(path); err != nil {
				found = false
			}
		}
		if found {
			return d
		}
	}
	t.Skipf("%v: not installed", programs)
	return ""
}

// directory is short, since sockets are in it.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// What a test of root writes, a server that runs as another user may have to read.
func init() {
	if os.Getuid() == 0 {
		syscall.Umask(0o022)
	}
}

// nobody returns the system's user of that name, for servers that refuse to run as
// root. It is nil unless the test runs as root.
func nobody(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func own(t testing.TB, dir string, as *syscall.Credential) {
	t.Helper()
	if as == nil {
		return
	}
	if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
		t.Fatal(err)
	}
}

// port returns one that is the test's.
func port(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(freeport.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
