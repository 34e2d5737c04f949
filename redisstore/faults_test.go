package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// at returns options of each store at one URL.
func at(url string) func(store int) redisstore.Options {
	return func(int) redisstore.Options { return redisstore.Options{URL: url} }
}

// slowly runs what servers may suffer as a test that -short leaves out. Others run beside
// it: it waits more than it works.
func slowly(t *testing.T, suffer func(*testing.T)) {
	need.Time(t)
	t.Parallel()
	suffer(t)
}

// openPlain returns a store with a prefix of its own and the default timeout, which ends
// with the test.
func openPlain(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("fault", prefixes.Add(1))
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// What servers may suffer, and what is promised meanwhile.
func TestUnserved(t *testing.T)      { slowly(t, Unserved) }
func TestFullNode(t *testing.T)      { slowly(t, FullNode) }
func TestKilledBetween(t *testing.T) { slowly(t, KilledBetween) }
func TestModeFaults(t *testing.T)    { slowly(t, Modes) }

// TestReplies goes through what servers answer instead of deciding.
func TestReplies(t *testing.T) {
	if testing.Short() && redistest.Program() == "redis-server" { // TestValkey runs it in short
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	Replies(t)
}

// TestCrossSlot is for a program whose client does not know that it is a cluster.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	CrossSlot(t, redisstore.NewDriver(client(t, redistest.StartCluster(t, 3, 0).Nodes[0].Addr)))
}
