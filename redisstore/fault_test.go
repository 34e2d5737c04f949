package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A witness stands between the fallback and the store, and counts what comes of
// the calls for one key.
type witness struct {
	stint.Store
	answered, ambiguous, refused, others atomic.Int64
}

type witnessed struct {
	stint.Bound
	by *witness
}

func (w *witness) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := w.Store.Bind(name, limits...)
	return &witnessed{b, w}, err
}

func (b *witnessed) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	d, err := b.Bound.Decide(ctx, op, key, cost)
	switch {
	case err == nil:
		b.by.answered.Add(1)
	case errors.Is(err, stint.ErrAmbiguous):
		b.by.ambiguous.Add(1)
	case errors.Is(err, redisstore.ErrNotExecuted):
		b.by.refused.Add(1)
	default:
		b.by.others.Add(1)
	}
	return d, err
}

func (w *witness) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	layers = slices.Clone(layers)
	for i := range layers {
		layers[i].Bound = layers[i].Bound.(*witnessed).Bound
	}
	return w.Store.Reserve(ctx, layers, cost, ttl)
}

// A trial is a store that falls back, in front of a server that suffers.
type trial struct {
	testing.TB
	witness *witness
	front   *fallback.Store
	wide    *stint.Limiter // never exhausted: each call is one charge
	narrow  *stint.Limiter // of 200
	counted stint.Bound    // the wide one, in the store itself
	keys    []string

	calls, passed, narrowly atomic.Int64
	slow                    atomic.Int64 // calls of more than 1 ms
	slowest                 Longest
	goroutines              int
	early                   int64         // calls that fell back before it was known how many nodes there are
	crowded                 bool          // other tests run at the same time: goroutines are theirs too
	pace                    time.Duration // what a caller does besides
}

const narrow = 200

// newTrial makes one on a store with the default deadline. Charges of minutes
// ago still count, so that they can be counted.
func newTrial(t testing.TB, o redisstore.Options, keys ...string) *trial {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("trial", prefixes.Add(1))
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &trial{TB: t, witness: &witness{Store: store}, keys: append(keys, "a"), pace: time.Millisecond}
	r.front = fallback.New(r.witness, fallback.Options{Local: memstore.New(memstore.Options{Now: o.Now})})
	t.Cleanup(func() { r.front.Close() })
	for limiter, text := range map[**stint.Limiter]string{&r.wide: "1000000/100000h", &r.narrow: fmt.Sprint(narrow, "/10000h")} {
		l := parse(t, text)
		if *limiter, err = stint.NewLimiter(r.front, l.Name(), l); err != nil {
			t.Fatal(err)
		}
	}
	if r.counted, err = store.Bind(r.wide.Name(), r.wide.Limits()...); err != nil {
		t.Fatal(err)
	}
	r.take(100)
	return r
}

// take asks so often for a unit of each, one call after the other.
func (r *trial) take(n int) {
	for range n {
		key := r.keys[rand.IntN(len(r.keys))]
		for _, l := range []*stint.Limiter{r.wide, r.narrow} {
			begun := time.Now()
			d, err := l.Take(ctx, key, 1)
			took := time.Since(begun)
			if took > time.Millisecond {
				r.slow.Add(1)
			}
			r.slowest.Note(took)
			if err != nil {
				r.Errorf("a call without an answer: %v", err)
			}
			if l == r.narrow {
				r.narrowly.Add(d.Taken)
				continue
			}
			r.calls.Add(1)
			r.passed.Add(d.Taken)
		}
	}
}

// load calls until stop is called, from enough goroutines for requests to be
// batched.
func (r *trial) load() (stop func()) {
	return Load(r, 24, r.pace, func(int) { r.take(1) })
}

// during loads while the fault lasts, and until the given number of calls have
// been made; where calls hang as long as the fault lasts, that is never.
func (r *trial) during(lasts time.Duration, least int64) {
	before, base := r.calls.Load(), runtime.NumGoroutine()
	stop := r.load()
	for end := time.Now().Add(lasts); time.Now().Before(end) || r.calls.Load()-before < least; time.Sleep(10 * time.Millisecond) {
		r.goroutines = max(r.goroutines, runtime.NumGoroutine()-base)
		if time.Since(end) > patience {
			stop()
			r.Fatalf("only %d calls in %v: at least %d are wanted", r.calls.Load()-before, lasts, least)
		}
	}
	stop()
}

// recovered waits until the server answers for every key again and nothing is
// owed.
func (r *trial) recovered() {
	begun := time.Now()
	back := time.Duration(0)
	for ; ; time.Sleep(5 * time.Millisecond) {
		before := r.witness.answered.Load()
		for _, key := range r.keys {
			d, err := r.wide.Take(ctx, key, 1)
			if err != nil {
				r.Errorf("a call without an answer: %v", err)
			}
			r.calls.Add(1)
			r.passed.Add(d.Taken)
		}
		if back == 0 && r.witness.answered.Load()-before == int64(len(r.keys)) {
			back = time.Since(begun)
		}
		if st := r.front.Stats(); back > 0 && st.Owing == 0 && !st.Degraded {
			break
		}
		if time.Since(begun) > patience {
			r.Fatalf("not recovered: %+v", r.front.Stats())
		}
	}
	st := r.front.Stats()
	r.Logf("%d calls, the slowest %v, %d above 1 ms; answered by Redis %d, ambiguous %d, refused %d, others %d; posted %d; %d goroutines more; back after %v",
		r.calls.Load(), r.slowest.Load(), r.slow.Load(), r.witness.answered.Load(), r.witness.ambiguous.Load(),
		r.witness.refused.Load(), r.witness.others.Load(), st.Posted, r.goroutines, back)
}

// used is what the server has counted under the wide limit.
func (r *trial) used() (sum int64) {
	for _, key := range r.keys {
		eventually(r, "the server does not say what it counted", func() bool {
			d, err := r.counted.Decide(ctx, meter.OpPeek, key, 1)
			if err == nil {
				sum += d.Limit - d.Remaining
			}
			return err == nil
		})
	}
	return sum
}

// judge holds the trial to what is promised. Lossy is for a server that forgot.
func (r *trial) judge(lossy bool) {
	r.Helper()
	if slowest := r.slowest.Load(); slowest > patience { // of 15 ms, and what else runs here
		r.Errorf("a call took %v", slowest)
	}
	if r.goroutines > 200 && !r.crowded { // with 24 callers, a connection each through a proxy that has two for each
		r.Errorf("%d goroutines more than before", r.goroutines)
	}
	time.Sleep(50 * time.Millisecond) // what was given up may still arrive
	used, passed, ambiguous := r.used(), r.passed.Load(), r.witness.ambiguous.Load()
	if used > passed || !lossy && used < passed-ambiguous {
		r.Errorf("%d units passed, %d calls were ambiguous, and the server has counted %d: want at most one charge a call, and none lost", passed, ambiguous, used)
	}
	most := int64(2*narrow + 1) // the server's envelope and the local one
	if lossy {
		most += narrow
	}
	if n := r.narrowly.Load(); n > most*int64(len(r.keys)) {
		r.Errorf("%d units of %d a key passed, at most %d may", n, narrow, most)
	} else if len(r.keys) == 1 && n < narrow {
		r.Errorf("%d units of %d passed: that was no trial", n, narrow)
	}
}

// lasting is how long a fault lasts: of thirty seconds, in a soak, five minutes.
func lasting(d time.Duration) time.Duration {
	if os.Getenv("STINT_SOAK") != "" {
		return 10 * d
	}
	return d
}

// TestManyCallersOfAStall has more callers at once than a client library has
// room for, on a server that does not answer: each gets its error in time, and none
// leaves anything behind.
func TestManyCallersOfAStall(t *testing.T) {
	s := redistest.Start(t)
	store := open(t, s.URL(), redisstore.Options{Timeout: 50 * time.Millisecond})
	limit := bind(t, store, "1000000/1000h")
	eventually(t, "the store does not decide", func() bool { _, err := limit.Decide(ctx, meter.OpPeek, "a", 1); return err == nil })
	base := runtime.NumGoroutine()
	s.Signal(t, syscall.SIGSTOP)
	const callers = 8000
	var ambiguous, unavailable atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for range callers {
		wg.Go(func() {
			_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
			switch {
			case errors.Is(err, redisstore.ErrNotExecuted): // the breaker, or a place in a call that others wait for
				unavailable.Add(1)
			case errors.Is(err, redisstore.ErrAmbiguous):
				ambiguous.Add(1)
			default:
				t.Errorf("a server that stalls: %v", err)
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
	s.Signal(t, syscall.SIGCONT)
	if took > patience || !errors.Is(err, redisstore.ErrNotExecuted) && !errors.Is(err, redisstore.ErrAmbiguous) {
		t.Errorf("%d callers took %v, and the next was reported %v", callers, took, err)
	}
	t.Logf("%d callers in %v: %d ambiguous, %d refused", callers, took, ambiguous.Load(), unavailable.Load())
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= base+20 })
	var d stint.Decision
	eventually(t, "the store does not decide again", func() (ok bool) {
		d, err = limit.Decide(ctx, meter.OpPeek, "a", 1)
		return err == nil
	})
	if used := d.Limit - d.Remaining; used > ambiguous.Load()+3 {
		t.Errorf("%d charges of %d calls that may have charged", used, ambiguous.Load())
	}
}

// TestBoot starts before its server, and reports a wrong password at once.
func TestBoot(t *testing.T) {
	s := redistest.Start(t)
	s.Kill()
	r := newTrial(t, redisstore.Options{URL: s.URL()}) // answers 200 calls
	if r.witness.answered.Load() > 0 {
		t.Error("answers from a server that is not there")
	}
	r.take(100)
	s.Restart(t)
	r.recovered()
	r.judge(false)
	locked := redistest.Start(t, "--requirepass", "right")
	for password, want := range map[string]error{"right": nil, "wrong": redisstore.ErrConfiguration} {
		store, err := redisstore.New(redisstore.Options{URL: "redis://:" + password + "@" + locked.Addr, Timeout: patience})
		if !errors.Is(err, want) || want == nil && err != nil || err != nil && strings.Contains(err.Error(), password+"@") {
			t.Errorf("password %q: %v, want %v", password, err, want)
		}
		if store != nil {
			store.Close()
		}
	}
}

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
