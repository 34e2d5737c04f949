package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestRoomReturns floods a server until newcomers share overflow keys, then makes
// room again: newcomers have keys of their own again, though meanwhile no key has
// come into being.
func TestRoomReturns(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Timeout: patience})
	defer store.Close()
	b := bind(t, store, "2/24h")
	for n := 0; store.Stats().Overflowed == 0; n += 10_000 {
		if n > 500_000 {
			t.Fatal("half a million keys, and none shares one")
		}
		for i := range 10_000 {
			take(t, b, fmt.Sprint("flood ", n+i), 1)
		}
	}
	do(t, c, "FLUSHALL")
	for i, end := 0, time.Now().Add(30*time.Second); ; i++ {
		before := store.Stats().Overflowed
		take(t, b, fmt.Sprint("newcomer ", i), 1)
		if store.Stats().Overflowed == before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %d newcomers on an empty server they still share overflow keys", i)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
