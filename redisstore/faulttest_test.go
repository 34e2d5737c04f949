package redisstore_test

import (
	"testing"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// byURL is a store's own client.
func byURL(_ testing.TB, at faulttest.Place) redisstore.Options {
	return redisstore.Options{URL: at.URL()}
}

// What servers may suffer, and what is promised meanwhile, is in package faulttest.
func TestUnserved(t *testing.T)      { faulttest.Slow(t, byURL, faulttest.Unserved) }
func TestFullNode(t *testing.T)      { faulttest.Slow(t, byURL, faulttest.FullNode) }
func TestKilledBetween(t *testing.T) { faulttest.Slow(t, byURL, faulttest.KilledBetween) }
func TestModeFaults(t *testing.T)    { faulttest.Slow(t, byURL, faulttest.Modes) }

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
	faulttest.CrossSlot(t, redisstore.NewDriver(client(t, redistest.StartCluster(t, 3, 0).Nodes[0].Addr)))
}
