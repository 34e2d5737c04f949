package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// goroutines is how many goroutines at once try the laws about concurrency, on a
// clock that stands still: then exactly the capacity passes, in any interleaving.
const goroutines = 8

// concurrently runs do in many goroutines that begin at one moment.
func concurrently(do func(g int, rnd *rand.Rand)) {
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(g), 7))
			<-begin
			do(g, rnd)
		}()
	}
	close(begin)
	wg.Wait()
}

func concurrentTakes(e *env, l limit) {
	capacity := l.Capacity()
	for name, try := range map[string]func(key string, rnd *rand.Rand) (taken int64, err error){
		"Allow": func(key string, _ *rand.Rand) (int64, error) {
			ok, err := l.bound.Allow(e.ctx, key, 1)
			return map[bool]int64{true: 1}[ok], err
		},
		"take": func(key string, _ *rand.Rand) (int64, error) {
			d, err := l.bound.Decide(e.ctx, meter.OpTake, key, 1)
			return d.Taken, err
		},
		"take up to": func(key string, rnd *rand.Rand) (int64, error) {
			d, err := l.bound.Decide(e.ctx, meter.OpTakeUpTo, key, 1+rnd.Int64N(3))
			return d.Taken, err
		},
		"layers": func(key string, _ *rand.Rand) (int64, error) {
			d, err := e.store.Decide(e.ctx, meter.OpTake, one(l, key), 1)
			return d.Taken, err
		},
	} {
		for range 4 {
			key := e.key(name)
			if total := e.race(key, capacity, try); total != capacity {
				e.Errorf("%s: %d units passed at one instant, want %d", name, total, capacity)
			}
		}
	}
	key := e.key("mixed")
	total := e.race(key, capacity, func(key string, rnd *rand.Rand) (int64, error) {
		d, err := l.bound.Decide(e.ctx, meter.OpTake, key, rnd.Int64N(4))
		return d.Taken, err
	})
	if d := e.peek(l, key, 0); total > capacity || !l.CountDenied() && d.Remaining != capacity-total {
		e.Errorf("mixed costs: %d units passed of %d, and there remain %+v", total, capacity, d)
	}
}

// race tries on one key from many goroutines, more often than can pass, and
// returns how many units were taken.
func (e *env) race(key string, capacity int64, try func(string, *rand.Rand) (int64, error)) int64 {
	var total atomic.Int64
	concurrently(func(_ int, rnd *rand.Rand) {
		for range capacity/goroutines + 3 {
			taken, err := try(key, rnd)
			if err != nil {
				e.Error(err)
			}
			total.Add(taken)
		}
	})
	for { // what the goroutines were too few to take
		taken, err := try(key, e.rnd)
		if err != nil {
			e.Fatal(err)
		}
		if total.Add(taken); taken == 0 {
			return total.Load()
		}
	}
}

// What is reserved, settled, cancelled and settled twice at one instant leaves
// the true costs.
func concurrentReservations(e *env, l limit) {
	if l.CountDenied() {
		return // where what is denied counts, the order matters
	}
	key, capacity := e.key("a"), l.Capacity()
	var total atomic.Int64
	concurrently(func(_ int, rnd *rand.Rand) {
		for range 30 {
			cost := 1 + rnd.Int64N(min(3, capacity))
			d, id, err := e.store.Reserve(e.ctx, one(l, key), cost, time.Minute)
			if err != nil {
				e.Error(err)
				return
			}
			if !d.Allowed {
				continue
			}
			actual := rnd.Int64N(cost+1) * rnd.Int64N(2)
			var twice sync.WaitGroup
			for range 2 {
				twice.Add(1)
				go func() {
					defer twice.Done()
					if _, err := e.store.Settle(e.ctx, id, actual); err != nil {
						e.Error(err)
					}
				}()
			}
			twice.Wait()
			total.Add(actual)
		}
	})
	// A queue keeps a place behind which other requests have got delays.
	want := capacity - total.Load()
	if d := e.peek(l, key, 0); d.Remaining > want || d.Remaining < want && !l.Algorithm().Queues() {
		e.Errorf("%d units were settled, and there remain %+v", total.Load(), d)
	}
}

// Requests with the same layers in any order neither wait for each other
// forever nor charge a layer without the others.
func concurrentLayers(e *env) {
	for trial := range 10 {
		address, user := e.limit("40/1h fixed_window"), e.limit("15/1h")
		burst := e.limit("30/1h sliding_log")
		ip := fmt.Sprint("ip ", trial)
		var taken [3]atomic.Int64
		concurrently(func(g int, rnd *rand.Rand) {
			name := fmt.Sprint("user ", trial, g%len(taken))
			for range 20 {
				layers := []stint.Layer{{Bound: address.bound, Key: ip}, {Bound: user.bound, Key: name}, {Bound: burst.bound, Key: name, Weight: 2}}
				rnd.Shuffle(len(layers), func(i, j int) { layers[i], layers[j] = layers[j], layers[i] })
				d, err := e.store.Decide(e.ctx, meter.OpTake, layers, 1+rnd.Int64N(2))
				if err != nil {
					e.Error(err)
				}
				taken[g%len(taken)].Add(d.Taken)
			}
		})
		total := int64(0)
		for i := range taken {
			n := taken[i].Load()
			total += n
			name := fmt.Sprint("user ", trial, i)
			if a, b := e.peek(user, name, 0), e.peek(burst, name, 0); a.Remaining != 15-n || b.Remaining != 30-2*n {
				e.Errorf("%d units passed for %s, and there remain %+v and %+v", n, name, a, b)
			}
		}
		if d := e.peek(address, ip, 0); d.Remaining != 40-total {
			e.Errorf("%d units passed for all, and there remain %+v", total, d)
		}
	}
}

// Two limits of one identity that decide at once never admit more than the larger.
func concurrentChanges(e *env) {
	for _, pair := range [][2]string{
		{"100/1h fixed_window", "200/1h fixed_window"},
		{"100/1h sliding_log", "200/1h sliding_log"},
		{"100/1h sliding_counter", "200/1h sliding_counter"},
		{"100/1h sliding_buckets parts 5", "200/1h sliding_buckets parts 5"},
		{"100/1h", "200/1h"},
		{"100/1h burst 200 token_bucket_interval", "200/1h burst 7 token_bucket_interval"},
	} {
		name := "to and fro " + pair[0]
		both := [2]limit{e.sharing(name, pair[0]), e.sharing(name, pair[1])}
		var total atomic.Int64
		concurrently(func(g int, _ *rand.Rand) {
			for i := range 60 {
				d, err := both[(g+i/4)%2].bound.Decide(e.ctx, meter.OpTake, "key", 1)
				if err != nil {
					e.Error(err)
				}
				total.Add(d.Taken)
			}
		})
		if total.Load() > 200 {
			e.Errorf("%v: %d passed", pair, total.Load())
		}
	}
}

// concurrentBlocks has keys blocked for different times while requests of theirs are denied, and
// begin bans: none is denied for less than the longest of them.
func concurrentBlocks(e *env) {
	s, ok := e.store.(stint.BlockStore)
	if !ok {
		return
	}
	l := e.limit("1/s ban 1s")
	for range e.part(200) {
		key, longest := e.key("blocked"), atomic.Int64{}
		concurrently(func(_ int, rnd *rand.Rand) {
			for range 3 {
				d := rnd.Int64N(int64(time.Hour)) / e.quantum * e.quantum
				if d > 0 {
					if err := s.Block(e.ctx, one(l, key), time.Duration(d)); err != nil {
						e.Error(err)
					}
				}
				for was := longest.Load(); d > was && !longest.CompareAndSwap(was, d); was = longest.Load() {
				}
				least := stint.Wait(longest.Load())
				if got, err := l.bound.Decide(e.ctx, meter.OpTake, key, 1); err != nil || got.RetryAfter < least {
					e.Errorf("blocked for %v: %+v, %v", least, got, err)
				}
			}
		})
		if got := e.take(l, key, 1); got.RetryAfter != stint.Wait(longest.Load()) {
			e.Errorf("blocked for %v in the end: %+v", time.Duration(longest.Load()), got)
		}
	}
}
