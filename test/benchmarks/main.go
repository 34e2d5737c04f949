// Command benchmarks measures stint beside other rate limiters for Go, beside
// a mutex and a map, and beside what no limiter can go below: one read of the
// clock, one hash of a key, one compare-and-swap; and its servers beside bare
// ones, each in a process of its own. It prints Markdown tables,
// and for every figure that the project promises the promise, the measured
// value and whether it was kept.
//
//	go run ./test/benchmarks          # from the root of the repository
//	go run ./test/benchmarks -quick   # a smoke test: the numbers mean nothing
//	go run ./test/benchmarks -only keyed,memory -rounds 15
//
// What is compared is timed in turns (A B C A B C …), and a ratio is the
// median of the ratios within each turn, so that a machine that slows down for
// a while slows both sides. Run it on a machine that does nothing else: on two
// cores, whatever else runs is part of the figure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/machine"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childWord {
		if err := beChild(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks:", err)
			os.Exit(1)
		}
		return
	}
	f := figures{out: os.Stdout}
	flag.IntVar(&f.rounds, "rounds", 7, "how often each contender is timed; figures are medians")
	flag.DurationVar(&f.slice, "time", 40*time.Millisecond, "how long each contender runs in a round")
	flag.BoolVar(&f.short, "quick", false, "run everything once on small numbers, as a smoke test")
	only := flag.String("only", "", "comma-separated chapters to run: "+strings.Join(chapterNames(), ", "))
	flag.Parse()
	if err := f.run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// figures is one run of the chapters.
type figures struct {
	out    io.Writer
	rounds int
	slice  time.Duration
	short  bool
	checks []check
}

// A chapter is a group of figures that is measured together.
type chapter struct {
	name, title string
	run         func(*figures) error
}

var chapters = []chapter{
	{"single", "One limiter without keys, and the floors", (*figures).single},
	{"keyed", "Keys", (*figures).keyed},
	{"ways", "Denied, whole answers, layers, one hot key", (*figures).ways},
	{"memory", "Memory and the garbage collector", (*figures).memory},
	{"flood", "A flood of new keys", (*figures).flood},
	{"http", "In front of HTTP", (*figures).http},
}

func chapterNames() []string {
	var names []string
	for _, c := range chapters {
		names = append(names, c.name)
	}
	return names
}

// run prints the chapters that are asked for, all unless only names some, and
// then all promises in one table.
func (f *figures) run(only string) error {
	f.rounds = max(f.rounds, 1)
	if f.short {
		f.rounds, f.slice = 1, time.Millisecond
	}
	wanted := chapterNames()
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(chapterNames(), name) {
			return fmt.Errorf("no chapter %q: there are %s", name, strings.Join(chapterNames(), ", "))
		}
	}
	begun := time.Now()
	f.preface()
	for _, c := range chapters {
		if !slices.Contains(wanted, c.name) {
			continue
		}
		fmt.Fprintf(f.out, "\n## %s\n", c.title)
		if err := c.run(f); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	fmt.Fprintf(f.out, "\n## Promises\n")
	f.promises(f.checks)
	fmt.Fprintf(f.out, "\nThe run took %v; load average at its end %s.\n", time.Since(begun).Round(time.Second), machine.Load())
	return nil
}

// preface says on what and how everything was measured.
func (f *figures) preface() {
	fmt.Fprintf(f.out, "# Figures\n\n%s, %d cores, %s/%s, %s; load average at the start %s.\n",
		machine.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), machine.Load())
	if f.short {
		fmt.Fprint(f.out, "\n**A quick run, to see that everything works: the numbers mean nothing.**\n")
	}
	fmt.Fprintf(f.out, "\nMedians of %d rounds. Contenders take turns, %v each in a round; "+
		"the garbage collector is off while decisions are timed, which favours contenders that allocate. "+
		"Time in which a thread was ready to run but another process had its processor is left out (Linux only). "+
		"On two cores, ns is the time per decision of both cores together: 1 s divided by decisions per second; "+
		"a ? means that other processes used the cores, so the figure is not valid. "+
		"Servers are separate processes. This one sends them requests over %d loopback connections, %d times a round for %v: "+
		"first as fast as possible, for their processor time as the system counts it; then all at the same rate, %.0f %% of the slowest server's maximum, for p50 and p99.\n",
		f.rounds, f.slice, connections, turns, turnSlices*f.slice, 100*ease)
	fmt.Fprintf(f.out, "\nBeside: %s.\n", strings.Join(machine.Versions("/x/time", "/go-limiter", "/throttled/", "/limiter/v3", "/httprate", "/tollbooth/"), ", "))
}
