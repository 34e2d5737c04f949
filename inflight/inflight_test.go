package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/inflight"
)

// A model is what is in flight by name and key, written from the definition.
type model map[[2]string]int64

func (m model) fits(holds []inflight.Hold) bool {
	for _, h := range holds {
		if m[[2]string{h.Name, h.Key}]+h.Units > h.Limit {
			return false
		}
	}
	return true
}

func (m model) add(holds []inflight.Hold, sign int64) {
	for _, h := range holds {
		k := [2]string{h.Name, h.Key}
		if m[k] += sign * h.Units; m[k] == 0 {
			delete(m, k)
		}
	}
}

// TestModel has random requests of one to four keys begin and end, and compares every
// answer with the model's.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		m, memory := make(model), inflight.NewMemory()
		var open [][]inflight.Hold
		for range 300 {
			if len(open) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(open))
				memory.Release(open[i])
				m.add(open[i], -1)
				open = slices.Delete(open, i, i+1)
				continue
			}
			var holds []inflight.Hold
			for n := range 1 + random.IntN(4) {
				holds = append(holds, inflight.Hold{
					Name: fmt.Sprint("limit ", n), Key: fmt.Sprint("key ", random.IntN(3)),
					Limit: 1 + random.Int64N(6), Units: 1 + random.Int64N(3),
				})
			}
			ask := memory.Acquire
			look := random.IntN(5) == 0
			if look {
				ask = memory.Look
			}
			before, want := maps.Clone(m), m.fits(holds)
			ok, err := ask(t.Context(), holds)
			if err != nil || ok != want {
				t.Fatalf("seed %d: %+v with %v: %v, %v; want %v", seed, holds, m, ok, err, want)
			}
			if ok && !look {
				m.add(holds, 1)
				open = append(open, holds)
			}
			for _, h := range holds {
				k := [2]string{h.Name, h.Key}
				if h.Running != m[k] || h.Denied != (before[k]+h.Units > h.Limit) {
					t.Fatalf("seed %d: %+v answers, with %v before", seed, h, before)
				}
			}
		}
	}
}

// TestJudge has an outside judge count what runs at one moment, for several keys that all
// share one more limit.
func TestJudge(t *testing.T) {
	const keys, each, all = 4, 3, 8
	room := inflight.NewRoom(inflight.NewMemory(), 0)
	var running [keys]atomic.Int64
	var total, passed atomic.Int64
	var workers sync.WaitGroup
	for w := range 32 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range 500 {
				k := random.IntN(keys)
				holds := []inflight.Hold{
					{Name: "each", Key: fmt.Sprint(k), Limit: each, Units: 1, Wait: time.Minute},
					{Name: "all", Limit: all, Units: 1, Wait: time.Duration(random.IntN(2)) * time.Minute},
				}
				ok, err := room.Acquire(t.Context(), holds, 0)
				if err != nil {
					t.Error(err)
				}
				if !ok {
					continue
				}
				passed.Add(1)
				if n, m := running[k].Add(1), total.Add(1); n > each || m > all {
					t.Errorf("%d of key %d and %d of all in flight", n, k, m)
				}
				runtime.Gosched()
				running[k].Add(-1)
				total.Add(-1)
				room.Release(holds)
			}
		})
	}
	workers.Wait()
	ok, _ := room.Look(t.Context(), []inflight.Hold{{Name: "all", Limit: all, Units: all}})
	if !ok || passed.Load() == 0 {
		t.Errorf("%d passed, and at the end there is room for all: %v", passed.Load(), ok)
	}
}

func one(key string, limit int64, wait time.Duration) []inflight.Hold {
	return []inflight.Hold{{Name: "n", Key: key, Limit: limit, Units: 1, Wait: wait}}
}

// TestWaitInOrder lets requests that wait begin in the order in which they came, and no
// newcomer before them.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := inflight.NewRoom(inflight.NewMemory(), 0)
		if ok, _ := room.Acquire(t.Context(), one("k", 1, 0), 0); !ok {
			t.Fatal("denied with nothing in flight")
		}
		var began []int
		var mu sync.Mutex
		for i := range 5 {
			go func() {
				holds := one("k", 1, time.Minute)
				ok, err := room.Acquire(t.Context(), holds, 0)
				if !ok || err != nil {
					t.Errorf("request %d: %v, %v", i, ok, err)
				}
				mu.Lock()
				began = append(began, i)
				mu.Unlock()
				time.Sleep(time.Second)
				room.Release(holds)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		room.Release(one("k", 1, 0))
		if ok, _ := room.Acquire(t.Context(), one("k", 1, 0), 0); ok {
			t.Error("a newcomer passed those who wait")
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(began, []int{0, 1, 2, 3, 4}) {
			t.Errorf("began in the order %v", began)
		}
		if ok, _ := room.Acquire(t.Context(), one("k", 1, 0), 0); !ok {
			t.Error("denied although all have ended")
		}
	})
}

// TestWaitEnds ends waits: by the time of the limit, by that of the caller, by a context,
// and at once for what can never pass. Those behind are not kept.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := inflight.NewRoom(inflight.NewMemory(), 0)
		_, _ = room.Acquire(t.Context(), one("k", 1, 0), 0)
		for _, c := range []struct {
			wait, most, takes time.Duration
			units             int64
		}{
			{0, 0, 0, 1}, {time.Second, 0, time.Second, 1}, {time.Minute, time.Second, time.Second, 1}, {time.Minute, 0, 0, 2},
		} {
			began, holds := time.Now(), one("k", 1, c.wait)
			holds[0].Units = c.units
			ok, err := room.Acquire(t.Context(), holds, c.most)
			if took := time.Since(began); ok || err != nil || took != c.takes || !holds[0].Denied {
				t.Errorf("%+v: %v, %v after %v: %+v", c, ok, err, took, holds[0])
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := room.Acquire(ctx, one("k", 1, time.Minute), 0)
			first <- err
		}()
		synctest.Wait()
		second := make(chan bool, 1)
		go func() {
			ok, _ := room.Acquire(t.Context(), one("k", 1, time.Minute), 0)
			second <- ok
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that gave up: %v", err)
		}
		room.Release(one("k", 1, 0))
		if !<-second {
			t.Error("the one behind did not pass")
		}
	})
}

// TestWaitInTurn has a request wait for one key and then for another.
func TestWaitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := inflight.NewRoom(inflight.NewMemory(), 0)
		a := []inflight.Hold{{Name: "a", Limit: 1, Units: 1}}
		b := []inflight.Hold{{Name: "b", Limit: 1, Units: 1}}
		_, _ = room.Acquire(t.Context(), a, 0)
		_, _ = room.Acquire(t.Context(), b, 0)
		done := make(chan bool, 1)
		go func() {
			both := []inflight.Hold{{Name: "a", Limit: 1, Units: 1, Wait: time.Minute}, {Name: "b", Limit: 1, Units: 1, Wait: time.Minute}}
			ok, _ := room.Acquire(t.Context(), both, 0)
			done <- ok
		}()
		synctest.Wait()
		room.Release(a)
		synctest.Wait()
		if ok, _ := room.Look(t.Context(), a); !ok || len(done) > 0 {
			t.Error("it holds a, or has passed, while it waits for b")
		}
		room.Release(b)
		if !<-done {
			t.Error("denied")
		}
	})
}

// TestLease gives back what has a lease when its time ends or it is released, whichever is
// first, and once; whoever waits gets it.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := inflight.NewRoom(inflight.NewMemory(), 0)
		leased := func(name string) []inflight.Hold {
			holds := one("k", 2, 0)
			holds[0].Lease, holds[0].TTL = name, time.Minute
			return holds
		}
		held := func() (units int64) {
			for _, n := range room.Held {
				units += n
			}
			return units
		}
		a, b := leased("a"), leased("b")
		for _, holds := range [][]inflight.Hold{a, b} {
			if ok, err := room.Acquire(t.Context(), holds, 0); !ok || err != nil {
				t.Fatalf("%+v: %v, %v", holds, ok, err)
			}
		}
		for range 3 {
			room.Release(a)
			room.Release(leased("unknown"))
		}
		if held() != 1 {
			t.Fatalf("%d in flight", held())
		}
		room.Add(leased("c"))
		began := time.Now()
		if ok, err := room.Acquire(t.Context(), one("k", 1, time.Hour), 0); !ok || err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v, %v after %v", ok, err, time.Since(began))
		}
		room.Release(b)
		if held() != 1 {
			t.Errorf("%d in flight at the end", held())
		}
	})
}

// TestLeasesBounded refuses a lease beyond the most, and nothing else, until one ends.
func TestLeasesBounded(t *testing.T) {
	room := inflight.NewRoom(inflight.NewMemory(), 0)
	room.SetMostLeases(2)
	leased := func(key string) []inflight.Hold {
		holds := one(key, 1, 0)
		holds[0].Lease, holds[0].TTL = key, time.Hour
		return holds
	}
	for i, want := range []error{nil, nil, inflight.ErrFull, inflight.ErrFull} {
		if ok, err := room.Acquire(t.Context(), leased(fmt.Sprint(i)), 0); ok != (want == nil) || !errors.Is(err, want) {
			t.Errorf("lease %d: %v, %v", i, ok, err)
		}
	}
	if ok, err := room.Acquire(t.Context(), one("2", 1, 0), 0); !ok || err != nil {
		t.Errorf("without a lease: %v, %v", ok, err)
	}
	room.Release(leased("0"))
	if ok, err := room.Acquire(t.Context(), leased("3"), 0); !ok || err != nil {
		t.Errorf("once one is given back: %v, %v", ok, err)
	}
}

// TestAskAgain asks anew where others give back, too.
func TestAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inflight.NewMemory()
		room := inflight.NewRoom(memory, 100*time.Millisecond)
		memory.Add(one("k", 1, 0))
		time.AfterFunc(time.Second, func() { memory.Release(one("k", 1, 0)) })
		began := time.Now()
		ok, err := room.Acquire(t.Context(), one("k", 1, time.Minute), 0)
		if took := time.Since(began); !ok || err != nil || took > 1100*time.Millisecond {
			t.Errorf("%v, %v after %v", ok, err, took)
		}
	})
}

// TestMemory bounds what a busy key takes, and has all of it given back.
func TestMemory(t *testing.T) {
	const keys = 1 << 17
	holds := make([]inflight.Hold, keys)
	for i := range holds {
		holds[i] = inflight.Hold{Name: "n", Key: fmt.Sprint(i), Limit: 1, Units: 1}
	}
	memory, before := inflight.NewMemory(), heap()
	for i := range holds {
		if ok, _ := memory.Acquire(t.Context(), holds[i:i+1]); !ok {
			t.Fatal("denied")
		}
	}
	each := float64(heap()-before) / keys
	t.Logf("%.1f bytes a key", each)
	if each > 40 {
		t.Errorf("%.1f bytes a key: want at most 40", each)
	}
	for i := range holds {
		memory.Release(holds[i : i+1])
	}
	if left := heap() - before; left > 1<<17 {
		t.Errorf("%d bytes are left with nothing in flight", left)
	}
	runtime.KeepAlive(holds)
	runtime.KeepAlive(memory)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkAcquire(b *testing.B) {
	room := inflight.NewRoom(inflight.NewMemory(), 0)
	holds := one("a key", 1, 0)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = room.Acquire(context.Background(), holds, 0)
		room.Release(holds)
	}
}
