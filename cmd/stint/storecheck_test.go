package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// documentedUser returns the line of docs/REDIS-REFERENCE.md that makes a user, under
// another name, and the commands that it allows.
func documentedUser(t *testing.T, name string) (line string, commands []string) {
	t.Helper()
	line = regexp.MustCompile(`(?m)^ACL SETUSER stint .*$`).FindString(pages.Read(t, "docs/REDIS-REFERENCE.md"))
	if line == "" {
		t.Fatal("docs/REDIS-REFERENCE.md has no line ACL SETUSER stint")
	}
	for _, m := range regexp.MustCompile(` \+(\S+)`).FindAllStringSubmatch(line, -1) {
		commands = append(commands, m[1])
	}
	line = strings.Replace(strings.Replace(line, " stint ", " "+name+" ", 1), ">password", ">secret", 1)
	return line, commands
}

// user makes the documented user on a server, with more words behind it.
func (s *redisServer) user(t *testing.T, name string, more ...string) {
	t.Helper()
	line, _ := documentedUser(t, name)
	if answer, err := s.command(strings.Join(append([]string{line}, more...), " ")); err != nil || answer != "+OK" {
		t.Fatalf("%s %v: %s %v", line, more, answer, err)
	}
}

// checkStore runs stint doctor on a store.
func checkStore(t *testing.T, url string) (said string, status int) {
	status, out, errs := runStint(t, "doctor", "--limit", "1/h", "--http", "127.0.0.1:0", "--store", url, "--store-timeout", "5s")
	return strings.Join(strings.Fields(out+errs), " "), status // without the ends of lines
}

// denied returns the commands that a server has kept from users.
func (s *redisServer) denied(t *testing.T) []string {
	t.Helper()
	host, port, _ := strings.Cut(s.address, ":")
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "--no-raw", "ACL", "LOG", "100").Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`"object"\s+\d+\) "([^"]*)"`).FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

const rulesOfModes = `rules:
  - {name: strict, match: {path: /strict}, key: [ip], limits: [300/h, 200 per day sliding_counter]}
  - {name: log, match: {path: /log}, key: [ip], limits: 300/h sliding_log}
  - {name: lease, match: {path: /lease}, key: [ip], limits: 1000/h, mode: lease}
  - {name: async, match: {path: /async}, key: [ip], limits: 1000/h, mode: async}
`

// TestUser gives the user of docs/REDIS-REFERENCE.md to a check, which finds all it needs,
// and to a process that holds limits in every mode: no command is kept from it
// but those that the document calls optional.
func TestUser(t *testing.T) {
	redis := startRedis(t, "")
	redis.user(t, "stint")
	url := "redis://stint:secret@" + redis.address
	if said, status := checkStore(t, url); status != 0 || !strings.Contains(said, "a decision takes") {
		t.Errorf("doctor: %d\n%s", status, said)
	}
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rulesOfModes), "--http", "127.0.0.1:0", "--store", url)
	s.counts(1)
	for _, path := range []string{"/strict", "/log", "/lease", "/async"} {
		for range 100 {
			if status := s.check(path); status != http.StatusOK {
				t.Fatalf("%s: %d", path, status)
			}
		}
	}
	if n := s.metric(`stint_store_errors_total{interface="http"}`); n != "" && n != "0" {
		t.Errorf("%s errors of the store", n)
	}
	s.stop("")
	for _, name := range redis.denied(t) {
		if !slices.Contains([]string{"info", "config|get", "cluster|slots", "cluster|shards", "client|setinfo"}, name) {
			t.Errorf("kept from the user: %s", name)
		}
	}
	if said, status := checkStore(t, url+"/3"); status == 0 || !strings.Contains(said, "+select") {
		t.Errorf("a database without +select: %d\n%s", status, said)
	}
	redis.user(t, "stint", "+select")
	if said, status := checkStore(t, url+"/3"); status != 0 {
		t.Errorf("a database: %d\n%s", status, said)
	}
}

// TestUserLacks takes each command from the user: the check says which.
func TestUserLacks(t *testing.T) {
	need.Time(t)
	redis := startRedis(t, "")
	_, commands := documentedUser(t, "stint")
	if len(commands) < 10 {
		t.Fatalf("the user has %v", commands)
	}
	url := "redis://stint:secret@" + redis.address
	for _, command := range commands {
		redis.user(t, "stint", "-"+command)
		if said, status := checkStore(t, url); status != 1 || !strings.Contains(said, "let the user have +"+command+" ") {
			t.Errorf("without %s: %d\n%s", command, status, said)
		}
	}
	redis.user(t, "stint", "-set", "-setrange", "-hdel")
	if said, status := checkStore(t, url); status != 1 || !strings.Contains(said, "let the user have +set +setrange +hdel ") {
		t.Errorf("without three: %d\n%s", status, said)
	}
	redis.user(t, "stint", "resetkeys", "~other:*")
	if said, status := checkStore(t, url); status != 1 || !strings.Contains(said, "~stint:*") {
		t.Errorf("without keys: %d\n%s", status, said)
	}
	if n, err := redis.command("DBSIZE"); err != nil || n != ":0" {
		t.Errorf("left behind: %s %v", n, err)
	}
}

// TestUserCluster needs to ask who has which key.
func TestUserCluster(t *testing.T) {
	need.Time(t)
	redis := startCluster(t)
	more := []string{"+cluster|slots", "+cluster|shards", "+asking"}
	redis.user(t, "stint", more...)
	url := "redis://stint:secret@" + redis.address
	if said, status := checkStore(t, url); status != 0 {
		t.Errorf("doctor: %d\n%s", status, said)
	}
	for _, name := range more {
		redis.user(t, "stint", append(more, "+info", "-"+name[1:])...)
		if said, status := checkStore(t, url); status != 1 || !strings.Contains(said, "let the user have "+name+" ") {
			t.Errorf("without %s: %d\n%s", name, status, said)
		}
	}
}

// TestUserSentinel needs no more of the master.
func TestUserSentinel(t *testing.T) {
	redis := startRedis(t, "")
	sentinel := startSentinel(t, redis, 1)
	url := "redis://stint:secret@" + sentinel.address + "?master_set=main"
	redis.user(t, "stint")
	if said, status := checkStore(t, url); status != 0 {
		t.Errorf("doctor: %d\n%s", status, said)
	}
}

// TestStoreTLS checks a server with TLS, and keeps limits there, as an ACL user
// and with a certificate that SSL_CERT_FILE or the URL names.
func TestStoreTLS(t *testing.T) {
	cert, key := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	writeCertificate(t, cert, key, 1)
	address := freeport.Addr(t)
	_, port, _ := strings.Cut(address, ":")
	redis := startRedis(t, "", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	redis.user(t, "stint", "+info", "+config|get")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := "rediss://stint:secret@" + address
	ours := store + "?cacert=" + url.QueryEscape(cert)
	for _, try := range []struct{ what, env, url, want string }{
		{"the system's", "SSL_CERT_FILE=/nothing", store, "x509"},
		{"the environment's", "SSL_CERT_FILE=" + cert, store, "a decision takes"},
		{"the URL's", "SSL_CERT_FILE=/nothing", ours, "a decision takes"},
		{"no file", "SSL_CERT_FILE=/nothing", store + "?cacert=/nothing.pem", "/nothing.pem: no such"},
	} {
		process := exec.Command(self, "doctor", "--limit", "1/h", "--http", "127.0.0.1:0", "--store", try.url, "--store-timeout", "5s")
		process.Env = append(os.Environ(), "STINT_TEST_MAIN=1", "SSL_CERT_DIR=/nothing", try.env)
		out, _ := process.CombinedOutput()
		if !strings.Contains(string(out), try.want) || strings.Contains(string(out), "secret") {
			t.Errorf("%s: want %q and no secret\n%s", try.what, try.want, out)
		}
	}
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules), "--http", "127.0.0.1:0", "--store", ours)
	s.counts(1)
	if got := s.checks("/closed", 4); got != "[200 200 200 429]" {
		t.Errorf("four times: %s", got)
	}
	s.stop("")
	if strings.Contains(s.log(), "secret") {
		t.Errorf("the log shows the password:\n%s", s.log())
	}
}

// anHourAhead returns the port of a link to a server, whose clock seems to be an hour ahead.
func anHourAhead(t *testing.T, server string) string {
	t.Helper()
	seconds := regexp.MustCompile(`\*2\r\n\$10\r\n(\d{10})\r\n`)
	address := between(t, server, copied, func(to io.Writer, from io.Reader) {
		for b := make([]byte, 64<<10); ; {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			answer := seconds.ReplaceAllStringFunc(string(b[:n]), func(time string) string {
				is, _ := strconv.Atoi(seconds.FindStringSubmatch(time)[1])
				return strings.Replace(time, strconv.Itoa(is), strconv.Itoa(is+3600), 1)
			})
			if _, err := io.WriteString(to, answer); err != nil {
				return
			}
		}
	})
	_, port, _ := net.SplitHostPort(address)
	return port
}

// TestCheckStoreReplicas checks a master with two replicas, the clock of one of which is
// an hour ahead: after a failover that is the limits' clock.
func TestCheckStoreReplicas(t *testing.T) {
	master := startRedis(t, "", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.address)
	good, ahead := startRedis(t, "", "--replicaof", host+" "+port), startRedis(t, "")
	for _, command := range []string{"CONFIG SET replica-announce-ip 127.0.0.1", "CONFIG SET replica-announce-port " + anHourAhead(t, ahead.address), "REPLICAOF " + host + " " + port} {
		if answer, err := ahead.command(command); err != nil || answer != "+OK" {
			t.Fatal(command, answer, err)
		}
	}
	for n := ""; n != ":2"; time.Sleep(20 * time.Millisecond) { // or the test's deadline
		n, _ = master.command(`EVAL "return tonumber(string.match(redis.call('INFO','replication'), 'connected_slaves:(%d+)'))" 0`)
	}
	text, status := checkStore(t, "redis://"+master.address)
	if status != 0 || strings.Count(text, "the clock of the replica") != 1 || strings.Contains(text, "replica "+good.address) || !strings.Contains(text, "from the master's: after a failover") {
		t.Errorf("%d\n%s", status, text)
	}
}

// TestServeEviction starts on servers with policies: one warning for those that
// forget keys in use, and none for others, or where it may not be asked.
func TestServeEviction(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules)
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
	file := disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules)
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
