package goredis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"
)

// A cutter dials connections that lose the reply to a script's call, while it
// is armed: the server has run it, and the client reads the end of file.
type cutter struct {
	armed atomic.Bool
	cuts  atomic.Int64
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c}, nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
	cut    bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	c.cut = c.cut || c.cutter.armed.Load() && bytes.Contains(p, []byte("evalsha"))
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut && err == nil { // the server has answered
		c.cutter.cuts.Add(1)
		c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestCutReply loses the replies to decisions on real servers, with the retries
// of go-redis on: each is one call of the script, and charged once.
func TestCutReply(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("one server", func(t *testing.T) {
		server := redistest.Start(t)
		cut := &cutter{}
		client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: 3, Dialer: cut.dial, ReadTimeout: 30 * time.Second})
		defer client.Close()
		cutReplies(t, client, cut, server)
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3, 0)
		cut := &cutter{}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRetries: 3, MaxRedirects: 3, Dialer: cut.dial, ReadTimeout: 30 * time.Second})
		defer client.Close()
		cutReplies(t, client, cut, cluster.Nodes...)
	})
}

func cutReplies(t *testing.T, client redis.UniversalClient, cut *cutter, nodes ...*redistest.Server) {
	ctx := context.Background()
	store, err := redisstore.New(redisstore.Options{Driver: goredis.New(client), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "test", stint.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	const keys = 8
	for i := range keys { // the script is there, and connections to all nodes
		if d, err := limiter.Take(ctx, strconv.Itoa(i), 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	before := calls(t, nodes)
	for i := range keys {
		cut.armed.Store(true)
		if d, err := limiter.Take(ctx, strconv.Itoa(i), 1); !errors.Is(err, redisstore.ErrAmbiguous) {
			t.Errorf("without a reply: %+v, %v", d, err)
		}
		cut.armed.Store(false)
		// Between two losses there is an answer: the breaker, whose probes are calls, stays closed.
		if d, err := limiter.Peek(ctx, strconv.Itoa(i), 1); err != nil || d.Remaining != 10-2 {
			t.Errorf("%d are left of 10, want 8 after a take that was answered and one that was not: %v", d.Remaining, err)
		}
	}
	if n := calls(t, nodes) - before; n != 2*keys || cut.cuts.Load() != keys {
		t.Errorf("the servers ran %d calls for %d, and %d replies were cut of %d", n, 2*keys, cut.cuts.Load(), keys)
	}
}

// calls returns how many scripts the servers have run.
func calls(t *testing.T, nodes []*redistest.Server) (sum int64) {
	t.Helper()
	for _, node := range nodes {
		sum += node.Stat(t, "commandstats", "cmdstat_evalsha:calls=")
	}
	return sum
}
