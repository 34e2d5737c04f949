package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestClients refuses clients of which it cannot be known what servers they have, and says
// which there may be.
func TestClients(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer one.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	auto, err := one.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]redis.UniversalClient{
		"a Ring": ring, "a pipeliner": auto, "what hides a client": struct{ redis.UniversalClient }{one},
	} {
		store, err := redisstore.New(redisstore.Options{Client: c})
		if !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "*redis.ClusterClient") || store != nil {
			t.Errorf("%s: %v", name, err)
		}
		store = openPlain(t, redisstore.Options{Driver: redisstore.NewDriver(c)})
		if _, err := bind(t, store, "5/1h").Decide(ctx, meter.OpTake, "a", 1); !errors.Is(err, redisstore.ErrConfiguration) || errors.Is(err, redisstore.ErrNotExecuted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
