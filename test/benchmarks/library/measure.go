package library

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// A contender is one thing that is timed: on one core by one worker, or on two
// by two at once.
type contender struct {
	name  string
	cores int
	// run makes n decisions as one of the workers, and returns how many passed.
	run func(worker, n int) int
	// denies says that nothing is to pass, instead of everything: a contender
	// that does not decide what it should is no contender.
	denies bool
	ours   bool // stint's, not what it is measured beside
}

// on returns the contender with another number of cores.
func (c contender) on(cores int) contender {
	c.cores = cores
	return c
}

const (
	// twoCores is the number of cores that the promises are about.
	twoCores = 2
	// chunk is how many decisions lie between two looks at the watch: enough
	// that looking costs nothing.
	chunk = 1000
)

// result is what was measured of a contender.
type result struct {
	name          string
	cores         int
	ours          bool
	rounds        []float64 // ns per decision
	sure          []bool    // whether the workers ran side by side in the round
	allocs, bytes float64   // per decision
}

// doubtful reports whether in most rounds the workers never ran side by side.
func (r result) doubtful() bool {
	sure := 0
	for _, ok := range r.sure {
		if ok {
			sure++
		}
	}
	return 2*sure < len(r.sure)
}

func (r result) median() float64 { return report.Median(r.good(r.rounds, r)) }
func (r result) least() float64  { return slices.Min(r.good(r.rounds, r)) }

// ratio returns how many times as long r takes as other, round by round.
func (r result) ratio(other result) float64 {
	ratios := make([]float64, len(r.rounds))
	for i := range ratios {
		ratios[i] = r.rounds[i] / other.rounds[i]
	}
	return report.Median(r.good(ratios, other))
}

// good returns the values of the rounds that are sure for r and other, or all
// values where no round is.
func (r result) good(values []float64, other result) []float64 {
	var sure []float64
	for i, v := range values {
		if r.sure[i] && other.sure[i] {
			sure = append(sure, v)
		}
	}
	if len(sure) == 0 {
		return values
	}
	return sure
}

// race times the contenders in turns. Results are in the order of contenders.
// A machine with one core leaves out what needs two.
func (f *figures) race(contenders []contender) (results, error) {
	contenders = slices.DeleteFunc(contenders, func(c contender) bool { return c.cores > runtime.NumCPU() })
	rs := make(results, len(contenders))
	for i, c := range contenders {
		rs[i] = result{name: c.name, cores: c.cores, ours: c.ours}
		rs[i].allocs, rs[i].bytes = c.allocations() // and warms up
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for range f.Rounds {
		runtime.GC()
		for i, c := range contenders {
			ns, sure, err := c.time(f.Slice)
			if err != nil {
				return nil, err
			}
			rs[i].rounds, rs[i].sure = append(rs[i].rounds, ns), append(rs[i].sure, sure)
		}
	}
	return rs, nil
}

const (
	// spell is how long workers run at a time where there are several: short
	// enough to fall between the turns of other processes.
	spell = 2 * time.Millisecond
	// disturbed is the share of a spell that workers may spend waiting for a
	// processor: beyond it they did not run side by side, and what is to be
	// measured, how they get in each other's way, did not happen.
	disturbed = 0.05
	// patience is how many times as long as a slice is tried for.
	patience = 10
)

// time runs the contender for a while and returns the nanoseconds per decision
// of all its workers together. It is not sure where several workers never ran
// side by side, because other processes had the processors.
func (c contender) time(slice time.Duration) (ns float64, sure bool, err error) {
	runtime.GOMAXPROCS(c.cores)
	if c.cores == 1 {
		pace, _, err := c.spell(slice)
		return 1 / pace, true, err
	}
	var good []float64
	best, least := 0.0, 0.0
	ran := time.Duration(0)
	for begun := time.Now(); ran < slice && time.Since(begun) < patience*slice; {
		pace, waited, err := c.spell(spell)
		if err != nil {
			return 0, false, err
		}
		if best == 0 || waited < least {
			best, least = pace, waited
		}
		if waited <= disturbed {
			good = append(good, pace)
			ran += spell
		}
	}
	if len(good) == 0 {
		return 1 / best, false, nil
	}
	return 1 / report.Median(good), true, nil
}

// turn is a thread and how long it has waited for a processor.
type turn struct {
	thread int
	waited time.Duration
}

// spell runs the workers side by side and returns how many decisions a ns they
// make together, and the share of the time that the worst of them waited for a
// processor, which is left out, or was behind the first.
func (c contender) spell(length time.Duration) (pace, share float64, err error) {
	var (
		ready   atomic.Int32
		workers sync.WaitGroup
		paces   = make([]float64, c.cores)
		shares  = make([]float64, c.cores)
		starts  = make([]time.Time, c.cores)
		wrong   = make([]int, c.cores)
	)
	for worker := range c.cores {
		workers.Go(func() {
			if c.cores == 1 { // nothing blocks: keep to one thread, so that its waits are known
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			for ready.Add(1); ready.Load() < int32(c.cores); {
				runtime.Gosched()
			}
			done, passed, took := 0, 0, time.Duration(0)
			begun, before := time.Now(), look()
			for took < length {
				passed += c.run(worker, chunk)
				done += chunk
				took = time.Since(begun)
			}
			after := look()
			took = time.Since(begun)
			lost := after.waited - before.waited
			if before.thread != after.thread {
				lost = took / 2 // unknown
			}
			paces[worker] = float64(done) / float64(took-lost)
			shares[worker] = float64(lost) / float64(took)
			starts[worker] = begun
			wrong[worker] = done - passed
			if c.denies {
				wrong[worker] = passed
			}
		})
	}
	workers.Wait()
	for worker := range c.cores {
		pace += paces[worker]
		apart := starts[worker].Sub(starts[0]).Abs()
		share = max(share, shares[worker], float64(apart)/float64(length))
		if wrong[worker] > 0 {
			err = fmt.Errorf("%s: %d decisions are not what they should be", c.name, wrong[worker])
		}
	}
	return pace, share, err
}

// allocations returns how often and how many bytes a decision allocates: the
// least of several tries, because others in the process may allocate too.
func (c contender) allocations() (count, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for try := range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.run(0, chunk)
		runtime.ReadMemStats(&after)
		n := float64(after.Mallocs-before.Mallocs) / chunk
		b := float64(after.TotalAlloc-before.TotalAlloc) / chunk
		if try == 0 || b < bytes {
			count, bytes = n, b
		}
	}
	return count, bytes
}

// results are what a race measured.
type results []result

// of returns the result of a contender on the given number of cores; ok is false
// where the machine has fewer.
func (rs results) of(name string, cores int) (r result, ok bool) {
	i := slices.IndexFunc(rs, func(r result) bool { return r.name == name && r.cores == cores })
	if i < 0 {
		return r, false
	}
	return rs[i], true
}

// fastest returns the fastest of the named contenders on the given number of cores.
func (rs results) fastest(names []string, cores int) (best result, ok bool) {
	for _, name := range names {
		if r, found := rs.of(name, cores); found && (!ok || r.median() < best.median()) {
			best, ok = r, true
		}
	}
	return best, ok
}

// names returns every name once, in order.
func (rs results) names() []string {
	var list []string
	for _, r := range rs {
		if !slices.Contains(list, r.name) {
			list = append(list, r.name)
		}
	}
	return list
}

// noAllocations notes the promise that no decision of stint's allocates.
func (f *figures) noAllocations(rs results, what string) {
	most := 0.0
	for _, r := range rs {
		if r.ours {
			most = max(most, r.allocs)
		}
	}
	f.AtMost(0, most, "", "allocations of any decision, %s", what)
}
