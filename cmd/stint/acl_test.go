package main_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// documentedUser returns the line of docs/REDIS-REFERENCE.md that makes a user, under
// another name, and the commands that it allows.
func documentedUser(t *testing.T, name string) (line string, commands []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/REDIS-REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	line = regexp.MustCompile(`(?m)^ACL SETUSER stint .*$`).FindString(string(text))
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
func checkStore(url string) (said string, status int) {
	var out, errs bytes.Buffer
	status = main.Run(context.Background(), []string{"doctor", "--limit", "1/h", "--http", "127.0.0.1:0", "--store", url, "--store-timeout", "5s"}, strings.NewReader(""), &out, &errs)
	return strings.Join(strings.Fields(out.String()+errs.String()), " "), status // without the ends of lines
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
	if said, status := checkStore(url); status != 0 || !strings.Contains(said, "a decision takes") {
		t.Errorf("doctor: %d\n%s", status, said)
	}
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", rulesOfModes), "--http", "127.0.0.1:0", "--store", url)
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
	if said, status := checkStore(url + "/3"); status == 0 || !strings.Contains(said, "+select") {
		t.Errorf("a database without +select: %d\n%s", status, said)
	}
	redis.user(t, "stint", "+select")
	if said, status := checkStore(url + "/3"); status != 0 {
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
		if said, status := checkStore(url); status != 1 || !strings.Contains(said, "let the user have +"+command+" ") {
			t.Errorf("without %s: %d\n%s", command, status, said)
		}
	}
	redis.user(t, "stint", "-set", "-setrange", "-hdel")
	if said, status := checkStore(url); status != 1 || !strings.Contains(said, "let the user have +set +setrange +hdel ") {
		t.Errorf("without three: %d\n%s", status, said)
	}
	redis.user(t, "stint", "resetkeys", "~other:*")
	if said, status := checkStore(url); status != 1 || !strings.Contains(said, "~stint:*") {
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
	if said, status := checkStore(url); status != 0 {
		t.Errorf("doctor: %d\n%s", status, said)
	}
	for _, name := range more {
		redis.user(t, "stint", append(more, "+info", "-"+name[1:])...)
		if said, status := checkStore(url); status != 1 || !strings.Contains(said, "let the user have "+name+" ") {
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
	if said, status := checkStore(url); status != 0 {
		t.Errorf("doctor: %d\n%s", status, said)
	}
}
