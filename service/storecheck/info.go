package storecheck

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Node is what one server says of itself. What it does not say, or may not be
// asked, is empty or −1.
type Node struct {
	Address string
	Server  string // Redis, Valkey, or what it calls itself
	Version string
	Role    string // master or replica
	Mode    string // standalone, cluster or sentinel

	UsedMemory int64
	MaxMemory  int64 // 0: unbounded
	Policy     string
	Evicted    int64

	Snapshots  string // the setting save; "" for none
	AppendOnly int64  // 1 or 0
	Replicas   int64
	MinWrite   int64

	known    bool     // whether INFO was answered
	replicas []string // addresses of those that are connected
}

// Describe says in sentences what the server is, how much it holds, and what it would
// lose.
func (n *Node) Describe() []string {
	switch {
	case n.Version == "":
		return []string{n.Address + ": nothing is known"}
	case n.Mode == "sentinel":
		return []string{fmt.Sprintf("%s: %s %s, sentinel", n.Address, n.Server, n.Version)}
	}
	most := "no maxmemory"
	if n.MaxMemory > 0 {
		most = "of " + mebibytes(n.MaxMemory)
	}
	saves := "snapshots"
	switch n.Snapshots {
	case "":
		saves = "no snapshots"
	case "?":
		saves = "snapshots unknown"
	}
	appends := "no append-only file"
	if n.AppendOnly == 1 {
		appends = "append-only file"
	}
	forgets := ""
	if n.Snapshots == "" && n.AppendOnly == 0 {
		forgets = ": a restart forgets"
	}
	needs := ""
	if n.MinWrite > 0 {
		needs = fmt.Sprintf(", a write needs %d", n.MinWrite)
	}
	return []string{
		fmt.Sprintf("%s: %s %s, %s, %s", n.Address, n.Server, n.Version, n.Mode, n.Role),
		fmt.Sprintf("%s: memory %s, %s, %s, %d evicted", n.Address, mebibytes(n.UsedMemory), most, n.Policy, n.Evicted),
		fmt.Sprintf("%s: %s, %s%s", n.Address, saves, appends, forgets),
		fmt.Sprintf("%s: %d replicas%s", n.Address, max(n.Replicas, 0), needs),
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// nodesOf returns a client for each server behind one, by address.
func nodesOf(ctx context.Context, client redis.UniversalClient) map[string]*redis.Client {
	all := make(map[string]*redis.Client)
	switch c := client.(type) {
	case *redis.Client:
		all[strings.Replace(c.Options().Addr, "FailoverClient", "the master", 1)] = c // behind Sentinels
	case *redis.ClusterClient:
		var mu sync.Mutex
		_ = c.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all[node.Options().Addr] = node
			return nil
		})
	}
	return all
}

// readInfo reads INFO and a few settings. Neither is needed to use the server.
func readInfo(ctx context.Context, address string, client redis.Cmdable) Node {
	n, err := inform(ctx, address, client)
	if err != nil {
		return n
	}
	if settings, err := client.ConfigGet(ctx, "save").Result(); err == nil {
		n.Snapshots = settings["save"]
	}
	if settings, err := client.ConfigGet(ctx, "min-replicas-to-write").Result(); err == nil {
		if v, err := strconv.ParseInt(settings["min-replicas-to-write"], 10, 64); err == nil {
			n.MinWrite = v
		}
	}
	return n
}

// inform reads INFO.
func inform(ctx context.Context, address string, client redis.Cmdable) (Node, error) {
	n := Node{Address: address, UsedMemory: -1, MaxMemory: -1, Evicted: -1, AppendOnly: -1, Replicas: -1, MinWrite: -1, Snapshots: "?"}
	text, err := client.Info(ctx).Result()
	if err != nil {
		return n, err
	}
	n.known = true
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	number := func(name string) int64 {
		if v, err := strconv.ParseInt(info[name], 10, 64); err == nil {
			return v
		}
		return -1
	}
	n.Server, n.Version = serverOf(info)
	n.Mode = info["redis_mode"]
	if mode := info["server_mode"]; mode != "" { // Valkey's name of it
		n.Mode = mode
	}
	n.Role = info["role"]
	if n.Role == "slave" {
		n.Role = "replica"
	}
	for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
		n.replicas = append(n.replicas, addressOf(info["slave"+strconv.Itoa(i)]))
	}
	n.UsedMemory, n.MaxMemory, n.Policy = number("used_memory"), number("maxmemory"), info["maxmemory_policy"]
	n.Evicted, n.AppendOnly, n.Replicas = number("evicted_keys"), number("aof_enabled"), number("connected_slaves")
	return n, nil
}

// addressOf reads "ip=192.0.2.1,port=6379,state=online".
func addressOf(replica string) string {
	about := make(map[string]string)
	for field := range strings.SplitSeq(replica, ",") {
		name, value, _ := strings.Cut(field, "=")
		about[name] = value
	}
	return net.JoinHostPort(about["ip"], about["port"])
}

// serverOf returns which server it is. Valkey says it is Redis 7.2.4 too, for
// the sake of old clients.
func serverOf(info map[string]string) (server, version string) {
	for _, one := range []struct{ field, name string }{
		{"valkey_version", "Valkey"}, {"dragonfly_version", "Dragonfly"}, {"kvrocks_version", "Kvrocks"}, {"keydb_version", "KeyDB"},
	} {
		if v := info[one.field]; v != "" {
			return one.name, v
		}
	}
	if name := info["server_name"]; name != "" && name != "redis" {
		return name, info["redis_version"]
	}
	if v := info["redis_version"]; v != "" {
		return "Redis", v
	}
	return "a server that does not say which", ""
}
