package library

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/stint-dev/stint"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// A heapRow is something that is filled with keys, and what is promised of it
// in bytes a key; 0 for nothing.
type heapRow struct {
	name     string
	promised float64
	make     func(keys int) (add func(from, to int), err error)
	five     bool // to five million keys too, else to two
}

// No key of these limits becomes as if never seen while it is counted.
func heapRows() []heapRow {
	rows := []heapRow{
		{"stint gcra, even period", 32, filledStint("100 per 1000h"), true},
		{"stint gcra, uneven period", 32, filledStint("7 per 1000h"), true},
		{"stint token_bucket_interval", 64, filledStint("100 per 1000h token_bucket_interval"), true},
		{"stint leaky_queue", 64, filledStint("100 per 1000h leaky_queue"), true},
		{"stint fixed_window", 64, filledStint("100 per 1000h fixed_window"), true},
		{"stint sliding_counter", 64, filledStint("100 per 1000h sliding_counter"), true},
		{"stint sliding_buckets, 10 parts", 4*11 + 48, filledStint("100 per 1000h sliding_buckets parts 10"), true},
		{"stint sliding_buckets, 60 parts", 4*61 + 48, filledStint("100 per 1000h sliding_buckets parts 60"), true},
		{"map[uint64]uint64, no strings", 0, filledMap, true},
	}
	for _, lib := range append(libraries[:len(libraries):len(libraries)], keyedLimiter{mutexMap, newMutexMap}) {
		rows = append(rows, heapRow{name: lib.name, make: func(int) (func(from, to int), error) {
			b, err := lib.make()
			return func(from, to int) { fill(b, from, to) }, err
		}})
	}
	return rows
}

func filledStint(text string) func(keys int) (func(from, to int), error) {
	return func(keys int) (func(from, to int), error) {
		limit, err := stint.Parse(text)
		if err != nil {
			return nil, err
		}
		l, _, err := newStint(keys, limit)
		return func(from, to int) { fill(allows(l), from, to) }, err
	}
}

func filledMap(int) (func(from, to int), error) {
	m := make(map[uint64]uint64)
	return func(from, to int) {
		for i := from; i < to; i++ {
			m[uint64(i)*0x9e3779b97f4a7c15] = uint64(i)
		}
	}, nil
}

// memory measures the bytes a key of all contenders, at sizes from one million keys to
// two, which takes every table through a whole round of growth, and at five
// million; and how long a collection takes with them live.
func (f *figures) memory() error {
	empty, processor := collect()
	fmt.Fprintf(f.Out, "\nHeap bytes per key after a garbage collection, with the text of the key where it is stored. "+
		"Worst: the largest value from %d to %d keys. GC: wall time / processor time of runtime.GC, medians; with an empty heap it is %s ms.\n",
		f.scaled(1_000_000), f.scaled(2_000_000), pair(empty, processor))
	rows := [][]string{{"", "least, B", "worst, B", "5 M, B", "GC at 2 M, ms", "GC at 5 M, ms"}}
	for _, row := range heapRows() {
		if err := f.heapRow(&rows, row, empty > busy); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	f.Table(rows)
	return f.logs()
}

// busy is how many ms a collection of nothing takes on a machine that is too
// busy for the time of others to mean much.
const busy = 1

func (f *figures) heapRow(rows *[][]string, row heapRow, doubtful bool) error {
	low, high, most := f.scaled(1_000_000), f.scaled(2_000_000), f.scaled(5_000_000)
	before := heap()
	add, err := row.make(most)
	if err != nil {
		return err
	}
	var sizes []float64 // bytes a key
	last, steps := 0, 10
	for i := range steps + 1 {
		n := low + (high-low)*i/steps
		add(last, n)
		sizes, last = append(sizes, (heap()-before)/float64(n)), n
	}
	cells := []string{row.name, report.Number(slices.Min(sizes)), report.Number(slices.Max(sizes)), "", pair(collect()), ""}
	if row.five {
		add(last, most)
		five := (heap() - before) / float64(most)
		took, processor := collect()
		cells[3], cells[5] = report.Number(five), pair(took, processor)
		sizes = append(sizes, five)
		if row.promised > 0 {
			f.AtMost(5, took, " ms", "garbage collection, 5 million keys, %s", row.name)
			f.Doubt(doubtful)
		}
	}
	runtime.KeepAlive(add)
	*rows = append(*rows, cells)
	if row.promised > 0 {
		f.AtMost(row.promised, slices.Max(sizes), " B", "bytes a key, worst of all sizes, %s", row.name)
	}
	return nil
}

// logs measures what a log takes for each of its entries, at lengths over a
// whole round of growth.
func (f *figures) logs() error {
	rows := [][]string{{"stint sliding_log", "least, B an entry", "worst, B an entry"}}
	for _, row := range []struct {
		keys, low, high, step int
		promised              float64
	}{
		{f.scaled(100_000), 1, 1, 1, 0},
		{f.scaled(100_000), 5, 10, 1, 0},
		{f.scaled(100_000), 20, 40, 1, 16},
		{1000, f.scaled(1000), f.scaled(2000), f.scaled(1000) / 10, 16},
	} {
		name := fmt.Sprintf("%d keys × %d to %d entries", row.keys, row.low, row.high)
		before := heap()
		add, err := filledStint("1_000_000 per 1000h sliding_log")(row.keys)
		if err != nil {
			return err
		}
		var sizes []float64
		for n := 1; n <= row.high; n++ {
			add(0, row.keys)
			if n >= row.low && (n-row.low)%row.step == 0 {
				sizes = append(sizes, (heap()-before)/float64(n*row.keys))
			}
		}
		runtime.KeepAlive(add)
		rows = append(rows, []string{name, report.Number(slices.Min(sizes)), report.Number(slices.Max(sizes))})
		if row.promised > 0 {
			f.AtMost(row.promised, slices.Max(sizes), " B", "bytes an entry, worst of all lengths, sliding_log, %s", name)
		}
	}
	f.Table(rows)
	return nil
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

// collect returns how long a whole collection takes, in ms: by the watch, and
// of processors, which does not count what else the machine does.
func collect() (wall, processor float64) {
	var walls, processors []float64
	for begun := time.Now(); len(walls) < 3 || len(walls) < 15 && time.Since(begun) < time.Second; {
		used, begun := processorTime(), time.Now()
		runtime.GC()
		walls = append(walls, time.Since(begun).Seconds()*1e3)
		processors = append(processors, (processorTime()-used).Seconds()*1e3)
	}
	return report.Median(walls), report.Median(processors)
}

// pair prints what collect returns.
func pair(wall, processor float64) string {
	return report.Number(wall) + " / " + report.Number(processor)
}
