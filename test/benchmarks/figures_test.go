package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test's program be the small servers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childWord {
		if err := beChild(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestShort runs everything on small numbers. It asserts no timing, only that
// every chapter comes to its end, that contenders decide what they should, and
// that what does not depend on the clock is kept.
func TestShort(t *testing.T) {
	var out bytes.Buffer
	f := figures{out: &out, short: true}
	if err := f.run(""); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, c := range f.checks {
		if strings.HasPrefix(c.what, "flood: ") && !strings.Contains(c.what, "bytes") && !c.met() {
			t.Errorf("%s: %v, promised %v", c.what, c.measured, c.promised)
		}
	}
	for _, c := range chapters {
		if !strings.Contains(out.String(), "\n## "+c.title+"\n") {
			t.Errorf("chapter %q left no trace", c.title)
		}
	}
}

func TestUnknownChapter(t *testing.T) {
	f := figures{out: &bytes.Buffer{}, short: true}
	if err := f.run("singel"); err == nil || !strings.Contains(err.Error(), "single, keyed") {
		t.Errorf("error %v: want one that lists the chapters", err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}

// Benchmarks for work on one path through the engine, and for profiles of it:
// go test -bench Keyed -cpuprofile cpu.prof.

func BenchmarkKeyed(b *testing.B) {
	for _, n := range []struct {
		name string
		keys int
	}{{"1K", 1000}, {"1M", 1_000_000}} {
		l, _, err := newStint(n.keys, plenty())
		if err != nil {
			b.Fatal(err)
		}
		fill(allows(l), 0, n.keys)
		order := shuffled(n.keys)
		b.Run("Allow/"+n.name, func(b *testing.B) { bench(b, sweep(order, allows(l))) })
		b.Run("Take/"+n.name, func(b *testing.B) { bench(b, sweep(order, takes(l))) })
	}
}

func BenchmarkWays(b *testing.B) {
	contenders, err := waysOf(1000)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) { bench(b, c.run) })
	}
}

func bench(b *testing.B, run func(worker, n int) int) {
	b.ReportAllocs()
	run(0, chunk)
	b.ResetTimer()
	run(0, b.N)
}
