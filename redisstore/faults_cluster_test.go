package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestFailovers has servers change under load: slots that move from one master to another, a
// master of a cluster that is killed, and one of a Sentinel set. What was not yet at a replica is
// forgotten; all else is as with any failure, and the other masters go on. What requests with
// layers of several slots are told, TestDifferentialRedisCluster of test/proof holds to the model.
func TestFailovers(t *testing.T) {
	need.Time(t)
	t.Parallel() // it waits more than it works
	c := redistest.StartCluster(t, 3, 1)
	t.Run("slots move", func(t *testing.T) {
		r := newTrial(t, redisstore.Options{URL: c.URL(), Timeout: 250 * time.Millisecond}, spread()...)
		masters, before := c.Masters(), r.calls.Load()
		r.whileIt(func() {
			c.Reshard(t, masters[0], masters[1], 1500)
			c.Reshard(t, masters[1], masters[2], 1500)
		})
		if n := r.calls.Load() - before; n < 500 {
			t.Errorf("only %d calls while slots moved", n)
		}
		r.judge(false)
	})
	t.Run("a master is killed", func(t *testing.T) {
		r := newTrial(t, redisstore.Options{URL: c.URL()}, spread()...)
		r.whileIt(func() {
			c.NodeTimeout(t, time.Second)
			c.Masters()[0].Kill()
			answered := r.witness.answered.Load()
			eventually(t, "the cluster elects nobody", func() bool { return len(c.Masters()) == 3 })
			if n := r.witness.answered.Load() - answered; n < 20 { // of thousands, where the machine is idle
				t.Errorf("the other masters answered %d times: one that fails stops them all", n)
			}
		})
		r.judge(true)
	})
	t.Run("a master of Sentinels is killed", func(t *testing.T) {
		s := redistest.StartSentinels(t)
		r := newTrial(t, redisstore.Options{URL: s.URL()})
		r.crowded = true
		r.whileIt(func() {
			s.DownAfter(t, time.Second/2)
			s.Data[0].Kill()
			eventually(t, "the Sentinels elect nobody", func() bool { return s.Data[1].Role() == "master" })
		})
		s.DownAfter(t, redistest.Patient)
		r.judge(true)
		s.Data[0].Restart(t) // as what it is by then, a replica
		r.during(500*time.Millisecond, 100)
		r.recovered()
		r.judge(true)
	})
}

// whileIt loads while something happens, and waits until all is well.
func (r *trial) whileIt(happens func()) {
	stop := r.load()
	happens()
	stop()
	r.recovered()
}
