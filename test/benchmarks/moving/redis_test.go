package moving

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// server starts a server, and returns a client of it.
func server(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
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
