// Command redis measures stint's limits in a Redis beside other libraries that
// keep theirs there, and beside what none can go below: a GET, and the least
// script that keeps a key (TIME, GET, SET with PX), on the same client and the
// same server; and how long calls take while a server is stopped. It starts
// redis-servers of its own on free loopback ports. It prints Markdown tables,
// and for every figure that the project promises the promise, the measured
// value and whether it was kept.
//
//	go run ./test/benchmarks/redis          # from the root of the repository
//	go run ./test/benchmarks/redis -quick   # a smoke test: the numbers mean nothing
//	go run ./test/benchmarks/redis -stall 5m
//	go run ./test/benchmarks/redis -only cluster
//
// What is compared is timed in turns (A B C A B C …), and a ratio is the median
// of the ratios within each turn. Client and server share the machine: run it
// on one that does nothing else.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/machine"
)

func main() {
	f := figures{out: os.Stdout}
	flag.IntVar(&f.rounds, "rounds", 9, "how often each contender is timed; figures are medians")
	flag.DurationVar(&f.slice, "time", 300*time.Millisecond, "how long each contender runs in a round")
	flag.DurationVar(&f.stalled, "stall", 10*time.Second, "how long the server is stopped in the chapter on a stall")
	flag.BoolVar(&f.short, "quick", false, "run everything once on small numbers, as a smoke test")
	flag.StringVar(&f.only, "only", "", "run the chapters whose titles hold this, in any case")
	flag.Parse()
	if err := f.run(); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

// figures is one run.
type figures struct {
	out     io.Writer
	rounds  int
	slice   time.Duration
	stalled time.Duration // how long a stall lasts
	short   bool
	only    string // in the titles of the chapters that run
	checks  []check
}

// run prints all chapters, and the promises in one table.
func (f *figures) run() error {
	f.rounds = max(f.rounds, 1)
	if f.short {
		f.rounds, f.slice, f.stalled = 1, 5*time.Millisecond, 300*time.Millisecond
	}
	begun, some := time.Now(), false
	server, err := startServer()
	if err != nil {
		return err
	}
	defer server.stop()
	if err := f.preface(server); err != nil {
		return err
	}
	for _, c := range []struct {
		title string
		run   func(*redisServer) error
	}{
		{"Decisions", f.decisions},
		{"A cluster", f.cluster},
		{"Leases and denials", f.leases},
		{"A stall", f.stall},
		{"Bytes a key", f.bytes},
	} {
		if !strings.Contains(strings.ToLower(c.title), strings.ToLower(f.only)) {
			continue
		}
		some = true
		fmt.Fprintf(f.out, "\n## %s\n\n", c.title)
		if err := c.run(server); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
	}
	if !some {
		return fmt.Errorf("-only %q is in the title of no chapter", f.only)
	}
	fmt.Fprint(f.out, "\n## Promises\n\n")
	f.promises()
	fmt.Fprintf(f.out, "\nThe run took %v; load average at its end %s.\n", time.Since(begun).Round(time.Second), machine.Load())
	return nil
}

// preface says on what and how everything was measured.
func (f *figures) preface(s *redisServer) error {
	version, err := s.info("server", "redis_version")
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "%s, %d cores, %s/%s, %s, Redis %s; load average at the start %s.\n",
		machine.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), version, machine.Load())
	if f.short {
		fmt.Fprint(f.out, "\n**A quick run, to see that everything works: the numbers mean nothing.**\n")
	}
	fmt.Fprintf(f.out, "\nMedians of %d rounds. Contenders take turns, %v each in a round. All calls are admitted, over %d keys; "+
		"client and server on one machine, over loopback TCP. Processor time is the server's, user and system, as INFO has it, with %d callers.\n",
		f.rounds, f.slice, keys, callers)
	fmt.Fprintf(f.out, "\nBeside: %s.\n", strings.Join(machine.Versions("/redis_rate/", "/throttled/", "/limiter/v3", "/go-redis/v9", "/rueidis"), ", "))
	return nil
}
