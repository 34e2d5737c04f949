// Package library measures stint beside other rate limiters for Go, beside a mutex and
// a map, and beside what no limiter can go below: one read of the clock, one hash of a
// key, one compare-and-swap; and its servers beside bare ones, each in a process of
// its own.
//
// What is compared is timed in turns (A B C A B C …), and a ratio is the median of the
// ratios within each turn, so that a machine that slows down for a while slows both
// sides.
package library

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/machine"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// figures is one run of the chapters.
type figures struct{ *report.Figures }

// Suite returns the chapters.
func Suite() *report.Suite {
	f := new(figures)
	return &report.Suite{
		Rounds: 7, Slice: 40 * time.Millisecond, Quick: time.Millisecond,
		Open: func(of *report.Figures) error {
			f.Figures = of
			f.preface()
			return nil
		},
		Chapters: []report.Chapter{
			{Name: "single", Title: "One limiter without keys, and the floors", Run: f.single},
			{Name: "keyed", Title: "Keys", Run: f.keyed},
			{Name: "ways", Title: "Denied, whole answers, layers, one hot key", Run: f.ways},
			{Name: "memory", Title: "Memory and the garbage collector", Run: f.memory},
			{Name: "flood", Title: "A flood of new keys", Run: f.flood},
			{Name: "http", Title: "In front of HTTP", Run: f.http},
		},
	}
}

// preface says on what and how everything was measured.
func (f *figures) preface() {
	f.Preface("")
	fmt.Fprintf(f.Out, "\nMedians of %d rounds. Contenders take turns, %v each in a round; "+
		"the garbage collector is off while decisions are timed, which favours contenders that allocate. "+
		"Time in which a thread was ready to run but another process had its processor is left out (Linux only). "+
		"On two cores, ns is the time per decision of both cores together: 1 s divided by decisions per second; "+
		"a ? means that other processes used the cores, so the figure is not valid. "+
		"Servers are separate processes. This one sends them requests over %d loopback connections, %d times a round for %v: "+
		"first as fast as possible, for their processor time as the system counts it; then all at the same rate, %.0f %% of the slowest server's maximum, for p50 and p99.\n",
		f.Rounds, f.Slice, connections, turns, turnSlices*f.Slice, 100*ease)
	fmt.Fprintf(f.Out, "\nBeside: %s.\n", strings.Join(machine.Versions("/x/time", "/go-limiter", "/throttled/", "/limiter/v3", "/httprate", "/tollbooth/"), ", "))
}
