package goredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"
	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// byDriver is a go-redis client of whatever is at a place, with its retries on.
func byDriver(t testing.TB, at faulttest.Place) redisstore.Options {
	var client redis.UniversalClient
	switch {
	case at.Cluster:
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: at.Addrs})
	case at.Sentinel:
		client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "stint", SentinelAddrs: at.Addrs})
	default:
		client = redis.NewClient(&redis.Options{Addr: at.Addrs[0], Password: at.Password})
	}
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.Options{Driver: goredis.New(client)}
}

// TestReplies goes through what servers answer instead of deciding.
func TestReplies(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	faulttest.Replies(t, byDriver)
}

func TestCrossSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr}})
	t.Cleanup(func() { _ = client.Close() })
	faulttest.CrossSlot(t, goredis.New(client))
}
