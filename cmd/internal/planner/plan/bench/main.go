// Command bench measures how many lines of an access log a second package plan
// takes, beside mawk '{c[$1]++}', which only counts, on the same file in the
// same run. It writes the log itself, and prints medians over rounds.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
	"github.com/stint-dev/stint/cmd/internal/planner/plan/sample"
)

// A way is one of the things that are measured.
type way struct {
	name  string
	cores int
	base  int // among the ways: what its ratio is to
	run   func(file string) (*plan.Report, error)

	took  []time.Duration
	ratio []float64 // of its speed to that of its base, by round
	last  *plan.Report
}

// ten limits such as one would try. A request that is denied costs more than
// one that passes, since it is noted for whom: these deny few.
var ten = []string{
	"10/s burst 20", "10/s burst 50", "5/s burst 20", "5/s burst 40", "2/s burst 30",
	"1/s burst 30", "100/m", "60/m burst 30", "1000/h", "50/s",
}

func planned(o plan.Options) func(string) (*plan.Report, error) {
	return func(file string) (*plan.Report, error) {
		o.Files = []string{file}
		return plan.Run(context.Background(), o)
	}
}

func ways() []*way {
	return []*way{
		{name: "mawk '{c[$1]++}'", cores: 1, run: func(file string) (*plan.Report, error) {
			return nil, exec.Command("mawk", "{c[$1]++}", file).Run()
		}},
		{name: "one limit", cores: 1, run: planned(plan.Options{Limits: ten[:1], Brief: true})},
		{name: "one limit", cores: 2, base: 1, run: planned(plan.Options{Limits: ten[:1], Brief: true})},
		{name: "ten limits", cores: 1, base: 1, run: planned(plan.Options{Limits: ten, Brief: true})},
		{name: "ten limits", cores: 2, base: 3, run: planned(plan.Options{Limits: ten, Brief: true})},
		{name: "the full report", cores: 1, base: 1, run: planned(plan.Options{Limits: ten[:1]})},
		{name: "and a choice", cores: 1, base: 1, run: planned(plan.Options{Limits: ten[:1], Choose: &plan.Target{Share: 0.001}})},
		{name: "a brief choice", cores: 1, base: 1, run: planned(plan.Options{Brief: true, Choose: &plan.Target{Share: 0.001}})},
		{name: "a brief choice", cores: 2, base: 2, run: planned(plan.Options{Brief: true, Choose: &plan.Target{Share: 0.001}})},
	}
}

func main() {
	lines := flag.Int("lines", 2_000_000, "of the log")
	clients := flag.Int("clients", 50_000, "in the log")
	rounds := flag.Int("rounds", 5, "of which the medians are printed")
	reverse := flag.Bool("reverse", false, "only sort the log in reverse, and say how much memory that took")
	flag.Parse()
	work := measure
	if *reverse {
		work = backwards
	}
	if err := work(*lines, *clients, *rounds); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func measure(lines, clients, rounds int) error {
	dir, err := os.MkdirTemp("", "stint-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the directory for such things
	file := filepath.Join(dir, "access.log")
	if err := write(file, lines, clients); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	all := ways()
	if _, err := exec.LookPath("mawk"); err != nil {
		fmt.Println("mawk is not installed: no ratio to it")
		all[0].run = nil
	}
	var apart []time.Duration
	for range rounds {
		apart = append(apart, distance())
		for _, w := range all {
			if err := w.measure(file); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		for _, w := range all {
			w.compare(all[w.base])
		}
	}
	n := all[1].last.Log.Lines
	slices.Sort(apart)
	fmt.Printf("%d lines, %.0f MB, %d clients; medians of %d rounds, ratios within each round\n", n, float64(info.Size())/1e6, all[1].last.Log.Clients, rounds)
	fmt.Printf("from one core to another and back: %v (%v to %v)\n\n", apart[len(apart)/2], apart[0], apart[len(apart)-1])
	fmt.Printf("%-18s %5s  %12s  %s\n", "", "cores", "lines/s", "ratio")
	for _, w := range all {
		w.print(n, all)
	}
	one, many := all[1].last.Log, all[3].last.Log
	fmt.Printf("\nmemory: %.1f bytes a client, %.1f a client and limit; with ten limits %.1f\n",
		float64(one.Memory)/float64(one.Clients), float64(one.States)/float64(one.Clients), float64(many.States)/float64(many.Clients)/float64(len(ten)))
	return nil
}

// backwards reads a log whose newest lines come first, once.
func backwards(lines, clients, _ int) error {
	dir, err := os.MkdirTemp("", "stint-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	forth, back := filepath.Join(dir, "forth.log"), filepath.Join(dir, "back.log")
	if err := write(forth, lines, clients); err != nil {
		return err
	}
	out, err := os.Create(back)
	if err != nil {
		return err
	}
	tac := exec.Command("tac", forth)
	tac.Stdout = out
	if err := errors.Join(tac.Run(), out.Close(), os.Remove(forth)); err != nil {
		return err
	}
	info, err := os.Stat(back)
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	start := time.Now()
	report, err := planned(plan.Options{Limits: ten[:1], Brief: true})(back)
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	most, _, _ = strings.Cut(most, "\n")
	fmt.Printf("%d lines in reverse, %.0f MB, %d clients: sorted: %v, %.1f s, at most %s of memory\n",
		report.Log.Lines, float64(info.Size())/1e6, report.Log.Clients, report.Log.Sorted, time.Since(start).Seconds(), strings.TrimSpace(most))
	return nil
}

func write(name string, lines, clients int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	if err := sample.Write(w, sample.Options{Requests: lines, Clients: clients, Length: 48 * time.Hour, Plain: true}); err != nil {
		return err
	}
	return w.Flush()
}

func (w *way) measure(file string) error {
	if w.run == nil {
		return nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(w.cores))
	debug.FreeOSMemory()
	start := time.Now()
	report, err := w.run(file)
	w.took = append(w.took, time.Since(start))
	w.last = report
	return err
}

// compare notes how much faster it was than its base in this round.
func (w *way) compare(base *way) {
	if n := len(w.took); n > 0 && len(base.took) == n {
		w.ratio = append(w.ratio, base.took[n-1].Seconds()/w.took[n-1].Seconds())
	}
}

// rate returns the median of lines a second, 0 if it was not measured.
func (w *way) rate(lines int64) float64 {
	if len(w.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(w.took))
	return float64(lines) / sorted[len(sorted)/2].Seconds()
}

func (w *way) print(lines int64, all []*way) {
	rate := w.rate(lines)
	if rate == 0 {
		return
	}
	fmt.Printf("%-18s %5d  %12.0f", w.name, w.cores, rate)
	if base := all[w.base]; base != w && len(w.ratio) > 0 {
		to := "mawk"
		if w.base > 0 {
			to = fmt.Sprintf("%s on %d", base.name, base.cores)
		}
		slices.Sort(w.ratio)
		fmt.Printf("  %.2f of %s", w.ratio[len(w.ratio)/2], to)
	}
	fmt.Println()
}

// distance measures how long it takes that one core sees what another has
// written, and that one its answer. Where the cores of a virtual machine are on
// different chips, two of them are worth less.
func distance() time.Duration {
	const turns = 100_000
	if runtime.NumCPU() < 2 {
		return 0
	}
	var ball atomic.Int64
	until := func(want int64) {
		for spins := 1; ball.Load() != want; spins++ {
			if spins%10_000 == 0 { // the other may not run
				runtime.Gosched()
			}
		}
	}
	var back sync.WaitGroup
	back.Go(func() {
		for i := int64(1); i < 2*turns; i += 2 {
			until(i)
			ball.Store(i + 1)
		}
	})
	start := time.Now()
	for i := int64(1); i < 2*turns; i += 2 {
		ball.Store(i)
		until(i + 1)
	}
	back.Wait()
	return time.Since(start) / turns
}
