package faulttest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

const (
	modeNodes  = 3    // stores that share the limits
	modeRate   = 500  // a second
	modeBurst  = 1000 // B
	modeUnsent = 50   // U
	modeCalls  = 600  // a second: about as many as the modes make of themselves, under any load
	modeLeast  = 4000 // requests of each mode while something happens, or it was no trial
	moment     = 50 * time.Millisecond

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

	mu   sync.Mutex
	took [2]map[string]spans // of the first two, by key
}

// spans is what was let through by calls that began in one moment and ended in
// another.
type spans map[[2]int64]int64

func newFleet(t testing.TB, client Client, at Place, keys ...string) *fleet {
	f := &fleet{TB: t, prefix: fmt.Sprint("fleet", prefixes.Add(1)), keys: keys}
	of := []struct {
		name, text string
		mode       redisstore.Mode
	}{
		{"lease", fmt.Sprintf("%d/1s burst %d", modeRate, modeBurst), redisstore.Lease},
		{"async", fmt.Sprintf("%d/1s burst %d", modeRate, modeBurst), redisstore.Async},
		{"wide", "1000000/300000h", redisstore.Async},
	}
	for range modeNodes {
		o := client(t, at)
		o.Prefix, o.Modes = f.prefix, redisstore.Modes{AsyncUnsent: modeUnsent}
		if o.Timeout == 0 {
			o.Timeout = modeDeadline
		}
		s := open(t, o)
		f.stores = append(f.stores, s)
		for i, l := range of {
			b, err := s.Mode(l.mode).Bind(l.name, parse(t, l.text))
			if err != nil {
				t.Fatal(err)
			}
			f.limits[i] = append(f.limits[i], b)
		}
	}
	o := client(t, at)
	o.Prefix, o.Timeout = f.prefix, patience
	var err error
	if f.strict, err = open(t, o).Bind(of[2].name, parse(t, of[2].text)); err != nil {
		t.Fatal(err)
	}
	f.afresh()
	f.decided("at first")
	return f
}

// now is which moment it is.
func now() int64 { return time.Now().UnixNano() / int64(moment) }

// ask asks a store once for a unit of each limit, and returns what failed.
func (f *fleet) ask(store int, key string) error {
	var failed error
	f.asked.Add(1)
	for i := range f.limits {
		begun, from := time.Now(), now()
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
			f.mu.Lock()
			f.took[i][key][[2]int64{from, now()}]++
			f.mu.Unlock()
		}
	}
	return failed
}

// afresh forgets what was let through.
func (f *fleet) afresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.took {
		f.took[i] = make(map[string]spans)
		for _, key := range f.keys {
			f.took[i][key] = make(spans)
		}
	}
}

// load calls all stores from four goroutines each until stop is called.
func (f *fleet) load() (stop func()) {
	f.afresh()
	f.asked.Store(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 * modeNodes {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(500 * time.Microsecond): // what a caller does besides
					_ = f.ask(i%modeNodes, f.keys[rand.IntN(len(f.keys))])
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	f.Cleanup(stop)
	return stop
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
	f.mu.Lock()
	defer f.mu.Unlock()
	least := int64(math.MaxInt64)
	for _, keys := range f.took {
		for _, took := range keys {
			sum := int64(0)
			for _, n := range took {
				sum += n
			}
			least = min(least, sum)
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
			total, most := int64(0), int64(0)
			for first := range took {
				within, last := make(map[int64]int64), first[0] // by the moment of their end
				for at, n := range took {
					if at[0] >= first[0] {
						within[at[1]] += n
						last = max(last, at[1])
					}
				}
				sum := int64(0)
				for m := first[0]; m <= last; m++ {
					sum += within[m]
					stretch := time.Duration(m+1-first[0]) * moment
					bound := modeBurst + int64(stretch*modeRate/time.Second) + more
					if most = max(most, sum*1000/bound); sum > bound {
						f.Fatalf("%s, mode %d: %d of %q in %v, at most %d", what, i, sum, key, stretch, bound)
					}
				}
				total = max(total, sum)
			}
			if total < least {
				f.Errorf("%s, mode %d: only %d of %q: that was no trial", what, i, total, key)
			}
			f.Logf("%s, mode %d: %d of %q, in the worst stretch 0.%03d of the bound", what, i, total, key, most)
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
		number := func(after string) int64 {
			_, rest, _ := strings.Cut(info, after)
			n, _ := strconv.ParseInt(rest[:max(strings.IndexAny(rest, ",\r\n"), 0)], 10, 64)
			return n
		}
		return number("master_repl_offset:") > 0 && number(",offset=") == number("master_repl_offset:")
	})
}

// ModesCluster moves slots and then kills a master of a cluster under stores in
// modes Lease and Async.
func ModesCluster(t *testing.T, client Client) {
	c := redistest.StartCluster(t, 3, 1)
	place := Place{Cluster: true}
	for _, node := range c.Nodes {
		place.Addrs = append(place.Addrs, node.Addr)
	}
	masters := c.Masters()
	if len(masters) != 3 {
		t.Fatalf("%d masters", len(masters))
	}
	f := newFleet(t, client, place, keyIn(t, masters[0], 0, 200), keyIn(t, masters[0], 5461, 10922), keyIn(t, masters[0], 10923, 16383))
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

// ModesSentinel kills the master of a Sentinel set under stores in modes Lease
// and Async.
func ModesSentinel(t *testing.T, client Client) {
	s := redistest.StartSentinels(t)
	place := Place{Sentinel: true}
	for _, one := range s.Sentinels {
		place.Addrs = append(place.Addrs, one.Addr)
	}
	f := newFleet(t, client, place, "a", "b", "c")
	f.during(func() {})
	f.exact("before")
	Replicated(t, s.Data[0])
	f.forgets(func() {
		s.DownAfter(t, time.Second/2)
		s.Data[0].Kill()
		eventually(t, "the Sentinels elect nobody", func() bool { return s.Data[1].Role() == "master" })
	})
}

// keyIn returns a key whose slot is one of these.
func keyIn(t testing.TB, node *redistest.Server, from, to int) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("key ", i)
		if slot, err := strconv.Atoi(strings.TrimSpace(node.CLI(t, "cluster", "keyslot", key))); err != nil {
			t.Fatal(err)
		} else if from <= slot && slot < to {
			return key
		}
	}
}

// evals returns how often scripts were called.
func evals(t testing.TB, nodes []*redistest.Server) (sum int64) {
	for _, node := range nodes {
		for line := range strings.Lines(node.CLI(t, "info", "commandstats")) {
			var n int64
			if strings.HasPrefix(line, "cmdstat_eval") {
				_, rest, _ := strings.Cut(line, "calls=")
				_, _ = fmt.Sscan(rest[:max(strings.Index(rest, ","), 0)], &n)
				sum += n
			}
		}
	}
	return sum
}
