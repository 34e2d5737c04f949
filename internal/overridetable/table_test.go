package overridetable_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stint-dev/stint/internal/overridetable"
)

// TestAgainstMap draws changes and holds the table to a map.
func TestAgainstMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table, want := overridetable.New(), make(map[[2]string]uint32)
		for range 20_000 {
			at := [2]string{fmt.Sprint("rule", rng.IntN(3)), strconv.Itoa(rng.IntN(3000))}
			n := uint32(rng.IntN(4))
			if was := table.Set(at[0], at[1], n); was != want[at] {
				t.Fatalf("seed %d: set %q: was %d, want %d", seed, at, was, want[at])
			}
			if want[at] = n; n == overridetable.None {
				delete(want, at)
			}
		}
		if table.Len() != len(want) {
			t.Fatalf("seed %d: %d keys, want %d", seed, table.Len(), len(want))
		}
		for r := range 3 {
			for k := range 3000 {
				at := [2]string{fmt.Sprint("rule", r), strconv.Itoa(k)}
				if n := table.Get(at[0], at[1]); n != want[at] {
					t.Fatalf("seed %d: %q: %d, want %d", seed, at, n, want[at])
				}
			}
		}
	}
}

// TestRenumber takes every third number away and moves the others.
func TestRenumber(t *testing.T) {
	old := overridetable.New()
	for i := range 5000 {
		old.Set("api", strconv.Itoa(i), uint32(i+1))
	}
	sum := uint64(0)
	old.Numbers(func(n uint32) { sum += uint64(n) })
	if sum != 5000*5001/2 {
		t.Errorf("the numbers sum up to %d", sum)
	}
	next := old.Renumber(func(n uint32) uint32 {
		if n%3 == 0 {
			return overridetable.None
		}
		return n + 7
	})
	for i := range 5000 {
		want := uint32(i + 8)
		if (i+1)%3 == 0 {
			want = overridetable.None
		}
		if n := next.Get("api", strconv.Itoa(i)); n != want {
			t.Fatalf("key %d: %d, want %d", i, n, want)
		}
	}
}

// TestChurn sets and removes other keys all the time: the table stays small.
func TestChurn(t *testing.T) {
	table := overridetable.New()
	for i := range 200_000 {
		table.Set("api", strconv.Itoa(i), 1)
		table.Set("api", strconv.Itoa(i-100), overridetable.None)
	}
	if table.Len() != 100 || table.Bytes() > 1<<20 {
		t.Errorf("%d keys in %d bytes", table.Len(), table.Bytes())
	}
}

// TestReaders looks keys up while others change: a key that keeps its number is
// always found, and no key finds another's.
func TestReaders(t *testing.T) {
	const steady, changing = 2000, 20_000
	table := overridetable.New()
	for i := range steady {
		table.Set("steady", strconv.Itoa(i), uint32(i+1))
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 2))
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := rng.IntN(steady)
				if n := table.Get("steady", strconv.Itoa(i)); n != uint32(i+1) {
					t.Errorf("key %d: %d", i, n)
					return
				}
				k := rng.IntN(changing)
				if n := table.Get("changing", strconv.Itoa(k)); n != 0 && n != uint32(k+1) {
					t.Errorf("changing key %d: %d", k, n)
					return
				}
			}
		})
	}
	for w := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for range 100_000 {
				k := rng.IntN(changing)
				table.Set("changing", strconv.Itoa(k), uint32(k+1)*uint32(rng.IntN(2)))
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}
