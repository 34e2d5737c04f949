package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

const masters = 3

// A redisCluster is three masters of this program without replicas, with a client.
type redisCluster struct {
	masters []*redisServer
	buses   []func() // release their ports
	client  *redis.ClusterClient
}

// startCluster starts a cluster on free loopback ports.
func startCluster() (c *redisCluster, err error) {
	c = &redisCluster{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	var addresses, buses []string
	for range masters {
		bus, release, err := freeport.Keep()
		if err != nil {
			return c, err
		}
		c.buses = append(c.buses, release)
		_, busPort, _ := net.SplitHostPort(bus)
		s, err := startServer("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", busPort)
		if err != nil {
			return c, err
		}
		c.masters = append(c.masters, s)
		addresses, buses = append(addresses, s.address), append(buses, busPort)
	}
	if err := c.join(buses); err != nil {
		return c, err
	}
	c.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, PoolSize: callers, ContextTimeoutEnabled: true})
	return c, nil
}

// join makes a cluster of the masters, each of which serves a third of the slots.
func (c *redisCluster) join(buses []string) error {
	ctx := context.Background()
	for i, s := range c.masters {
		first, last := i*slots/masters, (i+1)*slots/masters-1
		if err := s.client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		if err := s.client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(s.address)
		if err := c.masters[0].client.Do(ctx, "cluster", "meet", host, port, buses[i]).Err(); err != nil {
			return err
		}
	}
	return await("the masters do not make a cluster", func() bool {
		return !slices.ContainsFunc(c.masters, func(s *redisServer) bool {
			text, err := s.client.ClusterInfo(ctx).Result()
			return err != nil || !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprint("cluster_known_nodes:", masters))
		})
	})
}

func (c *redisCluster) stop() {
	if c.client != nil {
		_ = c.client.Close()
	}
	for _, s := range c.masters {
		s.stop()
	}
	for _, release := range c.buses {
		release()
	}
}

// cpu returns the processor time that the masters have used.
func (c *redisCluster) cpu() (sum time.Duration, err error) {
	for _, s := range c.masters {
		one, err := s.cpu()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

const slots = 16384

// masterOf returns, for each of keys, which master has its states: the one of the
// first slot of the stretch in which the key's own slot is.
func (c *redisCluster) masterOf(keys []string) ([]int, error) {
	pipe := c.masters[0].client.Pipeline()
	asked := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		asked[i] = pipe.ClusterKeySlot(context.Background(), key)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		return nil, err
	}
	const wide = slots / 256 // tags
	out := make([]int, len(keys))
	for i, one := range asked {
		slot := int(one.Val()) / wide * wide
		for out[i] = masters - 1; slot < out[i]*slots/masters; out[i]-- {
		}
	}
	return out, nil
}

// await waits until something holds.
func await(problem string, holds func() bool) error {
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(problem)
		}
	}
	return nil
}
