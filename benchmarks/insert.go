package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/stint-dev/stint"
)

// insert measures every single insert while five million keys come in: tables
// that grow at once show here, however cheap they are on average.
func (f *figures) insert() error {
	n := f.scaled(5_000_000)
	t := table{head: []string{"ns for one new key", "median", "p99", "p99.99", "longest, least of 3 fills", "of all fills"}}
	for _, row := range []struct {
		name string
		make func() (func(key string, i int), error)
	}{
		{"nothing: two reads of the clock", func() (func(string, int), error) { return func(string, int) {}, nil }},
		{"stint Allow", func() (func(string, int), error) {
			l, _, err := newStint(n, stint.PerHour(100))
			ctx := context.Background()
			return func(key string, _ int) {
				if _, err := l.Allow(ctx, key); err != nil {
					panic(err) // the store is open and the cost is right
				}
			}, err
		}},
		{"map[string]int64", func() (func(string, int), error) {
			m := make(map[string]int64)
			return func(key string, i int) { m[key] = int64(i) }, nil
		}},
		{"map[uint64]uint64", func() (func(string, int), error) {
			m := make(map[uint64]uint64)
			return func(_ string, i int) { m[uint64(i)*0x9e3779b97f4a7c15] = uint64(i) }, nil
		}},
	} {
		var longest []float64
		var took []uint32
		for range 3 {
			add, err := row.make()
			if err != nil {
				return err
			}
			took = inserts(add, n)
			longest = append(longest, float64(took[n-1]))
		}
		at := func(q float64) string { return number(float64(took[int(q*float64(n-1))])) }
		t.add(row.name, at(0.5), at(0.99), at(0.9999), number(slices.Min(longest)), number(slices.Max(longest)))
	}
	t.print(f)
	return nil
}

// inserts returns how long each of n new keys took, in ns, sorted. The
// collector is off.
func inserts(add func(key string, i int), n int) []uint32 {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	took := make([]uint32, n)
	clear(took) // pages that are touched for the first time take time too
	keys := make([]string, 0, chunk)
	var buf []byte
	for i := 0; i < n; {
		from := i
		for keys = keys[:0]; len(keys) < chunk && i < n; i++ {
			buf = appendKey(buf[:0], i)
			keys = append(keys, string(buf))
		}
		last := time.Since(begin)
		for j, key := range keys {
			add(key, from+j)
			now := time.Since(begin)
			took[from+j] = uint32(min(now-last, 1<<32-1))
			last = now
		}
	}
	slices.Sort(took)
	return took
}
