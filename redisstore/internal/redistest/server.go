// Package redistest starts the servers that the tests of redisstore run on: real
// ones, on free loopback ports, in directories of their own.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A Server is a redis-server of a test.
type Server struct {
	// Addr is where it listens: 127.0.0.1 and a port.
	Addr string

	cmd *exec.Cmd
}

// URL returns the server's address as a URL.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Start starts a server with further arguments, such as "--maxmemory", "1mb".
// It is stopped when the test ends. A machine without redis-server fails the
// test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, t.TempDir(), args)
}

// start tries a few ports: another program may take one before the server does.
func start(t testing.TB, dir string, args []string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing, and no mock would do: apt-get install redis-server: %v", err)
	}
	for range 5 {
		s := &Server{Addr: freeAddr(t)}
		_, port, _ := net.SplitHostPort(s.Addr)
		all := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
		s.cmd = exec.Command(path, all...)
		log, err := os.Create(filepath.Join(dir, "redis-"+port+".log"))
		if err != nil {
			t.Fatal(err)
		}
		s.cmd.Stdout, s.cmd.Stderr = log, log
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		log.Close()
		gone := make(chan struct{})
		go func() {
			_ = s.cmd.Wait()
			close(gone)
		}()
		t.Cleanup(func() {
			_ = s.cmd.Process.Kill()
			<-gone
		})
		if s.ready(gone) {
			return s
		}
	}
	t.Fatalf("redis-server does not start: see its logs in %s", dir)
	return nil
}

// ready waits until the server answers, or has ended.
func (s *Server) ready(gone <-chan struct{}) bool {
	for range 500 {
		if s.ping() == nil {
			return true
		}
		select {
		case <-gone:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

func (s *Server) ping() error {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var answer [5]byte
	if _, err := c.Read(answer[:]); err != nil || string(answer[:]) != "+PONG" {
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

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
