package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestPartition takes one of three nodes its way to the server: what it sends
// vanishes, and neither answer nor reset comes back. It answers by its part of
// the limits, in time; the others go on as ever; all together let through what
// the limit and that part do; and when the way is back, late or with all that
// was on it lost, the server counts what passed, each unit at most once.
func TestPartition(t *testing.T) {
	need.Time(t)
	for name, lost := range map[string]bool{"late": false, "lost": true} {
		t.Run(name, func(t *testing.T) { testPartition(t, lost) })
	}
}

func testPartition(t *testing.T, lost bool) {
	s := redistest.Start(t)
	way := redistest.NewProxy(t, s.Addr)
	base := goroutines()
	prefix := "partition " + t.Name()
	cut := newTrial(t, redisstore.Options{URL: way.URL(), Prefix: prefix})
	all := []*trial{cut}
	for range 2 { // which have no reason to fall back, but for a machine that is busy
		all = append(all, newTrial(t, redisstore.Options{URL: s.URL(), Prefix: prefix, Timeout: patience}))
	}
	part := int64(narrow/len(all)) + 1
	for _, r := range all {
		if err := r.front.SetNodes(len(all)); err != nil {
			t.Fatal(err)
		}
		r.keys = append(r.keys, "b")            // which was never used
		r.early = int64(r.front.Stats().Failed) // on a machine that is busy
	}
	way.Set(redistest.Fault{Stall: true})
	before, first := make([]int64, len(all)), cut.narrowly.Load()
	var stops []func()
	for i, r := range all {
		before[i] = r.calls.Load()
		stops = append(stops, r.load())
	}
	most := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || cut.calls.Load()-before[0] < 200 || all[1].calls.Load()-before[1] < 200 || all[2].calls.Load()-before[2] < 200; {
		if time.Since(end) > patience {
			t.Fatal("less than 200 calls a node: that is no trial")
		}
		time.Sleep(100 * time.Millisecond)
		most = max(most, goroutines()-base)
	}
	alone := cut.narrowly.Load() - first
	if !cut.front.Stats().Degraded {
		t.Error("the node that is cut off does not know")
	}
	if lost {
		way.Reset()
	}
	way.Set(redistest.Fault{})
	for _, stop := range stops {
		stop()
	}
	for _, r := range all {
		r.recovered()
	}
	time.Sleep(50 * time.Millisecond) // what was given up may still arrive

	passed, narrowly := checkTrials(t, all, part)
	if alone < part/2 || alone > 2*part {
		t.Errorf("the node let %d units through by itself: its part of a key is %d", alone, part)
	}
	if most > 300 { // with 72 callers
		t.Errorf("%d goroutines more than before", most)
	}
	t.Logf("%d calls, %d units of the narrow limit, %d by itself; %d goroutines more", passed, narrowly, alone, most)
	for _, r := range all {
		if err := r.front.Close(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, base)
}

// checkTrials holds the trials of one prefix, of which the first was cut off, to what
// is promised, and returns how many units passed of each limit.
func checkTrials(t *testing.T, all []*trial, part int64) (passed, narrowly int64) {
	t.Helper()
	cut, ambiguous := all[0], int64(0)
	for i, r := range all {
		passed, ambiguous, narrowly = passed+r.passed.Load(), ambiguous+r.witness.ambiguous.Load(), narrowly+r.narrowly.Load()
		if failed := r.front.Stats().Failed; i > 0 && failed > 0 {
			t.Errorf("node %d has a way to the server, and fell back %d times", i, failed)
		}
		if took := r.slowest.Load(); took > patience { // of 15 ms, and what else runs here
			t.Errorf("a call of node %d took %v", i, took)
		}
	}
	if used := cut.used(); used > passed || used < passed-ambiguous {
		t.Errorf("%d units passed, %d calls were ambiguous, and the server has counted %d: want at most one charge a call, and none lost", passed, ambiguous, used)
	}
	if may := int64(len(cut.keys))*(narrow+part) + cut.early; narrowly > may {
		t.Errorf("%d units passed of %d keys, at most %d may", narrowly, len(cut.keys), may)
	}
	return passed, narrowly
}

// nothingLeft waits until there are no more goroutines than at first, but for a
// few of the library's.
func nothingLeft(t testing.TB, base int) {
	t.Helper()
	eventually(t, "goroutines are left", func() bool { return goroutines() <= base+5 })
}

// goroutines returns how many there are but for those of proxies, which keep
// what others have given up.
func goroutines() (n int) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "redistest.(*Proxy)") {
			n++
		}
	}
	return n
}

// TestModePartition takes one of three nodes its way to the server in modes
// Lease and Async.
func TestModePartition(t *testing.T) {
	need.Time(t)
	base := goroutines()
	t.Run("one server", func(t *testing.T) { ModesPartition(t) })
	nothingLeft(t, base)
}

// A side is a store on one side of a network that parts, and what came of it.
type side struct {
	testing.TB
	client       redis.UniversalClient
	store        *redisstore.Store
	wide, narrow stint.Bound

	calls, passed, narrowly, ambiguous atomic.Int64
	last                               atomic.Int64 // when something passed, in ns
	slowest                            Longest
}

const sideCount = 1000 // of the narrow limit

func newSide(t testing.TB, d *redistest.Divided, from string) *side {
	t.Helper()
	own := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := redisstore.Connect(ctx, &redis.UniversalOptions{
		Addrs: d.Addrs(), Dialer: own.DialContext, DialTimeout: time.Second, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	store, err := redisstore.New(redisstore.Options{Client: c, Prefix: "sides", Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &side{TB: t, client: c, store: store, wide: bind(t, store, "1000000/100000h"), narrow: bind(t, store, fmt.Sprint(sideCount, "/10000h"))}
}

// take asks for a unit of each limit.
func (s *side) take(key string) {
	for _, l := range []stint.Bound{s.wide, s.narrow} {
		begun := time.Now()
		d, err := l.Decide(ctx, meter.OpTake, key, 1)
		s.slowest.Note(time.Since(begun))
		switch {
		case errors.Is(err, redisstore.ErrAmbiguous):
			s.ambiguous.Add(1)
		case err != nil && !errors.Is(err, redisstore.ErrNotExecuted):
			s.Errorf("an error that is none of a partition: %v", err)
		}
		if l == s.narrow {
			s.narrowly.Add(d.Taken)
			continue
		}
		s.calls.Add(1)
		s.passed.Add(d.Taken)
		if d.Taken > 0 {
			s.last.Store(time.Now().UnixNano())
		}
	}
}

// load calls from eight goroutines until stop is called.
func (s *side) load(key string) (stop func()) {
	return Load(s, 8, time.Millisecond, func(int) { s.take(key) })
}

// TestClusterPartition leaves a master of a cluster alone with some of its
// clients, and the others with the rest, which elect another. The one that is
// alone decides until cluster-node-timeout is over and then refuses. What it
// decided in between is forgotten when the network is whole again: of no key does
// more pass than the limit and what was left of it when the network parted; and
// of the rest nothing is lost, nor counted twice.
func TestClusterPartition(t *testing.T) {
	need.Time(t)
	d := redistest.StartDivided(t)
	alone := d.Nodes[0]
	if role := alone.Role(); role != "master" {
		t.Fatalf("the first node is a %q", role)
	}
	key := KeyIn(t, alone, 0, 16384/3)
	base := goroutines()
	here, there := newSide(t, d, redistest.Here), newSide(t, d, redistest.There)
	const before = 400
	eventually(t, "both sides decide", func() bool {
		here.take(key)
		there.take(key)
		return min(here.narrowly.Load(), there.narrowly.Load()) > 0 && here.narrowly.Load()+there.narrowly.Load() >= before
	})
	Replicated(t, alone)
	left := sideCount - here.narrowly.Load() - there.narrowly.Load()
	was := [...]int64{here.passed.Load(), there.passed.Load()}

	d.NodeTimeout(t, 3*time.Second) // time for callers to begin, on a busy machine too
	d.Part(alone)
	begun := time.Now()
	stops := []func(){here.load(key), there.load(key)}
	eventually(t, "the others elect nobody", func() bool { return there.passed.Load()-was[1] > 200 })
	eventually(t, "the master that is alone goes on", func() bool {
		return strings.Contains(alone.CLI(t, "cluster", "info"), "cluster_state:fail") && time.Now().UnixNano()-here.last.Load() > int64(time.Second)
	})
	forgotten, window := here.passed.Load()-was[0], time.Unix(0, here.last.Load()).Sub(begun)
	n := goroutines()
	if n > base+100 { // with 16 callers
		t.Errorf("%d goroutines, %d before", n, base)
	}
	time.Sleep(500 * time.Millisecond)
	if n := here.passed.Load() - was[0]; n != forgotten {
		t.Errorf("%d units passed, and then %d more: the master that is alone goes on", forgotten, n-forgotten)
	}
	d.Join()
	eventually(t, "not whole again, or the narrow limit is not used up", func() bool {
		return here.passed.Load()-was[0] > forgotten+200 && alone.Role() == "slave" && here.narrowly.Load()+there.narrowly.Load() >= sideCount
	})
	for _, stop := range stops {
		stop()
	}

	var used int64
	eventually(t, "the server does not say what it counted", func() bool {
		d, err := there.wide.Decide(ctx, meter.OpPeek, key, 1)
		used = d.Limit - d.Remaining
		return err == nil
	})
	passed, ambiguous := here.passed.Load()+there.passed.Load(), here.ambiguous.Load()+there.ambiguous.Load()
	narrowly := here.narrowly.Load() + there.narrowly.Load()
	t.Logf("%d calls, %d units passed, %d of them for %v in what was forgotten, %d calls ambiguous, %d counted; %d units of %d passed, %d were left; %d goroutines more",
		here.calls.Load()+there.calls.Load(), passed, forgotten, window, ambiguous, used, narrowly, sideCount, left, n-base)
	if forgotten < 100 || used >= passed {
		t.Errorf("%d units passed in what was forgotten, %d of %d are counted: that was no trial", forgotten, used, passed)
	}
	if window > patience { // of a second, and what else runs here
		t.Errorf("the master that is alone went on for %v", window)
	}
	if used > passed+ambiguous || used < passed-forgotten {
		t.Errorf("%d counted: want from %d, which no failover could forget, to %d", used, passed-forgotten, passed+ambiguous)
	}
	if narrowly > sideCount+left || narrowly < sideCount {
		t.Errorf("%d units of %d passed, at most %d may", narrowly, sideCount, sideCount+left)
	}
	for _, s := range []*side{here, there} {
		if took := s.slowest.Load(); took > patience {
			t.Errorf("a call took %v", took)
		}
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
		s.client.Close()
	}
	nothingLeft(t, base)
}
