// Package redistest starts the servers that the tests of redisstore run on: real
// ones, on free loopback ports, in directories of their own. STINT_REDIS_SERVER
// names the program: redis-server unless it says valkey-server, say.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// MostWait is how long a test waits for what takes a moment on a machine that has
// nothing else to do: it fails by that alone where something never comes. Sentinels
// whose machine stood still for two seconds do nothing for half a minute.
const MostWait = 5 * time.Minute

// Program returns the name of the program that servers run.
func Program() string {
	if name := os.Getenv("STINT_REDIS_SERVER"); name != "" {
		return name
	}
	return "redis-server"
}

// A Server is a redis-server of a test.
type Server struct {
	// Addr is where it listens: 127.0.0.1 and a port.
	Addr string

	path, dir string
	args, env []string // env is beside the test's own
	cmd       *exec.Cmd
	gone      chan struct{} // closed when the process has ended
}

// URL returns the server's address as a URL.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Start starts a server with further arguments, such as "--maxmemory", "1mb".
// It is stopped when the test ends. A machine without the program skips the
// test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, t.TempDir(), args)
}

// start tries a few ports: where they are not kept, another program may take one
// before the server does.
func start(t testing.TB, dir string, args []string, env ...string) *Server {
	t.Helper()
	path := need.Program(t, Program())
	for range 5 {
		s := &Server{Addr: freeport.Addr(t), path: path, dir: dir, args: args, env: env}
		s.run(t)
		if s.ready() {
			return s
		}
	}
	t.Fatalf("%s does not start: see its logs in %s", Program(), dir)
	return nil
}

// StartAt is [Start] at an address that is the test's.
func StartAt(t testing.TB, addr string, args ...string) *Server {
	t.Helper()
	path := need.Program(t, Program())
	s := &Server{Addr: addr, path: path, dir: t.TempDir(), args: args}
	s.Restart(t)
	return s
}

// run starts the process, which ends with the test.
func (s *Server) run(t testing.TB) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	all := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no"}, s.args...)
	if len(s.args) > 0 && !strings.HasPrefix(s.args[0], "--") { // a file of configuration comes first
		all = append([]string{s.args[0], "--port", port}, s.args[1:]...)
	}
	cmd := exec.Command(s.path, all...)
	cmd.Env = append(os.Environ(), s.env...)
	log, err := os.OpenFile(filepath.Join(s.dir, "redis-"+port+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	s.cmd, s.gone = cmd, gone
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
	})
}

// Kill ends the server at once, as kill -9 does, and waits for its end.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// Launch starts a server that has been killed again, where it was, with what it
// has saved and nothing else. It does not wait for it.
func (s *Server) Launch(t testing.TB) {
	t.Helper()
	s.run(t)
}

// Restart is Launch, and waits until the server answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Launch(t)
	if !s.ready() {
		t.Fatalf("%s does not start again: see its log in %s", s.path, s.dir)
	}
}

// ready waits until the server answers, or has ended.
func (s *Server) ready() bool {
	for end := time.Now().Add(MostWait); time.Now().Before(end); {
		if s.ping() == nil {
			return true
		}
		select {
		case <-s.gone:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

func (s *Server) ping() error {
	c, err := net.DialTimeout("tcp", s.Addr, MostWait)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(MostWait)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var answer [5]byte
	if _, err := c.Read(answer[:]); err != nil || string(answer[:]) != "+PONG" && string(answer[:]) != "-NOAU" {
		return fmt.Errorf("%q: %w", answer, err)
	}
	return nil
}

// Signal sends the server a signal: SIGSTOP stalls it, SIGCONT lets it go on.
func (s *Server) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
