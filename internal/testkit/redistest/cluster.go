package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// A Cluster is nodes of a test: masters, then replicas.
type Cluster struct{ Nodes []*Server }

// StartCluster starts a cluster of masters, each with the given number of replicas,
// and waits until every node reports that the cluster is well.
func StartCluster(t testing.TB, masters, replicas int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range masters * (1 + replicas) {
		s, _ := startNode(t, nil)
		c.Nodes = append(c.Nodes, s)
	}
	c.create(t, c.Addrs(), replicas)
	return c
}

// StartInterleaved starts a cluster of masters that serve every so manyth slot, as
// clusters do that have been resharded often.
func StartInterleaved(t testing.TB, masters int) *Cluster {
	t.Helper()
	return startInterleaved(t, masters, "127.0.0.1")
}

// StartIPv6 is StartInterleaved for nodes that know each other by ::1. They answer at
// their Addr as well.
func StartIPv6(t testing.TB, masters int) *Cluster {
	t.Helper()
	return startInterleaved(t, masters, "::1", "--bind", "127.0.0.1", "::1", "--cluster-announce-ip", "::1")
}

func startInterleaved(t testing.TB, masters int, host string, more ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range masters {
		s, bus := startNode(t, nil, more...)
		c.Nodes = append(c.Nodes, s)
		args := []string{"cluster", "addslots"}
		for slot := i; slot < 16384; slot += masters {
			args = append(args, strconv.Itoa(slot))
		}
		s.CLI(t, args...)
		s.CLI(t, "cluster", "set-config-epoch", strconv.Itoa(i+1))
		if i > 0 {
			_, port, _ := net.SplitHostPort(s.Addr)
			_, busPort, _ := net.SplitHostPort(bus)
			c.Nodes[0].CLI(t, "cluster", "meet", host, port, busPort)
		}
	}
	c.awaitWell(t)
	return c
}

// awaitWell waits until every node says that it knows all, and that the cluster is well.
func (c *Cluster) awaitWell(t testing.TB) {
	t.Helper()
	for _, s := range c.Nodes {
		Eventually(t, "the cluster is not well", func() bool {
			info := s.CLI(t, "cluster", "info")
			return strings.Contains(info, "cluster_state:ok") && Number(info, "cluster_known_nodes:") == int64(len(c.Nodes))
		})
	}
}

// Patient is how long nodes and Sentinels that are silent are not taken for dead,
// unless a test has one fail: on a busy machine they may be silent for seconds.
const Patient = time.Minute

// NodeTimeout has the nodes that are there take others for dead after so long.
func (c *Cluster) NodeTimeout(t testing.TB, d time.Duration) {
	t.Helper()
	for _, s := range c.Nodes {
		select {
		case <-s.gone:
		default:
			s.CLI(t, "config", "set", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10))
		}
	}
}

// startNode starts a node of a cluster, and returns where its bus is as well.
func startNode(t testing.TB, env []string, args ...string) (s *Server, bus string) {
	t.Helper()
	bus = freeport.Addr(t)
	_, port, _ := net.SplitHostPort(bus)
	return start(t, t.TempDir(), append([]string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", strconv.FormatInt(Patient.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", "--cluster-port", port}, args...), env...), bus
}

// create makes a cluster of the nodes, which are known by these addresses.
func (c *Cluster) create(t testing.TB, addrs []string, replicas int) {
	t.Helper()
	CLI(t, append(append([]string{"--cluster", "create"}, addrs...), "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")...)
	c.awaitWell(t)
	for _, s := range c.Nodes { // replication is up as well
		Eventually(t, "a replica is not linked", func() bool {
			role := s.CLI(t, "role")
			return !strings.HasPrefix(role, "slave") || strings.Contains(role, "connected")
		})
	}
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() (all []string) {
	for _, s := range c.Nodes {
		all = append(all, s.Addr)
	}
	return all
}

// URL returns the address of every node as a URL.
func (c *Cluster) URL() string {
	all := c.Addrs()
	return "redis://" + all[0] + "?addr=" + strings.Join(all[1:], "&addr=")
}

// Masters returns the nodes that are masters now, of those that answer.
func (c *Cluster) Masters() (all []*Server) {
	for _, s := range c.Nodes {
		if s.Role() == "master" {
			all = append(all, s)
		}
	}
	return all
}

// Reshard moves slots from a master to another, once the nodes agree about who
// has what.
func (c *Cluster) Reshard(t testing.TB, from, to *Server, slots int) {
	t.Helper()
	Eventually(t, "the nodes do not agree", func() bool {
		return exec.Command("redis-cli", "--cluster", "check", c.Nodes[0].Addr).Run() == nil
	})
	id := func(s *Server) string { return strings.TrimSpace(s.CLI(t, "cluster", "myid")) }
	CLI(t, "--cluster", "reshard", from.Addr, "--cluster-from", id(from), "--cluster-to", id(to), "--cluster-slots", strconv.Itoa(slots), "--cluster-yes")
}

// Sentinels is a master with replicas, and Sentinels that watch them.
type Sentinels struct {
	Data      []*Server // the first is the master
	Sentinels []*Server
}

// StartSentinels starts a master called stint with a replica, and three Sentinels.
func StartSentinels(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{Data: []*Server{Start(t)}}
	host, port, _ := net.SplitHostPort(s.Data[0].Addr)
	s.Data = append(s.Data, Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0"))
	Eventually(t, "the replica is not linked", func() bool {
		return strings.Contains(s.Data[1].CLI(t, "info", "replication"), "master_link_status:up")
	})
	for range 3 {
		dir := t.TempDir()
		file := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("bind 127.0.0.1\ndir %s\nsentinel monitor stint %s %s 2\nsentinel down-after-milliseconds stint %d\nsentinel failover-timeout stint 2000\n", dir, host, port, Patient.Milliseconds())
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s.Sentinels = append(s.Sentinels, start(t, dir, []string{file, "--sentinel"}))
	}
	for _, one := range s.Sentinels {
		Eventually(t, "the Sentinels do not agree", func() bool {
			state := one.CLI(t, "sentinel", "master", "stint")
			return strings.Contains(one.CLI(t, "sentinel", "ckquorum", "stint"), "OK 3") && strings.Contains(state, "num-slaves\n1\n")
		})
	}
	return s
}

// DownAfter has the Sentinels give up who is silent for so long.
func (s *Sentinels) DownAfter(t testing.TB, d time.Duration) {
	t.Helper()
	for _, one := range s.Sentinels {
		one.CLI(t, "sentinel", "set", "stint", "down-after-milliseconds", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// URL returns the address of the Sentinels as a URL.
func (s *Sentinels) URL() string {
	return s.Sentinels[0].URL() + "?master_set=stint&addr=" + s.Sentinels[1].Addr + "&addr=" + s.Sentinels[2].Addr
}

// CLI asks the server with redis-cli, and returns what it prints.
func (s *Server) CLI(t testing.TB, args ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	return CLI(t, append([]string{"-h", host, "-p", port}, args...)...)
}

// Role returns "master", "slave" or, of a server that does not say, "".
func (s *Server) Role() string {
	host, port, _ := net.SplitHostPort(s.Addr)
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "role").Output()
	if err != nil {
		return ""
	}
	role, _, _ := strings.Cut(string(out), "\n")
	return role
}

// CLI runs redis-cli. Its failure is the test's.
func CLI(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Stat returns the number behind a name in a section of INFO, 0 if it is not there.
func (s *Server) Stat(t testing.TB, section, name string) int64 {
	t.Helper()
	return Number(s.CLI(t, "info", section), name)
}

// Number returns the number behind a name in a text, 0 if it is not there.
func Number(text, name string) (n int64) {
	_, rest, _ := strings.Cut(text, name)
	_, _ = fmt.Sscan(rest, &n)
	return n
}

// Eventually waits for something that takes as long as it takes, up to [MostWait].
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(MostWait); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", MostWait, what)
		}
	}
}
