package fallback_test

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// What a key has used is carried over when there are more processes: it gets no
// more of the smaller share than its part that is left.
func TestSetNodesKeeps(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		if got := n.pass(t, "a", 6); got != 6 {
			t.Fatalf("%d of 6 passed", got)
		}
		if err := n.store.SetNodes(2); err != nil {
			t.Fatal(err)
		}
		if got := n.pass(t, "a", 10); got > 2 {
			t.Errorf("%d more passed of a share of 5, of which 6 in 10 were used", got)
		}
		if got := n.pass(t, "b", 10); got != 5 {
			t.Errorf("%d passed for a key unseen, want the share of 5", got)
		}
		if err := n.store.SetNodes(0); err != nil { // 1
			t.Fatal(err)
		}
		if got := n.pass(t, "c", 20); got != 10 {
			t.Errorf("%d passed for a key unseen, want 10", got)
		}
	})
}

// Limits of one name whose shares are the same for some number of processes are two again for another.
func TestSharesAlike(t *testing.T) {
	local := memstore.New(memstore.Options{})
	shares := fallback.NewShares(local, 100)
	counts := []int64{1, 99, 7}
	var all []stint.Bound
	for _, n := range counts {
		b, err := shares.Bind("a", stint.PerHour(n).WithAlgorithm(meter.FixedWindow))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, nodes := range []int{1, 100, 3, 1} {
		if err := shares.SetNodes(nodes); err != nil {
			t.Fatal(err)
		}
		for i, b := range all {
			if got, want := b.Limits()[0].Count(), max(counts[i]/int64(nodes), 1); got != want {
				t.Errorf("of %d an hour, one of %d processes has %d, want %d", counts[i], nodes, got, want)
			}
		}
	}
}

// Processes that take all the while, as the number of nodes goes up
// and down, hold the limit together from the moment that all know it.
func TestSetNodesWhileTaking(t *testing.T) {
	const nodes, burst, rate, stretch = 3, 60, 1000, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		s.fail(errGone)
		var all []node
		var known atomic.Bool
		var passed atomic.Int64
		var running sync.WaitGroup
		for range nodes {
			n := newNode(t, s, fallback.Options{}, stint.PerSecond(rate).WithBurst(burst))
			all = append(all, n)
			for range 4 {
				running.Go(func() {
					for begun := time.Now(); time.Since(begun) < time.Second+stretch; time.Sleep(time.Millisecond) {
						counts := known.Load() // before it is decided
						d, err := n.Take(t.Context(), "a", 1)
						if err != nil {
							t.Error(err)
						}
						if counts {
							passed.Add(d.Taken)
						}
					}
				})
			}
		}
		for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(time.Millisecond) {
			_ = all[rand.IntN(nodes)].store.SetNodes(rand.IntN(6))
		}
		for _, n := range all {
			if err := n.store.SetNodes(nodes); err != nil {
				t.Fatal(err)
			}
		}
		known.Store(true)
		running.Wait()
		rated := int64(rate * stretch / time.Second)
		if got := passed.Load(); got > burst+rated+nodes || got < rated*9/10 {
			t.Errorf("%d passed in %v, want %d and at most %d more", got, stretch, rated, burst+nodes)
		}
	})
}

// What passed under a larger share is owed whole, also once the share is
// smaller: the processes are counted again just as the debt is posted.
func TestDebtOfLargerShare(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 10)
		n.pass(t, "b", 3)
		if err := n.store.SetNodes(5); err != nil {
			t.Fatal(err)
		}
		s.healAndPost()
		if a, b := remaining(t, n.Limiter, "a"), remaining(t, n.Limiter, "b"); a != 0 || b != 7 {
			t.Errorf("%d and %d remain, want 0 and 7", a, b)
		}
		if st := n.store.Stats(); st.Owing != 0 || st.Posted != 13 {
			t.Errorf("%+v", st)
		}
	})
}

// Of a log, what has come to an end is not charged, also once the share is
// smaller.
func TestDebtOfSmallerLog(t *testing.T) {
	bubble(t, fallback.Options{}, "100 per hour sliding_log", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 20)
		time.Sleep(40 * time.Minute)
		n.pass(t, "a", 20)
		time.Sleep(40 * time.Minute)
		if err := n.store.SetNodes(2); err != nil {
			t.Fatal(err)
		}
		s.healAndPost()
		if left := remaining(t, n.Limiter, "a"); left != 80 {
			t.Errorf("%d remain, want 80: 20 still count", left)
		}
	})
}

// A share that the local store cannot hold leaves the limit at the one before,
// and others are changed all the same.
func TestSetNodesRefused(t *testing.T) {
	s := newShared()
	o := fallback.Options{Nodes: 3, Local: memstore.New(memstore.Options{MaxLog: 100})}
	n := newNode(t, s, o, limit(t, "300 per hour sliding_log").WithName("log"))
	other := made.Limiter(t, n.store, "other", limit(t, "30 per hour fixed_window"))
	if err := n.store.SetNodes(2); err == nil || !strings.Contains(err.Error(), `"log"`) || strings.Contains(err.Error(), "other") {
		t.Errorf("a log of 150 where 100 are kept: %v", err)
	}
	s.fail(errGone)
	if got := n.pass(t, "a", 200); got != 100 {
		t.Errorf("%d passed, want the 100 of before", got)
	}
	if got := (node{other, n.store}).pass(t, "a", 30); got != 15 {
		t.Errorf("%d passed, want 15", got)
	}
	if err := n.store.SetNodes(4); err != nil {
		t.Error(err)
	}
	if got := n.pass(t, "b", 200); got != 75 {
		t.Errorf("%d passed, want 75", got)
	}
}

// Limits that are no longer held are dropped, however many callers bring.
func TestSharesForget(t *testing.T) {
	shares := fallback.NewShares(memstore.New(memstore.Options{}), 2)
	for i := range 20_000 {
		if _, err := shares.Bind("api", stint.PerHour(int64(i+1))); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			runtime.GC()
			runtime.GC()
		}
	}
	if held := shares.Held(); held > 10_000 {
		t.Errorf("%d limits are held, and one at most is in use", held)
	}
}

// Limits cost the same however many their name has: when they are bound, when those no longer held
// are dropped, and when the number of processes changes.
func TestSharesOfManyLimits(t *testing.T) {
	const most = 4000
	price := func(n int, do func()) int {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return int(after.Mallocs-before.Mallocs) / n
	}
	shares := fallback.NewShares(memstore.New(memstore.Options{}), 1)
	var all []stint.Bound
	bind := price(most, func() {
		for i := range most {
			b, err := shares.Bind("api", stint.PerHour(int64(i+100)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
	})
	change := price(most, func() {
		if err := shares.SetNodes(2); err != nil {
			t.Fatal(err)
		}
	})
	if bind > 200 || change > 200 {
		t.Errorf("%d allocations to bind one of %d limits, and %d to change it", bind, most, change)
	}
	if got := all[most-1].Limits()[0].Burst(); got != (most+99)/2 {
		t.Errorf("a burst of %d", got)
	}
}

// TestDebtOfManyForms has five forms let pass for one key while the shared store
// is gone: what the slowest counts is owed when the others have forgotten it.
func TestDebtOfManyForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		slow := newNode(t, s, fallback.Options{}, limit(t, "20/h").WithName("calls"))
		s.fail(errGone)
		slow.pass(t, "a", 4)
		for _, text := range []string{"10/s", "11/s", "12/s", "13/s", "14/s"} {
			l := made.Limiter(t, slow.store, "test", limit(t, text).WithName("calls"))
			(&node{store: slow.store, Limiter: l}).pass(t, "a", 1)
		}
		time.Sleep(10 * time.Second)
		s.healAndPost()
		if got := remaining(t, slow.Limiter, "a"); got > 16 {
			t.Errorf("%d of 20 remain: what passed was not charged", got)
		}
	})
}
