package library

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// TestMain lets the test's program be the small servers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildWord {
		if err := BeChild(os.Args[2:]); err != nil {
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
	s, f := Suite(), report.Figures{Out: &out, Short: true}
	if err := s.Run(&f); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, c := range f.Checks {
		if strings.HasPrefix(c.What, "flood: ") && !strings.Contains(c.What, "bytes") && !c.Met() {
			t.Errorf("%s: %v, promised %v", c.What, c.Measured, c.Promised)
		}
	}
	for _, c := range s.Chapters {
		if !strings.Contains(out.String(), "\n## "+c.Title+"\n") {
			t.Errorf("chapter %q left no trace", c.Title)
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
