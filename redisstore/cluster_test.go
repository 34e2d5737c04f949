package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestCluster runs on three masters with a replica each: layers of several
// slots, then slots that move and a master that is killed, under load. What requests with
// such layers are told, TestDifferentialRedisCluster of test/proof holds to the model.
func TestCluster(t *testing.T) {
	need.Time(t)
	t.Parallel() // it waits more than it works
	c := redistest.StartCluster(t, 3, 1)
	t.Run("CountsDenied", func(t *testing.T) { testDeniedElsewhere(t, c) })
	t.Run("ResetInPart", func(t *testing.T) { testResetInPart(t, c) })
	t.Run("Reshard", func(t *testing.T) { testReshard(t, c) })
	t.Run("Failover", func(t *testing.T) { testClusterFailover(t, c) })
}

// spread are keys in slots all over a cluster.
func spread() (keys []string) {
	for i := range 48 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	return keys
}

// testDeniedElsewhere has a limit count what one in another slot denies, and says
// how long that takes to pass.
func testDeniedElsewhere(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL(), redisstore.Options{})
	first := stint.Layer{Bound: bind(t, store, "1/1h"), Key: "key 1"}
	counts := stint.Layer{Bound: bind(t, store, "2/2h sliding_log count_denied"), Key: "key 2"}
	for i := range 2 {
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{first, counts}, 1)
		if err != nil || d.Allowed != (i == 0) {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
		if wait, _ := d.RetryAfter.Duration(); i == 1 && wait <= time.Hour {
			t.Errorf("denied for %v, while the log that counted it is full for two hours", wait)
		}
	}
}

// testResetInPart settles a reservation in several slots of which one key was
// reset: nothing is given back in any.
func testResetInPart(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL(), redisstore.Options{})
	limit := bind(t, store, "10/1000h")
	layers := []stint.Layer{{Bound: limit, Key: "key 3"}, {Bound: limit, Key: "key 4"}}
	for _, reset := range layers {
		_, id, err := store.Reserve(ctx, layers, 3, time.Hour)
		if err != nil || id == "" {
			t.Fatal(id, err)
		}
		if err := store.Reset(ctx, []stint.Layer{reset}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Settle(ctx, id, 0); !errors.Is(err, stint.ErrReservation) {
			t.Errorf("%q was reset: settled with %v", reset.Key, err)
		}
	}
	for i, want := range []int64{7, 10} {
		if d, err := limit.Decide(ctx, meter.OpPeek, layers[i].Key, 1); err != nil || d.Remaining != want {
			t.Errorf("%q: %d remain, want %d: %v", layers[i].Key, d.Remaining, want, err)
		}
	}
}

// testReshard moves slots from one master to another while calls are on their
// way: nothing is lost, and nothing counts twice.
func testReshard(t *testing.T, c *redistest.Cluster) {
	r := newTrial(t, redisstore.Options{URL: c.URL(), Timeout: 250 * time.Millisecond}, spread()...)
	masters := c.Masters()
	if len(masters) != 3 {
		t.Fatalf("%d masters", len(masters))
	}
	stop := r.load()
	before := r.calls.Load()
	c.Reshard(t, masters[0], masters[1], 1500)
	c.Reshard(t, masters[1], masters[2], 1500)
	stop()
	if n := r.calls.Load() - before; n < 500 {
		t.Errorf("only %d calls while slots moved", n)
	}
	r.recovered()
	r.judge(false)
}

// testClusterFailover kills a master. What was not yet at its replica is
// forgotten; all else is as with any failure, and the other masters go on.
func testClusterFailover(t *testing.T, c *redistest.Cluster) {
	r := newTrial(t, redisstore.Options{URL: c.URL()}, spread()...)
	dead := c.Masters()[0]
	stop := r.load()
	c.NodeTimeout(t, time.Second)
	dead.Kill()
	killed, answered := time.Now(), r.witness.answered.Load()
	for len(c.Masters()) < 3 {
		if time.Since(killed) > patience {
			t.Fatal("the cluster elects nobody")
		}
		time.Sleep(10 * time.Millisecond)
	}
	elected := time.Since(killed)
	if n := r.witness.answered.Load() - answered; n < 20 { // of thousands, where the machine is idle
		t.Errorf("the other masters answered %d times: one that fails stops them all", n)
	}
	stop()
	t.Logf("a replica was master after %v", elected)
	r.recovered()
	r.judge(true)
}

// TestSentinel kills the master of a Sentinel set under load, and then starts it
// again as what it is by then, a replica.
func TestSentinel(t *testing.T) {
	need.Time(t)
	t.Parallel()
	s := redistest.StartSentinels(t)
	r := newTrial(t, redisstore.Options{URL: s.URL()})
	r.crowded = true
	stop := r.load()
	s.DownAfter(t, time.Second/2)
	s.Data[0].Kill()
	for killed := time.Now(); s.Data[1].Role() != "master"; time.Sleep(10 * time.Millisecond) {
		if time.Since(killed) > patience {
			t.Fatal("the Sentinels elect nobody")
		}
	}
	stop()
	s.DownAfter(t, redistest.Patient)
	r.recovered()
	r.judge(true)
	s.Data[0].Restart(t)
	r.during(500*time.Millisecond, 100)
	r.recovered()
	r.judge(true)
}
