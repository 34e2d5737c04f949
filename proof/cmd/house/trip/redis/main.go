// Command redis makes one strict decision in a Redis of its own, and writes
// which code it ran through into the directory that it is given.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(covers string) error {
	socket := filepath.Join(covers, "redis.sock")
	defer os.Remove(socket)
	server := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", covers)
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill() // it keeps nothing
		_ = server.Wait()
	}()
	for range 200 {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	store, err := redisstore.New(redisstore.Options{URL: "unix://" + socket, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "house", stint.PerSecond(10))
	if err != nil {
		return err
	}
	ctx := context.Background()
	for range 2 { // one loads the script, the next has the record of limits read again for it
		if _, err := limiter.Take(ctx, "client", 1); err != nil {
			return err
		}
	}
	time.Sleep(100 * time.Millisecond) // what runs beside the calls has begun, and waits
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	d, err := limiter.Take(ctx, "client", 1)
	if err != nil || !d.Allowed {
		return fmt.Errorf("%+v, %w", d, err)
	}
	if err := coverage.WriteMetaDir(covers); err != nil {
		return err
	}
	return coverage.WriteCountersDir(covers)
}
