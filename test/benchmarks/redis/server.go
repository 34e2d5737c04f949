package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// A redisServer is a redis-server of this program, with a client.
type redisServer struct {
	address string
	release func() // the address
	dir     string
	process *exec.Cmd
	client  *redis.Client
}

// startServer starts a server that writes nothing to disk, on a free loopback
// port, with more arguments.
func startServer(args ...string) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("apt-get install redis-server: %w", err)
	}
	s := &redisServer{}
	if s.dir, err = os.MkdirTemp("", "stint-redis"); err != nil {
		return nil, err
	}
	if s.address, s.release, err = freeport.Keep(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.address)
	s.process = exec.Command(path, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no"}, args...)...)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.address, PoolSize: callers, ContextTimeoutEnabled: true}) // as redisstore wants it
	for range 6000 {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, err
}

func (s *redisServer) stop() {
	if s.client != nil {
		_ = s.client.Close()
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.release()
	_ = os.RemoveAll(s.dir)
}

// info returns a field of INFO.
func (s *redisServer) info(section, field string) (string, error) {
	text, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(text, field+":")
	if !ok {
		return "", fmt.Errorf("INFO %s has no %s", section, field)
	}
	value, _, _ := strings.Cut(rest, "\r")
	return value, nil
}

// cpu returns the processor time that the server has used.
func (s *redisServer) cpu() (time.Duration, error) {
	user, err := s.info("cpu", "used_cpu_user")
	sys, err2 := s.info("cpu", "used_cpu_sys")
	if err = errors.Join(err, err2); err != nil {
		return 0, err
	}
	u, err := strconv.ParseFloat(user, 64)
	v, err2 := strconv.ParseFloat(sys, 64)
	return time.Duration((u + v) * float64(time.Second)), errors.Join(err, err2)
}

// flush removes all keys.
func (s *redisServer) flush() error { return s.client.FlushAll(context.Background()).Err() }
