package goredis_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"
)

// user makes the user of docs/REDIS-REFERENCE.md on a server, with more words.
func user(t *testing.T, s *redistest.Server, more ...string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/REDIS-REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER stint .*$`).FindString(string(text))
	if said := s.CLI(t, append(strings.Fields(line), more...)...); said != "OK\n" {
		t.Fatalf("%q: %s", line, said)
	}
}

// decide takes a few units of a few keys.
func decide(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	defer client.Close()
	store, err := redisstore.New(redisstore.Options{Driver: goredis.New(client), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "test", stint.PerSecond(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if d, err := limiter.Take(t.Context(), key, 1); err != nil || !d.Allowed {
			t.Errorf("%s: %+v %v", key, d, err)
		}
	}
}

// kept returns the commands that a server has kept from users.
func kept(t *testing.T, s *redistest.Server) (names []string) {
	t.Helper()
	lines := strings.Split(s.CLI(t, "acl", "log", "100"), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line == "object" && lines[i+1] != "client|setinfo" { // which Redis 7.0 does not know
			names = append(names, lines[i+1])
		}
	}
	return names
}

// TestUser gives the user of docs/REDIS-REFERENCE.md to go-redis: no command is kept from
// it.
func TestUser(t *testing.T) {
	s := redistest.Start(t)
	user(t, s, "+select")
	decide(t, redis.NewClient(&redis.Options{Addr: s.Addr, Username: "stint", Password: "password", DB: 2}))
	if names := kept(t, s); len(names) > 0 {
		t.Errorf("kept from go-redis: %v", names)
	}
	c := redistest.StartCluster(t, 3, 0)
	var addrs []string
	for _, s := range c.Nodes {
		user(t, s, "+cluster|slots", "+cluster|shards", "+asking", "+command")
		addrs = append(addrs, s.Addr)
	}
	decide(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "stint", Password: "password"}))
	for _, s := range c.Nodes {
		if names := kept(t, s); len(names) > 0 {
			t.Errorf("kept from go-redis in a cluster: %v", names)
		}
	}
}
