package redisstore_test

import (
	"net"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// cli returns a function that sends a command to a server.
func cli(args ...string) func(*scene) { return func(s *scene) { s.CLI(s, args...) } }

// as sends a command to a server under a password, and then hangs up on all its
// clients, which have to log in again.
func as(password string, args ...string) func(*scene) {
	return func(s *scene) {
		login := []string{"--no-auth-warning", "-a", password}
		s.CLI(s, append(login, args...)...)
		if args[len(args)-1] != "" {
			login[2] = args[len(args)-1]
		}
		s.CLI(s, append(login, "client", "kill", "type", "normal")...)
	}
}

var replies = []reply{
	{name: "OOM", says: []string{"OOM"}, class: redisstore.ErrNotExecuted, begin: cli("config", "set", "maxmemory", "1"), end: cli("config", "set", "maxmemory", "0")},
	{name: "NOREPLICAS", says: []string{"NOREPLICAS"}, class: redisstore.ErrNotExecuted, begin: cli("config", "set", "min-replicas-to-write", "1"), end: cli("config", "set", "min-replicas-to-write", "0")},
	{name: "READONLY", says: []string{"READONLY"}, class: redisstore.ErrNotExecuted, breaks: true, begin: cli("replicaof", "127.0.0.1", "1"), end: cli("replicaof", "no", "one")},
	{
		name: "MASTERDOWN", says: []string{"MASTERDOWN"}, class: redisstore.ErrNotExecuted, breaks: true,
		args: []string{"--replica-serve-stale-data", "no"}, begin: cli("replicaof", "127.0.0.1", "1"), end: cli("replicaof", "no", "one"),
	},
	{name: "WRONGTYPE", says: []string{"WRONGTYPE"}, class: redisstore.ErrConfiguration, begin: replace, end: putBack},
	{
		name: "NOAUTH", says: []string{"NOAUTH"}, class: redisstore.ErrConfiguration, breaks: true, cuts: true,
		begin: as("none", "config", "set", "requirepass", "new"), end: as("new", "config", "set", "requirepass", ""),
	},
	{
		name: "WRONGPASS", says: []string{"WRONGPASS"}, class: redisstore.ErrConfiguration, breaks: true, cuts: true, args: []string{"--requirepass", "old"}, password: "old",
		begin: as("old", "config", "set", "requirepass", "new"), end: as("new", "config", "set", "requirepass", "old"),
	},
	{
		name: "NOPERM", says: []string{"NOPERM"}, class: redisstore.ErrConfiguration, breaks: true,
		begin: cli("acl", "setuser", "default", "-evalsha", "-eval"), end: cli("acl", "setuser", "default", "+evalsha", "+eval"),
	},
	{
		name: "NOPERM for keys", says: []string{"NOPERM"}, class: redisstore.ErrConfiguration,
		begin: cli("acl", "setuser", "default", "resetkeys", "~other:*"), end: cli("acl", "setuser", "default", "allkeys"),
	},
	{
		name: "NOPERM in the script", says: []string{"ACL LOG"}, class: redisstore.ErrConfiguration,
		begin: cli("acl", "setuser", "default", "-set"), end: cli("acl", "setuser", "default", "+set"),
	},
	{
		name: "NOSCRIPT and no EVAL", says: []string{"NOPERM"}, class: redisstore.ErrConfiguration, breaks: true,
		begin: func(s *scene) { s.CLI(s, "acl", "setuser", "default", "-eval"); s.CLI(s, "script", "flush") },
		end:   cli("acl", "setuser", "default", "+eval"),
	},
}

// replace puts another program's list where the state was.
func replace(s *scene) {
	s.CLI(s, "rename", s.state("wide"), "aside")
	s.CLI(s, "lpush", s.state("wide"), "x")
}

func putBack(s *scene) {
	s.CLI(s, "del", s.state("wide"))
	s.CLI(s, "rename", "aside", s.state("wide"))
}

var clusterReplies = []reply{
	{name: "CLUSTERDOWN", says: []string{"The cluster is down"}, class: redisstore.ErrNotExecuted, breaks: true, begin: dropSlot(1), end: serveSlot},
	{name: "a slot without a node", says: []string{"Hash slot not served", "no node"}, class: redisstore.ErrNotExecuted, begin: dropSlot(0), end: serveSlot},
	{name: "TRYAGAIN", says: []string{"TRYAGAIN"}, class: redisstore.ErrNotExecuted, limits: []string{"second"}, begin: halfMove, end: moveRest},
}

// owner returns the node that has the state's slot, and one that has not.
func (s *scene) owner() (has, other *redistest.Server) {
	for _, node := range s.cluster.Nodes {
		if strings.TrimSpace(node.CLI(s, "exists", s.state("wide"))) == "1" {
			has = node
		} else {
			other = node
		}
	}
	if has == nil {
		s.Fatal("no node has the state")
	}
	return has, other
}

func (s *scene) slot() string {
	return strings.TrimSpace(s.cluster.Nodes[0].CLI(s, "cluster", "keyslot", s.state("wide")))
}

// dropSlot has nobody serve the state's slot, or one behind it.
func dropSlot(behind int) func(*scene) {
	return func(s *scene) {
		has, _ := s.owner()
		at, err := strconv.Atoi(s.slot())
		if err != nil {
			s.Fatal(err)
		}
		slot := strconv.Itoa(at + behind)
		has.CLI(s, "cluster", "delslots", slot)
		s.held = func() { has.CLI(s, "cluster", "addslots", slot) }
	}
}

func serveSlot(s *scene) { s.held() }

// halfMove begins to move a slot, and with it one of the two keys of a request.
func halfMove(s *scene) {
	has, other := s.owner()
	slot := s.slot()
	id := func(n *redistest.Server) string { return strings.TrimSpace(n.CLI(s, "cluster", "myid")) }
	host, port, _ := net.SplitHostPort(other.Addr)
	move := func(key string) { has.CLI(s, "migrate", host, port, key, "0", "10000") }
	other.CLI(s, "cluster", "setslot", slot, "importing", id(has))
	has.CLI(s, "cluster", "setslot", slot, "migrating", id(other))
	move(s.state("second"))
	s.held = func() {
		move(s.state("wide"))
		other.CLI(s, "cluster", "setslot", slot, "node", id(other))
		has.CLI(s, "cluster", "setslot", slot, "node", id(other))
	}
}

func moveRest(s *scene) { s.held() }
