package inflight_test

import (
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
					{Name: "each", Key: fmt.Sprint(k), Limit: each, Units: 1},
					{Name: "all", Limit: all, Units: 1},
				}
				ok, err := room.Acquire(t.Context(), holds)
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

func one(key string, limit int64) []inflight.Hold {
	return []inflight.Hold{{Name: "n", Key: key, Limit: limit, Units: 1}}
}

// TestWatch tells those that watch a key that units of it were given back, and nobody else.
func TestWatch(t *testing.T) {
	room := inflight.NewRoom(inflight.NewMemory(), 100*time.Millisecond)
	var told [3]int
	var stops []func()
	for i, key := range []string{"k", "k", "other"} {
		stop, again := room.Watch("n", key, func() { told[i]++ })
		if stops = append(stops, stop); again != 100*time.Millisecond {
			t.Errorf("again %v", again)
		}
	}
	for i, want := range [][3]int{{1, 1, 0}, {1, 2, 0}, {1, 2, 0}} {
		holds := one("k", 1)
		if ok, err := room.Acquire(t.Context(), holds); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if room.Release(holds); told != want {
			t.Errorf("after release %d: %v, want %v", i, told, want)
		}
		stops[i]()
		stops[i]()
	}
}

// TestLease gives back what has a lease when its time ends or it is released, whichever is
// first, and once.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := inflight.NewRoom(inflight.NewMemory(), 0)
		leased := func(name string) []inflight.Hold {
			holds := one("k", 2)
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
			if ok, err := room.Acquire(t.Context(), holds); !ok || err != nil {
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
		for _, later := range []time.Duration{time.Minute - 1, 1} {
			if ok, err := room.Acquire(t.Context(), one("k", 1)); ok || err != nil {
				t.Errorf("beside those that have a lease: %v, %v", ok, err)
			}
			time.Sleep(later)
			synctest.Wait()
		}
		if ok, err := room.Acquire(t.Context(), one("k", 1)); !ok || err != nil {
			t.Errorf("when these have ended: %v, %v", ok, err)
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
		holds := one(key, 1)
		holds[0].Lease, holds[0].TTL = key, time.Hour
		return holds
	}
	for i, want := range []error{nil, nil, inflight.ErrFull, inflight.ErrFull} {
		if ok, err := room.Acquire(t.Context(), leased(fmt.Sprint(i))); ok != (want == nil) || !errors.Is(err, want) {
			t.Errorf("lease %d: %v, %v", i, ok, err)
		}
	}
	if ok, err := room.Acquire(t.Context(), one("2", 1)); !ok || err != nil {
		t.Errorf("without a lease: %v, %v", ok, err)
	}
	room.Release(leased("0"))
	if ok, err := room.Acquire(t.Context(), leased("3")); !ok || err != nil {
		t.Errorf("once one is given back: %v, %v", ok, err)
	}
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
