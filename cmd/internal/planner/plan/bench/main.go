// Command bench measures how many lines of an access log a second package plan
// takes, beside mawk '{c[$1]++}', which only counts, on the same file in the
// same run. It writes the log itself, and prints medians over rounds.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
	"github.com/stint-dev/stint/cmd/internal/planner/plan/sample"
)

// A way is one of the things that are measured.
type way struct {
	name  string
	cores int
	base  *way // what its ratio is to; nil for none
	run   func(file string) (*plan.Report, time.Duration, error)

	took  []time.Duration
	busy  []float64 // cores at work on average, by round; none if others do the work
	ratio []float64 // of its speed to that of its base, by round
	last  *plan.Report
}

// ten limits such as one would try. A request that is denied costs more than
// one that passes, since it is noted for whom: these deny few.
var ten = []string{
	"10/s burst 20", "10/s burst 50", "5/s burst 20", "5/s burst 40", "2/s burst 30",
	"1/s burst 30", "100/m", "60/m burst 30", "1000/h", "50/s",
}

func planned(o plan.Options) func(string) (*plan.Report, time.Duration, error) {
	return func(file string) (*plan.Report, time.Duration, error) {
		o.Files = []string{file}
		start := time.Now()
		report, err := plan.Run(context.Background(), o)
		return report, time.Since(start), err
	}
}

func mawk(file string) (*plan.Report, time.Duration, error) {
	start := time.Now()
	err := exec.Command("mawk", "{c[$1]++}", file).Run()
	return nil, time.Since(start), err
}

func ways() []*way {
	count := &way{name: "mawk '{c[$1]++}'", cores: 1, run: mawk}
	one := &way{name: "one limit", cores: 1, base: count, run: planned(plan.Options{Limits: ten[:1], Brief: true})}
	many := &way{name: "ten limits", cores: 1, base: one, run: planned(plan.Options{Limits: ten, Brief: true})}
	full := &way{name: "and a choice", cores: 1, base: one, run: planned(plan.Options{Limits: ten[:1], Choose: &plan.Target{Share: 0.001}})}
	choice := &way{name: "a brief choice", cores: 1, base: one, run: planned(plan.Options{Brief: true, Choose: &plan.Target{Share: 0.001}})}
	return []*way{
		count, one,
		{name: "one limit", cores: 2, base: one, run: one.run},
		{name: "two halves apart", cores: 2, base: one, run: halves},
		many,
		{name: "ten limits", cores: 2, base: many, run: many.run},
		{name: "the full report", cores: 1, base: one, run: planned(plan.Options{Limits: ten[:1]})},
		full,
		{name: "and a choice", cores: 2, base: full, run: full.run},
		choice,
		{name: "a brief choice", cores: 2, base: choice, run: choice.run},
	}
}

func main() {
	lines := flag.Int("lines", 2_000_000, "of the log")
	clients := flag.Int("clients", 50_000, "in the log")
	rounds := flag.Int("rounds", 5, "of which the medians are printed")
	reverse := flag.Bool("reverse", false, "only sort the log in reverse, and say how much memory that took")
	alone := flag.String("alone", "", "only decide one limit on this log, on one core, once a line comes from standard input")
	flag.Parse()
	work := measure
	if *alone != "" {
		work = func(int, int, int) error { return half(*alone) }
	}
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
	if err := errors.Join(write(file, lines, clients), split(file)); err != nil {
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
			w.compare()
		}
	}
	n := all[1].last.Log.Lines
	slices.Sort(apart)
	fmt.Printf("%d lines, %.0f MB, %d clients; medians of %d rounds, ratios within each round\n", n, float64(info.Size())/1e6, all[1].last.Log.Clients, rounds)
	fmt.Printf("from one core to another and back: %v (%v to %v)\n\n", apart[len(apart)/2], apart[0], apart[len(apart)-1])
	fmt.Printf("%-18s %5s  %12s  %5s  %s\n", "", "cores", "lines/s", "busy", "ratio")
	for _, w := range all {
		w.print(n)
	}
	one, many := all[1].last.Log, all[4].last.Log
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
	report, _, err := planned(plan.Options{Limits: ten[:1], Brief: true})(back)
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

// split writes the two halves of a log beside it.
func split(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	middle := len(text)/2 + bytes.IndexByte(text[len(text)/2:], '\n') + 1
	return errors.Join(os.WriteFile(file+".1", text[:middle], 0o600), os.WriteFile(file+".2", text[middle:], 0o600))
}

// halves reads the two halves of a log at once, each in a process of its own on
// one core: they share nothing but the machine, so no program gets more of a
// second core. Processes that have begun wait for each other, since that they
// begin is not what is measured.
func halves(file string) (*plan.Report, time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	var all [2]*exec.Cmd
	var gates [2]io.WriteCloser
	for i := range all {
		all[i] = exec.Command(self, "-alone", fmt.Sprintf("%s.%d", file, i+1))
		all[i].Env = append(os.Environ(), "GOMAXPROCS=1")
		all[i].Stderr = os.Stderr
		gate, err := all[i].StdinPipe()
		if err != nil {
			return nil, 0, err
		}
		ready, err := all[i].StdoutPipe()
		if err != nil {
			return nil, 0, err
		}
		if err := all[i].Start(); err != nil {
			return nil, 0, err
		}
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			return nil, 0, err
		}
		gates[i] = gate
	}
	start := time.Now()
	err = errors.Join(gates[0].Close(), gates[1].Close())
	err = errors.Join(err, all[0].Wait(), all[1].Wait())
	return nil, time.Since(start), err
}

// half is one of two processes.
func half(file string) error {
	fmt.Println()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	_, _, err := planned(plan.Options{Limits: ten[:1], Brief: true})(file)
	return err
}

func (w *way) measure(file string) error {
	if w.run == nil {
		return nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(w.cores))
	debug.FreeOSMemory()
	before := worked()
	report, took, err := w.run(file)
	w.took = append(w.took, took)
	if report != nil {
		w.busy = append(w.busy, (worked()-before).Seconds()/took.Seconds())
	}
	w.last = report
	return err
}

// worked returns how much time the cores have spent on this process.
func worked() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compare notes how much faster it was than its base in this round.
func (w *way) compare() {
	if n := len(w.took); n > 0 && w.base != nil && len(w.base.took) == n {
		w.ratio = append(w.ratio, w.base.took[n-1].Seconds()/w.took[n-1].Seconds())
	}
}

// rate returns the median of lines a second, 0 if it was not measured.
func (w *way) rate(lines int64) float64 {
	if len(w.took) == 0 {
		return 0
	}
	return float64(lines) / median(w.took).Seconds()
}

func (w *way) print(lines int64) {
	rate := w.rate(lines)
	if rate == 0 {
		return
	}
	busy := ""
	if len(w.busy) > 0 {
		busy = fmt.Sprintf("%.2f", median(w.busy))
	}
	fmt.Printf("%-18s %5d  %12.0f  %5s", w.name, w.cores, rate, busy)
	if len(w.ratio) > 0 {
		fmt.Printf("  %.2f of %s on %d", median(w.ratio), w.base.name, w.base.cores)
	}
	fmt.Println()
}

// median returns that of numbers.
func median[T cmp.Ordered](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
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
