package moving

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/freeport"
)

// server starts a redis-server that writes nothing to disk.
func server(t *testing.T) *redis.Client {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	address := freeport.Addr(t)
	_, port, _ := net.SplitHostPort(address)
	process := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if client.Ping(t.Context()).Err() == nil {
			return client
		}
	}
	t.Fatal("redis-server does not answer")
	return nil
}

// Of requests at once as many pass before and after.
func TestSameInRedis(t *testing.T) {
	client := server(t)
	for name, take := range map[string]func(context.Context, *redis.Client, string) (bool, time.Duration, error){"before": redisrateBefore, "after": redisrateAfter} {
		passed, lost, start := 0, 0, time.Now()
		for range 150 {
			ok, retry, err := take(t.Context(), client, "alice")
			if err != nil { // on a busy machine an answer may come too late
				if lost++; time.Since(start) > time.Minute {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // and until it is asked again
				continue
			}
			if ok {
				passed++
			} else if retry <= 0 || retry > time.Minute {
				t.Errorf("%s: again in %v", name, retry)
			}
		}
		if most := 100 + int(time.Since(start)/(600*time.Millisecond)) + 1; passed < 100-lost || passed > most {
			t.Errorf("%s: %d passed and %d were lost, want 100 to %d", name, passed, lost, most)
		}
	}
}
