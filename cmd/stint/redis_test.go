package main_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/await"
	"github.com/stint-dev/stint/internal/freeport"
)

// patience is how long a test waits for what takes a moment on a machine that has
// nothing else to do.
const patience = 3 * time.Minute

// A redisServer is a redis-server of a test, on a loopback port of its own.
type redisServer struct {
	address string
	process *exec.Cmd
	ended   chan struct{}
}

// startRedis starts a redis-server, at an address or, if that is empty, at a
// free one. It ends with the test. A machine without redis-server fails the
// test.
func startRedis(t testing.TB, address string, args ...string) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing: apt-get install redis-server: %v", err)
	}
	for range 5 { // another program may take a port that was free
		s := &redisServer{address: address, ended: make(chan struct{})}
		if address == "" {
			s.address = freeport.Addr(t)
		}
		_, port, _ := net.SplitHostPort(s.address)
		log, err := os.Create(filepath.Join(t.TempDir(), "redis.log"))
		if err != nil {
			t.Fatal(err)
		}
		s.process = exec.Command(path, arguments(port, t.TempDir(), args)...)
		s.process.Stdout = log
		if err := s.process.Start(); err != nil {
			t.Fatal(err)
		}
		log.Close()
		go func() {
			_ = s.process.Wait()
			close(s.ended)
		}()
		t.Cleanup(s.kill)
		if s.ready() {
			return s
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// arguments adds the arguments that every server gets, after a file where there is one.
func arguments(port, dir string, args []string) []string {
	all := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir}
	if len(args) > 0 && args[0][0] == '/' { // a Sentinel's
		return append(append(args[:1:1], all...), args[1:]...)
	}
	return append(append(all, "--save", "", "--appendonly", "no"), args...)
}

// startCluster starts a cluster of one node.
func startCluster(t *testing.T) *redisServer {
	t.Helper()
	bus := freeport.Port(t)
	s := startRedis(t, "", "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", bus)
	if answer, err := s.command("CLUSTER ADDSLOTSRANGE 0 16383"); err != nil || answer != "+OK" {
		t.Fatalf("%s %v", answer, err)
	}
	await.Until(t, "the cluster is well", func() bool {
		answer, err := s.command("GET key")
		return err == nil && answer == "$-1"
	})
	return s
}

// startSentinel starts a server, and a Sentinel that watches it as main.
func startSentinel(t *testing.T) *redisServer {
	t.Helper()
	_, port, _ := strings.Cut(startRedis(t, "").address, ":")
	file := writeFile(t, t.TempDir()+"/sentinel.conf", "sentinel monitor main 127.0.0.1 "+port+" 1\n")
	return startRedis(t, "", file, "--sentinel")
}

// kill ends the server as a crash would. A second call does nothing.
func (s *redisServer) kill() {
	_ = s.process.Process.Kill()
	<-s.ended
}

// ready waits until the server answers, if only that it wants a password.
func (s *redisServer) ready() bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if answer, err := s.command("PING"); err == nil && !strings.HasPrefix(answer, "-LOADING") {
			return true
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// command sends commands in a line each, and returns the last answer's first
// line.
func (s *redisServer) command(lines ...string) (answer string, err error) {
	c, err := net.DialTimeout("tcp", s.address, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	answers := bufio.NewReader(c)
	for _, line := range lines {
		if _, err := fmt.Fprintf(c, "%s\r\n", line); err != nil {
			return "", err
		}
		if answer, err = answers.ReadString('\n'); err != nil {
			return "", err
		}
	}
	return strings.TrimRight(answer, "\r\n"), nil
}
