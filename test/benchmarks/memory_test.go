package benchmarks_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// chunk is how many keys a batch has.
const chunk = 1000

// decide times decisions on keys, round and round, by a goroutine for each processor
// (-cpu 1,2), each from a place of its own. ns/op is the time per decision of all together.
// The garbage collector is off meanwhile, which favours what allocates.
func decide(b *testing.B, keys []string, all batch, denies bool) {
	workers := runtime.GOMAXPROCS(0)
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var wait sync.WaitGroup
	var passed, asked atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	for worker := range workers {
		wait.Go(func() {
			sum, n := 0, b.N/workers+1
			asked.Add(int64(n))
			for at := worker * len(keys) / workers; n > 0; {
				part := keys[at:min(at+chunk, at+n, len(keys))]
				sum += all(part)
				n -= len(part)
				at = (at + len(part)) % len(keys)
			}
			passed.Add(int64(sum))
		})
	}
	wait.Wait()
	b.StopTimer()
	if want := asked.Load(); !denies && passed.Load() != want || denies && passed.Load() != 0 {
		b.Fatalf("%d of %d passed", passed.Load(), want)
	}
}

// BenchmarkKeys is the public way of each rival on a thousand keys, which caches hold, and
// on a million in random order, which they do not.
func BenchmarkKeys(whole *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		for _, r := range rivals {
			var all batch
			var order []string
			whole.Run(fmt.Sprintf("by=%s/keys=%d", r.name, n), func(b *testing.B) {
				if all == nil { // for all its runs
					all, order = r.open(whole, n), shuffled(n)
					fill(all, 0, n)
				}
				decide(b, order, all, false)
			})
		}
	}
}

// BenchmarkOthers is what else may come of a decision on a thousand keys.
func BenchmarkOthers(b *testing.B) {
	const n = 1000
	order, hot := shuffled(n), make([]string, n)
	for i := range hot {
		hot[i] = "user:1234567"
	}
	three := []stint.Limit{plenty(), stint.New(60*plentyCount, 60*plentyPeriod), stint.New(plentyCount/60, plentyPeriod/60)}
	for _, one := range []struct {
		name   string
		limits []stint.Limit
		keys   []string
		denies bool
	}{
		{"passes", []stint.Limit{plenty()}, order, false},
		{"denied", []stint.Limit{stint.PerHour(1)}, order, true},
		{"three-limits", three, order, false},
		{"one-hot-key", []stint.Limit{plenty()}, hot, false},
	} {
		b.Run("case="+one.name, func(b *testing.B) {
			all := allows(newStint(b, n, one.limits...))
			fill(all, 0, n)
			decide(b, one.keys, all, one.denies)
		})
	}
}

// BenchmarkSingle is a limiter without keys.
func BenchmarkSingle(b *testing.B) {
	single := must(memstore.NewSingle(plenty(), memstore.SingleOptions{}))(b)
	coarse := must(memstore.NewSingle(plenty(), memstore.SingleOptions{CoarseClock: true}))(b)
	defer coarse.Close()
	xtime := rate.NewLimiter(rate.Limit(1e9), int(plentyCount))
	var word atomic.Uint64
	for _, one := range []struct {
		name  string
		allow func() bool
	}{
		{"stint", single.Allow}, {"stint-coarse-clock", coarse.Allow}, {"x-time-rate", xtime.Allow},
		{"clock-and-swap", func() bool { // what none can go below
			now := uint64(time.Since(begin))
			for {
				if old := word.Load(); word.CompareAndSwap(old, max(old, now)+1) {
					return true
				}
			}
		}},
	} {
		b.Run("by="+one.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !one.allow() {
						b.Error("denied")
						return
					}
				}
			})
		})
	}
}

// filled are limits that are filled with keys. No key of them becomes as if never seen
// while it is counted.
var filled = []string{
	"100 per 1000h", "7 per 1000h", "100 per 1000h token_bucket_interval", "100 per 1000h leaky_queue", "100 per 1000h fixed_window",
	"100 per 1000h sliding_counter", "100 per 1000h sliding_buckets parts 10", "100 per 1000h sliding_buckets parts 60",
}

// BenchmarkBytes is the most heap bytes a key from one million keys to two, which takes
// every table through a whole round of growth, and how long collecting garbage takes with
// two million.
func BenchmarkBytes(b *testing.B) {
	for _, text := range filled {
		b.Run("of="+text, func(b *testing.B) {
			perKey(b, func() batch { return allows(newStint(b, 2_000_000, must(stint.Parse(text))(b))) })
		})
	}
	for _, r := range rivals[3:] {
		b.Run("of="+r.name, func(b *testing.B) { perKey(b, func() batch { return r.open(b, 2_000_000) }) })
	}
	for _, n := range []int{1, 5, 1000} {
		b.Run(fmt.Sprintf("of=sliding_log/entries=%d", n), func(b *testing.B) { entries(b, n) })
	}
}

func perKey(b *testing.B, open func() batch) {
	for b.Loop() {
		before, worst, last := heap(), 0.0, 0
		all := open()
		for n := 1_000_000; n <= 2_000_000; n += 100_000 {
			fill(all, last, n)
			last, worst = n, max(worst, (heap()-before)/float64(n))
		}
		wall, processor := collect()
		b.ReportMetric(worst, "B/key")
		b.ReportMetric(wall, "gc-ms")
		b.ReportMetric(processor, "gc-cpu-ms")
		runtime.KeepAlive(all)
	}
	b.ReportMetric(0, "ns/op") // how long it took to fill says nothing
}

// entries is the most bytes an entry of logs that grow from n entries to twice as many; of
// 1, they do not grow.
func entries(b *testing.B, n int) {
	for b.Loop() {
		keys, before, worst := min(100_000, 1_000_000/n), heap(), 0.0
		all := allows(newStint(b, keys, must(stint.Parse("1_000_000 per 1000h sliding_log"))(b)))
		for i := 1; i <= n || n > 1 && i <= 2*n; i++ {
			fill(all, 0, keys)
			if i >= n && (i-n)%max(1, n/10) == 0 {
				worst = max(worst, (heap()-before)/float64(i*keys))
			}
		}
		b.ReportMetric(worst, "B/entry")
		runtime.KeepAlive(all)
	}
	b.ReportMetric(0, "ns/op")
}

// heap returns the bytes that are live.
func heap() float64 {
	var m runtime.MemStats
	for last := uint64(0); ; last = m.HeapAlloc {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if last > 0 && m.HeapAlloc+1<<14 > last {
			return float64(m.HeapAlloc)
		}
		time.Sleep(5 * time.Millisecond) // for finalizers, which let go of more
	}
}

// collect returns the mean of ten collections in ms: by the watch, and of processors.
func collect() (wall, processor float64) {
	const n = 10
	used := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	sum := func() float64 {
		metrics.Read(used)
		return used[0].Value.Float64()
	}
	before, begun := sum(), time.Now()
	for range n {
		runtime.GC()
	}
	return time.Since(begun).Seconds() * 1e3 / n, (sum() - before) * 1e3 / n
}

// BenchmarkFlood is the decision on a new key, of ten million in a store with room for one
// million, where some have used up their limit: none of them passes.
func BenchmarkFlood(b *testing.B) {
	const bound, flood, established = 1 << 20, 10_000_000, 10_000
	ctx := context.Background()
	for b.Loop() {
		before := heap()
		store := memstore.New(memstore.Options{MaxKeys: bound})
		l := must(stint.NewLimiter(store, "flood", stint.PerHour(6)))(b)
		exhausted := make([]string, established)
		for i := range exhausted {
			exhausted[i] = fmt.Sprintf("exhausted:%d", i)
			if !must(l.AllowN(ctx, exhausted[i], 6))(b) {
				b.Fatal("not let in")
			}
		}
		all, spent, leaked := allows(l), time.Duration(0), 0
		for i := 0; i < flood; i += flood / 1000 {
			begun := time.Now()
			fill(all, i, i+flood/1000)
			spent += time.Since(begun)
			leaked += all(exhausted[i%established : i%established+10])
		}
		b.ReportMetric(float64(spent)/flood, "ns/new-key")
		b.ReportMetric((heap()-before)/1e6, "MB")
		if leaked > 0 {
			b.Errorf("%d exhausted keys passed", leaked)
		}
		runtime.KeepAlive(store)
	}
	b.ReportMetric(0, "ns/op")
}
