package goredis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"
	"github.com/stint-dev/stint/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(settling{m}) }

// settling gives go-redis time to end what tries once a second to connect to a server
// that is gone, also when the client has been closed.
type settling struct{ *testing.M }

func (s settling) Run() int {
	status := s.M.Run()
	for end := time.Now().Add(time.Minute); status == 0 && goleak.Find() != nil && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	return status
}

// part is which part of the laws the driver is held to: that of redisstore is held
// to all of them.
func part() int {
	switch {
	case os.Getenv("STINT_SOAK") != "":
		return 1
	case testing.Short():
		return 32
	}
	return 15
}

func TestStore(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	var prefixes atomic.Int64
	storetest.Suite{
		Quantum:  time.Microsecond,
		Parallel: true,
		Part:     part(),
		Open: func(t testing.TB, now func() int64) stint.Store {
			store, err := redisstore.New(redisstore.Options{
				Driver: goredis.New(client), Prefix: fmt.Sprint("test", prefixes.Add(1)), Now: now, Timeout: 30 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	}.Run(t)
}

// TestOnce counts how often a call arrives at a server that reads and then
// hangs up: once, with the retries of go-redis on.
func TestOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	store, err := redisstore.New(redisstore.Options{Driver: goredis.New(client), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := stint.NewLimiter(store, "test", stint.PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	d, err := limiter.Take(context.Background(), "a", 1)
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
			store, err := redisstore.New(redisstore.Options{Driver: goredis.New(client), Timeout: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			limit, err := store.Bind("test", stint.PerHour(10))
			if err != nil {
				t.Fatal(err)
			}
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

// TestRing refuses what has the keys of one call in several servers.
func TestRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	store, err := redisstore.New(redisstore.Options{Driver: goredis.New(ring)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limit, err := store.Bind("test", stint.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := limit.Decide(t.Context(), meter.OpTake, "a", 1); !errors.Is(err, redisstore.ErrConfiguration) {
		t.Errorf("%v, want ErrConfiguration", err)
	}
}
