// Package chaos does to three stint serve processes, and to the cluster of three
// masters with replicas that they share, what happens to such things: a fault
// every few seconds. The oracle judges what they let through, and a report says
// for each fault what passed beside what is promised. Run it as make chaos.
package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// TestChaos does each fault once, for a moment. $STINT_CHAOS says how long to go
// on, with faults in any order; $STINT_CHAOS_SEED draws the same order again.
func TestChaos(t *testing.T) {
	need.Time(t)
	lasts, seed := time.Duration(0), uint64(1)
	if text := os.Getenv("STINT_CHAOS"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("STINT_CHAOS: %v", err)
		}
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("STINT_CHAOS_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("STINT_CHAOS_SEED: %v", err)
		}
	}
	s := open(t, seed)
	stop := s.load()
	var done []suffered
	// Before a calm all is over that a fault may leave behind: a clock that stepped
	// back has clients wait for up to two drains, and those who owe pay.
	done = append(done, s.suffer(calm))
	for begun := time.Now(); lasts > 0 && time.Since(begun) < lasts; {
		if len(done)%10 == 0 {
			time.Sleep(5 * time.Second)
			done = append(done, s.suffer(calm))
		}
		done = append(done, s.suffer(faults[s.rnd.IntN(len(faults))]))
	}
	for _, f := range faults {
		if lasts == 0 {
			done = append(done, s.suffer(f))
		}
	}
	time.Sleep(5 * time.Second)
	done = append(done, s.suffer(calm))
	stop()
	s.judge(done, seed)
}

var calm = fault{name: "none", lasts: 2 * time.Second}

// TestDeploys does a rolling restart, and a rolling deploy after the servers have lost
// what they knew: also which limits were in use.
func TestDeploys(t *testing.T) {
	if os.Getenv("STINT_SOAK") == "" && os.Getenv("STINT_MUTANT") == "" {
		t.Skip("TestChaos has these faults, too; STINT_SOAK=1 has them alone")
	}
	s := open(t, 1)
	stop := s.load()
	var done []suffered
	for _, name := range []string{"rolling restart", "FLUSHALL", "rolling deploy of other limits"} {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		done = append(done, s.suffer(faults[i]))
	}
	done = append(done, s.suffer(calm))
	stop()
	s.judge(done, 1)
}

// open starts a cluster, and three processes that share it.
func open(t *testing.T, seed uint64) *site {
	s := openCluster(t, seed)
	s.serve(3)
	return s
}

// openCluster starts a cluster.
func openCluster(t *testing.T, seed uint64) *site {
	clock, env := redistest.NewClock(t)
	return &site{TB: t, clock: clock, cluster: redistest.StartDivided(t, env...), rnd: rand.New(rand.NewPCG(seed, 0))}
}
