package main_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// patience is how long a test waits for what takes a moment on a machine that has
// nothing else to do.
const patience = 3 * time.Minute

// A redisServer is a redis-server of a test.
type redisServer struct {
	*redistest.Server
	address string
}

// startRedis starts a redis-server, at an address or, if that is empty, at a
// free one. It ends with the test.
func startRedis(t testing.TB, address string, args ...string) *redisServer {
	t.Helper()
	if address != "" {
		return &redisServer{redistest.StartAt(t, address, args...), address}
	}
	s := redistest.Start(t, args...)
	return &redisServer{s, s.Addr}
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

// startSentinel starts a Sentinel that watches a server as main; so many of them make
// another one the master.
func startSentinel(t testing.TB, master *redisServer, quorum int) *redisServer {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.address)
	dir := t.TempDir()
	text := fmt.Sprintf("bind 127.0.0.1\ndir %s\nsentinel monitor main %s %s %d\n", dir, host, port, quorum)
	return startRedis(t, "", disk.Write(t, dir+"/sentinel.conf", text), "--sentinel")
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
