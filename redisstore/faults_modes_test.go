package redisstore_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// at returns options of each store at one URL.
func at(url string) func(store int) redisstore.Options {
	return func(int) redisstore.Options { return redisstore.Options{URL: url} }
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

const (
	modeNodes  = 3    // stores that share the limits
	modeRate   = 500  // a second
	modeBurst  = 1000 // B
	modeUnsent = 50   // U
	modeCalls  = 600  // a second: about as many as the modes make of themselves, under any load
	modeLeast  = 4000 // requests of each mode while something happens, or it was no trial

	// modeDeadline is that of calls: a machine that is busy is not the fault that
	// is looked at.
	modeDeadline = 250 * time.Millisecond
)

// A fleet is stores of one program's processes, each with limits in modes Lease
// and Async, on servers that suffer. Each request asks three limits, by
// themselves: one in each mode that is asked for more than it gives, and one in
// mode Async that is never exhausted, so that all it lets through is counted.
type fleet struct {
	testing.TB
	stores []*redisstore.Store
	limits [3][]stint.Bound // by what they are, then by store
	strict stint.Bound      // the last of them, as the server has it
	prefix string
	keys   []string

	slowest       Longest
	failed, asked atomic.Int64
	counted       atomic.Int64 // what the last of them let through

	took [2]map[string]*Spans // of the first two, by key, since the load began
}

// newFleet opens the stores of a fleet, each with options of its own, and one more that
// counts.
func newFleet(t testing.TB, options func(store int) redisstore.Options, keys ...string) *fleet {
	f := &fleet{TB: t, prefix: fmt.Sprint("fleet", prefixes.Add(1)), keys: keys}
	of := []struct {
		name, text string
		mode       redisstore.Mode
	}{
		{"lease", fmt.Sprintf("%d/1s burst %d", modeRate, modeBurst), redisstore.Lease},
		{"async", fmt.Sprintf("%d/1s burst %d", modeRate, modeBurst), redisstore.Async},
		{"wide", "1000000/300000h", redisstore.Async},
	}
	for i := range modeNodes {
		o := options(i)
		o.Prefix, o.Modes = f.prefix, redisstore.Modes{AsyncUnsent: modeUnsent}
		if o.Timeout == 0 {
			o.Timeout = modeDeadline
		}
		s := openPlain(t, o)
		f.stores = append(f.stores, s)
		for i, l := range of {
			b, err := s.Mode(l.mode).Bind(l.name, parse(t, l.text))
			if err != nil {
				t.Fatal(err)
			}
			f.limits[i] = append(f.limits[i], b)
		}
	}
	o := options(modeNodes)
	o.Prefix, o.Timeout = f.prefix, patience
	var err error
	if f.strict, err = openPlain(t, o).Bind(of[2].name, parse(t, of[2].text)); err != nil {
		t.Fatal(err)
	}
	f.afresh()
	f.decided("at first")
	return f
}

// ask asks a store once for a unit of each limit, and returns what failed.
func (f *fleet) ask(store int, key string) error {
	var failed error
	f.asked.Add(1)
	for i := range f.limits {
		begun := time.Now()
		var took *Spans
		from := int64(0)
		if i < len(f.took) {
			took = f.took[i][key]
			from = took.Now()
		}
		d, err := f.limits[i][store].Decide(ctx, meter.OpTake, key, 1)
		f.slowest.Note(time.Since(begun))
		if err != nil {
			f.failed.Add(1)
			failed = err
			if !errors.Is(err, redisstore.ErrNotExecuted) && !errors.Is(err, redisstore.ErrAmbiguous) {
				f.Errorf("an error that is none of a fault: %v", err)
			}
		}
		switch {
		case !d.Allowed:
		case i == 2:
			f.counted.Add(1)
		default:
			took.Note(from, took.Now(), 1)
		}
	}
	return failed
}

// afresh forgets what was let through.
func (f *fleet) afresh() {
	for i := range f.took {
		f.took[i] = make(map[string]*Spans)
		for _, key := range f.keys {
			f.took[i][key] = NewSpans(50 * time.Millisecond)
		}
	}
}

// load calls all stores from four goroutines each until stop is called.
func (f *fleet) load() (stop func()) {
	f.afresh()
	f.asked.Store(0)
	return Load(f, 4*modeNodes, 500*time.Microsecond, func(caller int) {
		_ = f.ask(caller%modeNodes, f.keys[rand.IntN(len(f.keys))])
	})
}

// during loads while something happens, and for as long as it takes to be a
// trial.
func (f *fleet) during(happens func()) {
	stop := f.load()
	happens()
	eventually(f, fmt.Sprintf("less than %d requests", modeLeast), func() bool { return f.asked.Load() >= modeLeast })
	stop()
}

// decided waits until every store decides on every key by every limit.
func (f *fleet) decided(when string) {
	for store := range f.stores {
		for _, key := range f.keys {
			eventually(f, when+", a store does not decide", func() bool { return f.ask(store, key) == nil })
		}
	}
}

// passed is what was let through since the load began, of the key and the mode
// with the least.
func (f *fleet) passed() int64 {
	least := int64(math.MaxInt64)
	for _, keys := range f.took {
		for _, took := range keys {
			least = min(least, took.Sum())
		}
	}
	return least
}

// envelopes holds what was let through since the load began to B + d/T in any
// stretch d, and more besides: for the mode Async N·U, and where servers forgot
// a limit's worth. With less than the least of a key it was no trial.
func (f *fleet) envelopes(what string, forgotten, least int64) {
	f.Helper()
	for i, more := range []int64{forgotten, forgotten + modeNodes*modeUnsent} {
		for key, took := range f.took[i] {
			of := fmt.Sprintf("%s, mode %d, key %q", what, i, key)
			highest := took.Judge(f, of, func(_, _ int64, stretch time.Duration) int64 {
				return modeBurst + int64(stretch*modeRate/time.Second) + more
			})
			if took.Sum() < least {
				f.Errorf("%s: only %d passed: that was no trial", of, took.Sum())
			}
			f.Logf("%s: %d passed, in the worst stretch %.3f of what may", of, took.Sum(), highest)
		}
	}
	if slowest := f.slowest.Load(); slowest > patience { // of a quarter of a second, and what else runs here
		f.Errorf("%s: a call took %v", what, slowest)
	}
	f.Logf("%s: %d requests, %d errors, the slowest %v", what, f.asked.Load(), f.failed.Load(), f.slowest.Load())
}

// used is what the servers have counted under the limit that counts.
func (f *fleet) used() (sum int64) {
	for _, key := range f.keys {
		eventually(f, "the server does not say what it counted", func() bool {
			d, err := f.strict.Decide(ctx, meter.OpPeek, key, 1)
			if err == nil {
				sum += d.Limit - d.Remaining
			}
			return err == nil
		})
	}
	return sum
}

// exact waits until the servers have counted what was let through, to the unit.
func (f *fleet) exact(what string) int64 {
	f.Helper()
	used := int64(0)
	eventually(f, what+": not all that was let through is counted", func() bool {
		used = f.used()
		return used >= f.counted.Load()
	})
	if n := f.counted.Load(); used != n {
		f.Errorf("%s: %d counted, %d let through", what, used, n)
	}
	return used
}

// forgets has one of the servers fail under load, which may forget what was not
// yet replicated: a limit's worth may pass again.
func (f *fleet) forgets(fail func()) {
	before := f.exact("before")
	f.during(func() {
		eventually(f, "too few requests", func() bool { return f.asked.Load() >= modeLeast })
		fail()
		f.decided("after the failover")
	})
	f.envelopes("failover", modeBurst, modeBurst/4)
	sure := f.counted.Load()
	f.during(func() { // and all is as it was
		eventually(f, "afterwards, nothing is in hand: all is asked of the server", func() bool { return f.held() > 0 })
	})
	f.envelopes("afterwards", modeBurst, 20)
	last := f.counted.Load()
	for _, s := range f.stores {
		if err := s.Close(); err != nil { // sends what was not sent
			f.Error(err)
		}
		if n := s.Stats(); n.Calls != 0 || n.Held != 0 {
			f.Errorf("a closed store has %+v", n)
		}
	}
	if used := f.used(); used > last || used < before+last-sure {
		f.Errorf("%d counted: want from %d, which no failover could forget, to %d, which were let through", used, before+last-sure, last)
	}
}

func (f *fleet) held() (n int64) {
	for _, s := range f.stores {
		n += s.Stats().Held
	}
	return n
}

// Replicated waits until a master's replica has all that it has.
func Replicated(t testing.TB, master *redistest.Server) {
	eventually(t, "the replica is behind", func() bool {
		info := master.CLI(t, "info", "replication")
		has := redistest.Number(info, "master_repl_offset:")
		return has > 0 && redistest.Number(info, ",offset=") == has
	})
}

// TestModeFaults has servers fail under stores in modes Lease and Async: slots that move, a
// master of a cluster that is killed, a clock that steps, and a way that ends nowhere. Every call is answered in time, no more passes than is said, what
// was let through is counted once, and afterwards all is as it was.
func TestModeFaults(t *testing.T) {
	need.Time(t)
	t.Parallel() // it waits more than it works
	for name, fail := range map[string]func(*testing.T){
		"cluster": modesCluster, "clock": modesClock, "partition": modesPartition,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fail(t)
		})
	}
}

// modesCluster moves slots and then kills a master of a cluster under stores in
// modes Lease and Async.
func modesCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	masters := c.Masters()
	if len(masters) != 3 {
		t.Fatalf("%d masters", len(masters))
	}
	f := newFleet(t, at(c.URL()), KeyIn(t, masters[0], 0, 200), KeyIn(t, masters[0], 5461, 10922), KeyIn(t, masters[0], 10923, 16383))
	before, begun := evals(t, masters), time.Now()
	f.during(func() { c.Reshard(t, masters[0], masters[1], 200) }) // the first key's slot among them
	calls, background := evals(t, masters)-before, int64(time.Since(begun)*modeCalls/time.Second)
	f.envelopes("reshard", 0, modeBurst/2)
	f.exact("reshard")
	if n := 3 * f.asked.Load(); calls > max(n/2, background) { // a machine that is busy makes few decisions
		t.Errorf("%d calls for %d decisions: that is no mode", calls, n)
	}
	Replicated(t, masters[1])
	f.forgets(func() {
		c.NodeTimeout(t, time.Second)
		masters[1].Kill()
		eventually(t, "the cluster elects nobody", func() bool { return len(c.Masters()) == 3 })
		c.NodeTimeout(t, redistest.Patient)
	})
}

// modesClock steps the clock of a server back and forth under stores in modes
// Lease and Async. Steps back add nothing to what passes, in real time, nor do
// they lock a key out for longer than two drains. A step forth is time that
// passes, at most a limit's worth, and ends leases for the server while nodes
// have them in hand. Once the clock is where it was, all that was let through is
// counted, to the unit.
func modesClock(t *testing.T) {
	const drain = modeBurst * time.Second / modeRate
	const leased = modeBurst / 10 // S
	server, clock := redistest.StartClock(t)
	patient := func(int) redisstore.Options { // no call has a reason to fail, but a machine that is busy
		return redisstore.Options{URL: server.URL(), Timeout: patience}
	}
	f := newFleet(t, patient, "a", "b")
	f.during(func() {})
	f.exact("before")
	for _, step := range []struct {
		name        string
		by          time.Duration
		idle, lasts time.Duration
		more        int64
	}{
		{"a second back", -time.Second, drain, 1700 * time.Millisecond, 0},
		{"a day back", -24 * time.Hour, drain, drain + time.Second, 0},
		{"a day forth", 24 * time.Hour, 0, 2200 * time.Millisecond, modeBurst + leased},
		{"a second forth", time.Second, 0, 1500 * time.Millisecond, modeRate + leased},
	} {
		time.Sleep(step.idle) // buckets are full again
		f.during(func() {
			time.Sleep(300 * time.Millisecond)
			if step.idle > 0 { // a step back may lock a key out for the rest, on a busy machine before it had much
				eventually(f, step.name+": full buckets let little through", func() bool { return f.passed() >= modeRate })
			}
			eventually(f, step.name+": nothing is in hand", func() bool { return f.held() > 0 })
			clock.Step(t, step.by)
			time.Sleep(step.lasts)
			f.decided(step.name)
		})
		f.envelopes(step.name, step.more, modeRate)
	}
	f.exact("the clock where it was")
	if n := f.failed.Load(); n != 0 {
		f.Errorf("%d calls failed: a clock that steps is no reason", n)
	}
}

// modesPartition takes one of the stores in modes Lease and Async its way to the
// server, which neither answers nor resets: it spends what it has in hand or may
// leave unsent, and then lets nothing more through; the others go on. All
// together stay within the bounds of their modes, and when the way is back, what
// was let through is counted to the unit.
func modesPartition(t *testing.T) {
	server := redistest.Start(t)
	way := redistest.NewProxy(t, server.Addr)
	first := func(store int) redisstore.Options {
		if store == 0 {
			return redisstore.Options{URL: way.URL()}
		}
		return redisstore.Options{URL: server.URL()}
	}
	f := newFleet(t, first, "a", "b")
	time.Sleep(modeBurst * time.Second / modeRate) // buckets are full again
	f.during(func() {
		passes := func(limit int, key string) bool {
			d, _ := f.limits[limit][0].Decide(ctx, meter.OpTake, key, 1)
			return d.Allowed
		}
		eventually(f, "the node has nothing in hand when it is cut off", func() bool {
			for range 100 { // of a key that is its own, as fast as it can
				passes(0, "c")
			}
			way.Set(redistest.Fault{Stall: true})
			if passes(0, "c") {
				return true
			}
			way.Set(redistest.Fault{})
			time.Sleep(200 * time.Millisecond)
			return false
		})
		for begun := time.Now(); time.Since(begun) < 2200*time.Millisecond; time.Sleep(100 * time.Millisecond) {
			passes(0, "c")
		}
		for range modeUnsent { // where slow callers have not spent it
			_ = f.ask(0, "a")
		}
		for range 200 { // a lease lasts 1.75 s
			for i, key := range []string{"c", "a", "a"} {
				if passes(i, key) {
					f.Fatalf("mode %d: long after it was cut off, the node lets through what nobody knows of", i)
				}
			}
		}
		way.Set(redistest.Fault{})
		f.decided("afterwards")
	})
	f.envelopes("partition", 0, 2*modeRate)
	f.exact("partition")
	f.during(func() {}) // and all is as it was
	f.envelopes("afterwards", 0, 20)
	f.exact("afterwards")
}

// KeyIn returns a key whose slot is one of these.
func KeyIn(t testing.TB, node *redistest.Server, from, to int64) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("key ", i)
		if slot := redistest.Number(node.CLI(t, "cluster", "keyslot", key), ""); from <= slot && slot < to {
			return key
		}
	}
}

// evals returns how often scripts were called.
func evals(t testing.TB, nodes []*redistest.Server) (sum int64) {
	for _, node := range nodes {
		info := node.CLI(t, "info", "commandstats")
		sum += redistest.Number(info, "cmdstat_evalsha:calls=") + redistest.Number(info, "cmdstat_eval:calls=")
	}
	return sum
}
