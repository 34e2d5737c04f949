package redisstore_test

import (
	"testing"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestUnknownEndpoint has the nodes of a cluster announce no address: they are found at
// that of the node that was asked, and told apart, each with a breaker of its own.
func TestUnknownEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	slots, ok := redisstore.NewDriver(client(t, c.Nodes[0].Addr)).(redisstore.Topology)
	if !ok {
		t.Fatal("the driver does not know who serves what")
	}
	names := func() map[string]bool {
		ranges, err := slots.Slots(ctx)
		if err != nil {
			return nil // of a connection that ended
		}
		all := make(map[string]bool)
		for _, r := range ranges {
			all[r.Node] = true
		}
		return all
	}
	if known := names(); len(known) != 3 || !known[c.Nodes[1].Addr] {
		t.Errorf("nodes that say where they are: %v", known)
	}
	for _, s := range c.Nodes {
		s.CLI(t, "config", "set", "cluster-preferred-endpoint-type", "unknown-endpoint")
	}
	var known map[string]bool
	eventually(t, "no node answers", func() bool { known = names(); return known != nil })
	if len(known) != 3 {
		t.Errorf("three nodes are taken for %v", known)
	}
}
