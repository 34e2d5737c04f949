package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// again is a caller's own hook, which tries once more what fails.
type again struct{ logs }

func (again) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err == nil {
			return nil
		}
		return next(ctx, cmd)
	}
}

// TestOnce counts how often a call arrives at a server that reads and then
// hangs up: once, with the retries of go-redis on, and with those of a hook.
func TestOnce(t *testing.T) {
	listener := freeport.Listen(t)
	var arrived atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			answer(c, &arrived)
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: 3, Protocol: 2, DisableIdentity: true})
	client.AddHook(again{})
	store, err := redisstore.New(redisstore.Options{Client: client, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	limiter := made.Limiter(t, store, "test", stint.PerSecond(1))
	d, err := limiter.Take(ctx, "a", 1)
	if !errors.Is(err, redisstore.ErrAmbiguous) || arrived.Load() != 1 {
		t.Errorf("%+v, %v, and the call arrived %d times", d, err, arrived.Load())
	}
	client.Close()
	listener.Close()
	<-done
}

// answer answers what begins a connection with an error, as old servers do, and
// hangs up on the call of a script.
func answer(c net.Conn, arrived *atomic.Int64) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("evalsha")) {
			arrived.Add(1)
			return
		}
		if _, err := c.Write([]byte("-ERR unknown command\r\n")); err != nil {
			return
		}
	}
}

// TestStalled asks a server that does not answer through clients that would wait
// for a minute: calls end with their deadline.
func TestStalled(t *testing.T) {
	for _, obeys := range []bool{false, true} {
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", obeys), func(t *testing.T) {
			server := redistest.Start(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute, ContextTimeoutEnabled: obeys})
			defer client.Close()
			store, err := redisstore.New(redisstore.Options{Client: client, Timeout: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			limit := made.Bound(t, store, "test", stint.PerHour(10))
			for { // connects
				if _, err = limit.Decide(t.Context(), meter.OpPeek, "a", 1); err == nil {
					break
				}
			}
			server.Signal(t, syscall.SIGSTOP)
			begun := time.Now()
			_, err = limit.Decide(t.Context(), meter.OpTake, "a", 1)
			took := time.Since(begun)
			server.Signal(t, syscall.SIGCONT)
			if !errors.Is(err, redisstore.ErrAmbiguous) || took > 30*time.Second {
				t.Errorf("%v after %v, want ErrAmbiguous long before the client's minute", err, took)
			}
		})
	}
}

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
	need.Time(t)
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
	store, err := redisstore.New(redisstore.Options{Client: client, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter := made.Limiter(t, store, "test", stint.PerHour(10))
	const keys = 8
	for i := range keys { // the script is there, and connections to all nodes
		if d, err := limiter.Take(ctx, strconv.Itoa(i), 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	before := scriptsRun(t, nodes)
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
	if n := scriptsRun(t, nodes) - before; n != 2*keys || cut.cuts.Load() != keys {
		t.Errorf("the servers ran %d calls for %d, and %d replies were cut of %d", n, 2*keys, cut.cuts.Load(), keys)
	}
}

// scriptsRun returns how many scripts the servers have run.
func scriptsRun(t *testing.T, nodes []*redistest.Server) (sum int64) {
	t.Helper()
	for _, node := range nodes {
		sum += node.Stat(t, "commandstats", "cmdstat_evalsha:calls=")
	}
	return sum
}
