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

// What servers may suffer, and what is promised meanwhile, is in package faulttest.
func TestReplies(t *testing.T)       { faulttest.Slow(t, byDriver, faulttest.Replies) }
func TestUnserved(t *testing.T)      { faulttest.Slow(t, byDriver, faulttest.Unserved) }
func TestFullNode(t *testing.T)      { faulttest.Slow(t, byDriver, faulttest.FullNode) }
func TestKilledBetween(t *testing.T) { faulttest.Slow(t, byDriver, faulttest.KilledBetween) }
func TestModeFaults(t *testing.T)    { faulttest.Slow(t, byDriver, faulttest.Modes) }

func TestCrossSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr}})
	t.Cleanup(func() { _ = client.Close() })
	faulttest.CrossSlot(t, goredis.New(client))
}
