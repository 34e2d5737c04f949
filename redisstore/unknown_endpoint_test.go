package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestUnknownEndpoint has the nodes of a cluster announce nothing where a host name is
// wanted: they are found at the host of the URL, and each serves its keys. Of nodes that
// announce no address at all, the error says what to set.
func TestUnknownEndpoint(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	prefer := func(what string) {
		for _, s := range c.Nodes {
			s.CLI(t, "config", "set", "cluster-preferred-endpoint-type", what)
		}
	}
	prefer("hostname")
	b := bind(t, open(t, "redis://"+c.Nodes[0].Addr, redisstore.Options{}), "1/1h")
	for i := range 60 {
		if d := take(t, b, fmt.Sprint("key ", i), 1); !d.Allowed {
			t.Errorf("key %d: %+v", i, d)
		}
	}
	prefer("unknown-endpoint")
	o, err := redisstore.ParseURL("redis://" + c.Nodes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Connect(ctx, o); err == nil || !strings.Contains(err.Error(), "cluster-preferred-endpoint-type") {
		t.Errorf("nodes without an address: %v", err)
	}
}
