package redisstore_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// byURL is a store's own client.
func byURL(_ testing.TB, at faulttest.Place) redisstore.Options {
	return redisstore.Options{URL: at.URL()}
}

// TestReplies goes through what servers answer instead of deciding.
func TestReplies(t *testing.T) {
	if testing.Short() && redistest.Program() == "redis-server" { // TestValkey runs it in short
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	faulttest.Replies(t, byURL)
}

// TestCrossSlot is for a program whose client does not know that it is a cluster.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	faulttest.CrossSlot(t, redisstore.DriverOf(client))
}
