// Package report is how all benchmarks run and print: chapters of Markdown tables,
// and for every figure that the project promises the promise, the measured value and
// whether it was kept.
package report

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/machine"
)

// A Suite is chapters that are measured beside the same others.
type Suite struct {
	// Rounds and Slice are the defaults of those of [Figures]; Quick is the Slice of a
	// quick run, of one round.
	Rounds       int
	Slice, Quick time.Duration
	// Open starts what all chapters need, and prints how everything is measured.
	Open func(*Figures) error
	// Close stops what Open has started, also if that failed. Optional.
	Close    func()
	Chapters []Chapter
}

// A Chapter is a group of figures that is measured together.
type Chapter struct {
	Name, Title string
	Run         func() error
}

// Figures is one run of a suite.
type Figures struct {
	Out    io.Writer
	Rounds int           // how often each contender is timed
	Slice  time.Duration // how long it runs in a round
	Short  bool          // a smoke test: the numbers mean nothing
	Only   string        // names of chapters; "" is all
	Checks []Check
}

// Flags reads flags into f.
func (s *Suite) Flags(f *Figures, set *flag.FlagSet) {
	set.IntVar(&f.Rounds, "rounds", s.Rounds, "how often each contender is timed; figures are medians")
	set.DurationVar(&f.Slice, "time", s.Slice, "how long each contender runs in a round")
	set.BoolVar(&f.Short, "quick", false, "run everything once on small numbers, as a smoke test")
	set.StringVar(&f.Only, "only", "", "comma-separated chapters to run: "+strings.Join(s.names(), ", "))
}

func (s *Suite) names() (names []string) {
	for _, c := range s.Chapters {
		names = append(names, c.Name)
	}
	return names
}

// Run prints the chapters that are asked for, and then all promises in one table.
func (s *Suite) Run(f *Figures) error {
	f.Rounds = max(f.Rounds, 1)
	if f.Short {
		f.Rounds, f.Slice = 1, s.Quick
	}
	wanted := s.names()
	if f.Only != "" {
		wanted = strings.Split(f.Only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(s.names(), name) {
			return fmt.Errorf("no chapter %q: there are %s", name, strings.Join(s.names(), ", "))
		}
	}
	begun := time.Now()
	if s.Close != nil {
		defer s.Close()
	}
	if err := s.Open(f); err != nil {
		return err
	}
	for _, c := range s.Chapters {
		if !slices.Contains(wanted, c.Name) {
			continue
		}
		fmt.Fprintf(f.Out, "\n## %s\n", c.Title)
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if len(f.Checks) > 0 {
		fmt.Fprintf(f.Out, "\n## Promises\n")
		f.promises()
	}
	fmt.Fprintf(f.Out, "\nThe run took %v; load average at its end %s.\n", time.Since(begun).Round(time.Second), machine.Load())
	return nil
}

// Preface says on what everything is measured: this machine, and what else there is.
func (f *Figures) Preface(beside string) {
	fmt.Fprintf(f.Out, "%s, %d cores, %s/%s, %s%s; load average at the start %s.\n",
		machine.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), beside, machine.Load())
	if f.Short {
		fmt.Fprint(f.Out, "\n**A quick run, to see that everything works: the numbers mean nothing.**\n")
	}
}

// A Check is a promise and what was measured of it.
type Check struct {
	What     string
	Promised float64
	Measured float64
	Doubtful bool // something else was busy, too

	atLeast bool // else at most
	unit    string
}

// Met allows nothing for noise: a figure that misses by a hair is a miss, and
// the reader sees the hair.
func (c Check) Met() bool {
	if c.atLeast {
		return c.Measured >= c.Promised
	}
	return c.Measured <= c.Promised
}

// AtMost notes a promise that something is at most so much.
func (f *Figures) AtMost(promised, measured float64, unit, what string, args ...any) {
	f.Checks = append(f.Checks, Check{What: fmt.Sprintf(what, args...), Promised: promised, Measured: measured, unit: unit})
}

// AtLeast notes a promise that something is at least so much.
func (f *Figures) AtLeast(promised, measured float64, unit, what string, args ...any) {
	f.AtMost(promised, measured, unit, what, args...)
	f.Checks[len(f.Checks)-1].atLeast = true
}

// Doubt marks the last promise as unknown where that is true.
func (f *Figures) Doubt(doubtful bool) {
	last := &f.Checks[len(f.Checks)-1]
	last.Doubtful = last.Doubtful || doubtful
}

// promises prints the checks.
func (f *Figures) promises() {
	rows := [][]string{{"promise", "target", "measured", "met"}}
	for _, c := range f.Checks {
		sign, met := "≤", "yes"
		if c.atLeast {
			sign = "≥"
		}
		if !c.Met() {
			met = "**no**"
		}
		if c.Doubtful {
			met = "unknown"
		}
		rows = append(rows, []string{c.What, fmt.Sprintf("%s %g%s", sign, c.Promised, c.unit), Number(c.Measured) + c.unit, met})
	}
	f.Table(rows)
}
