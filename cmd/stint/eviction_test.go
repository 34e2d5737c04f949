package main_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// lined returns how many lines of its log so far have some text in them.
func (s *serving) lined(text string) (n int) {
	for line := range strings.Lines(s.log()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// warnings returns how many lines warn, but for those of a busy store that did not
// answer in two seconds.
func (s *serving) warnings() int { return s.lined("level=WARN") - s.lined("the store does not answer") }

// TestServeEviction starts on servers with policies: one warning for those that
// forget keys in use, and none for others, or where it may not be asked.
func TestServeEviction(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/stint.yaml", sharedRules)
	const fits = "maxmemory-policy %s evicts keys in use: whose they are starts afresh; set maxmemory-policy noeviction"
	for _, one := range []struct {
		policy string
		more   []string
		warns  bool
	}{
		{"allkeys-lru", nil, true},
		{"volatile-random", nil, true},
		{"volatile-ttl", nil, true},
		{"noeviction", nil, false},
		{"allkeys-lru", []string{"--maxmemory", "0"}, false},
		{"allkeys-lru", []string{"--user", "default", "on", "nopass", "~*", "+@all", "-info"}, false},
	} {
		t.Run(fmt.Sprint(one.policy, one.more), func(t *testing.T) {
			redis := startRedis(t, "", append([]string{"--maxmemory", "50mb", "--maxmemory-policy", one.policy, "--user", "watcher", "on", "nopass", "+@all"}, one.more...)...)
			s := startServe(t, "-c", file, "--http", "127.0.0.1:0", "--store", "redis://"+redis.address, "--nodes", "1")
			for polls := 0; redis.informed(t) == polls; polls++ { // or the test's deadline
				time.Sleep(10 * time.Millisecond)
			}
			if text := fmt.Sprintf(fits, one.policy); one.warns {
				s.waitFor(text)
			}
			s.stop("")
			want := 0
			if one.warns {
				want = 1
			}
			if n := s.warnings(); n != want {
				t.Errorf("%d warnings, want %d:\n%s", n, want, s.log())
			}
		})
	}
}

// informed returns how often the server has been asked for INFO before, whether
// it answered or not; a call is such a question.
func (s *redisServer) informed(t *testing.T) (n int) {
	t.Helper()
	answer, err := s.command("AUTH watcher any", `EVAL "local c,r=string.match(redis.call('INFO','commandstats'),'cmdstat_info:calls=(%d+).-rejected_calls=(%d+)') return (c or 0)+(r or 0)" 0`)
	if err == nil {
		_, err = fmt.Sscanf(answer, ":%d", &n)
	}
	if err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return n
}

// TestServeEvictionElsewhere asks the master of a cluster, and the one that a
// Sentinel names.
func TestServeEvictionElsewhere(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/stint.yaml", sharedRules)
	cluster, sentinel := startCluster(t), startSentinel(t, startRedis(t, ""), 1)
	for url, master := range map[string]*redisServer{
		"redis://" + cluster.address:                       cluster,
		"redis://" + sentinel.address + "?master_set=main": sentinel.master(t),
	} {
		if answer, err := master.command("CONFIG SET maxmemory 50mb maxmemory-policy volatile-lfu"); err != nil || answer != "+OK" {
			t.Fatalf("%s %v", answer, err)
		}
		s := startServe(t, "-c", file, "--http", "127.0.0.1:0", "--store", url, "--nodes", "1")
		s.waitFor("maxmemory-policy volatile-lfu evicts keys in use")
		s.stop("")
		if n := s.warnings(); n != 1 {
			t.Errorf("%s: %d warnings, want 1:\n%s", url, n, s.log())
		}
	}
}

// master returns the server that a Sentinel watches.
func (s *redisServer) master(t *testing.T) *redisServer {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "SENTINEL GET-MASTER-ADDR-BY-NAME main\r\n")
	var host, port string
	if _, err := fmt.Fscanf(c, "*2\r\n$9\r\n%s\r\n$%d\r\n%s\r\n", &host, new(int), &port); err != nil {
		t.Fatal(err)
	}
	return &redisServer{address: net.JoinHostPort(host, port)}
}
