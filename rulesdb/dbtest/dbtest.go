// Package dbtest starts database servers for tests on loopback, and stops each by its process.
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
	"github.com/stint-dev/stint/internal/testkit/need"

	_ "github.com/go-sql-driver/mysql" // the driver that Ping uses
	_ "github.com/jackc/pgx/v5/stdlib"
)

// A Server is a database server.
type Server struct {
	// URL is the URL for rulesdb.Open.
	URL  string
	Port int
	dir  string
	name string
	args []string
	env  []string // nil for the test's own environment
	as   *syscall.Credential
	cmd  *exec.Cmd
	done chan error
	ping string // the database/sql driver that pings it
	dsn  string
}

// Postgres starts a PostgreSQL with an empty database, which takes seconds. It skips the test where
// PostgreSQL is not installed.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return PostgresBy(t, nil)
}

// PostgresBy is [Postgres] with a clock.
func PostgresBy(t testing.TB, clock *Clock) *Server {
	t.Helper()
	need.Time(t)
	return startPostgres(t, clock)
}

func startPostgres(t testing.TB, clock *Clock) *Server {
	t.Helper()
	postgres, initdb := need.Program(t, "postgres"), need.Program(t, "initdb")
	s := &Server{dir: directory(t), Port: port(t), name: postgres, env: clock.environment(), as: nobody(t), ping: "pgx"}
	own(t, s.dir, s.as)
	create := exec.Command(initdb, "-D", s.dir+"/data", "-U", "stint", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	create.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := create.CombinedOutput(); err != nil {
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

// MariaDB starts a MariaDB with an empty database and additional arguments, which takes seconds. It
// skips the test where MariaDB is not installed.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return MariaDBBy(t, nil, args...)
}

// MariaDBBy is [MariaDB] with a clock.
func MariaDBBy(t testing.TB, clock *Clock, args ...string) *Server {
	t.Helper()
	need.Time(t)
	return startMariaDB(t, clock, args...)
}

func startMariaDB(t testing.TB, clock *Clock, args ...string) *Server {
	t.Helper()
	mariadbd, prepare := need.Program(t, "mariadbd"), need.Program(t, "mariadb-install-db")
	s := &Server{dir: directory(t), Port: port(t), name: mariadbd, env: clock.environment(), as: nobody(t), ping: "mysql"}
	own(t, s.dir, s.as)
	// A starting server removes the temporary tables that it finds in its tmpdir, so each has its
	// own.
	s.args = []string{"--no-defaults", "--datadir=" + s.dir + "/data", "--tmpdir=" + s.dir}
	install := exec.Command(prepare, append(s.args, "--auth-root-authentication-method=normal", "--skip-test-db")...)
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

// Start starts the server, also after Kill, and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		err := s.launch(t, end)
		if err == nil {
			return
		}
		// The children of a killed PostgreSQL run on until they notice.
		if !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// launch starts the server. It returns once the server answers, or with the reason why not.
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

// answers reports with an error whether the server is down.
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

// Stop suspends the server until Continue. Its connections stay open.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue resumes the server.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) end(with syscall.Signal) {
	_ = s.cmd.Process.Signal(with)
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	err := <-s.done
	s.done <- err
}

// directory returns a directory with a short path, since the paths of sockets in it are bounded.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A server that runs as another user must be able to read what a test of root writes.
func init() {
	if os.Getuid() == 0 {
		syscall.Umask(0o022)
	}
}

// nobody returns the user nobody, for servers that refuse to run as root. It returns nil unless the
// test runs as root.
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

// port returns a free port that is reserved for the test.
func port(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(freeport.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
