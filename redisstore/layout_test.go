package redisstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestVersion has states that are written in a way that this version does not
// know be errors, and stay as they are.
func TestVersion(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{Prefix: "stint"})
	c := client(t, server.Addr)
	for i, text := range texts {
		b := bind(t, s, text)
		for _, state := range []string{"#1", "5171795229355387954", "=z1:2:3:4", "&9:", "=", "x"} {
			key := fmt.Sprint("key", i, state)
			name := redisstore.StateOf(redisstore.Options{Prefix: "stint"}, key, b)
			do(t, c, "SET", name, state)
			if _, err := b.Decide(ctx, meter.OpTake, key, 1); !errors.Is(err, redisstore.ErrConfiguration) {
				t.Errorf("%s on %q: %v", text, state, err)
			}
			if now := get(t, server, name); now != state {
				t.Errorf("%s made %q of %q", text, now, state)
			}
		}
	}
}

// TestTags spreads keys over as many tags as there are, evenly over slots, with
// the key's own slot close behind.
func TestTags(t *testing.T) {
	for _, tags := range []int{1, 64, 256, 4096} {
		perTag, begins := map[uint16]int{}, redisstore.Begins(tags)
		for i := range 100_000 {
			key := fmt.Sprint("client", i)
			slot := redisstore.Slot(begins(key))
			if perTag[slot]++; int(redisstore.Slot(key)-slot) >= 16384/tags {
				t.Fatalf("%d tags: %s of slot %d lies in %d", tags, key, redisstore.Slot(key), slot)
			}
		}
		if len(perTag) != tags {
			t.Errorf("%d slots of %d tags", len(perTag), tags)
		}
	}
}

func client(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := redisstore.Connect(ctx, &redis.UniversalOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true, ReadTimeout: patience, PoolSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t *testing.T, server *redistest.Server, key string) string {
	t.Helper()
	c := client(t, server.Addr)
	v, err := c.Get(ctx, key).Result()
	if err != nil {
		t.Fatal(key, err)
	}
	return v
}
