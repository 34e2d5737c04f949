// Package service measures the interfaces of stint serve beside the floor of each
// protocol, all in processes of their own on this machine: Envoy's service beside a
// grpc-go server that reads the same request and gives the same answer, the same
// service with a shared store beside that in memory, and CL.THROTTLE beside
// redis-server.
package service

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// figures is one run.
type figures struct {
	*report.Figures
	dir       string
	processes []*process
	memory    []*rival // in memory, and with a shared store
	others    []*rival
}

// Suite returns the chapters.
func Suite() *report.Suite {
	f := new(figures)
	return &report.Suite{
		Rounds: 5, Slice: 3 * time.Second, Quick: 20 * time.Millisecond,
		Open: f.open, Close: f.close,
		Chapters: []report.Chapter{
			{Name: "shared", Title: "A shared store", Run: f.shared},
			{Name: "floors", Title: "Beside the floors", Run: func() error { return f.race(f.others) }},
		},
	}
}

// open starts all servers.
func (f *figures) open(of *report.Figures) (err error) {
	f.Figures = of
	if f.dir, err = os.MkdirTemp("", "stint-benchmarks"); err != nil {
		return err
	}
	if f.processes, err = startAll(f.dir); err != nil {
		return err
	}
	all, err := rivals(f.processes)
	if err != nil {
		return err
	}
	f.memory, f.others = all[:2], all[2:]
	f.Preface("")
	return nil
}

func (f *figures) close() {
	for _, p := range f.processes {
		p.stop()
	}
	_ = os.RemoveAll(f.dir) // temporary files: the system clears what stays
}

// A rival is one server, what it is asked, and what came of it, by round.
type rival struct {
	name    string
	servers []*process                                          // whose processor time counts
	drive   func(stop <-chan struct{}) ([]time.Duration, error) // how long each request took
	per     int                                                 // decisions in a request
	out     []outcome
}

// An outcome is one round.
type outcome struct{ rate, p50, p99, p999, cpu float64 } // a second, µs, µs, µs, seconds per million

// race measures rivals in turns.
func (f *figures) race(rivals []*rival) error {
	for round := range f.Rounds {
		for i := range rivals {
			r := rivals[(i+round)%len(rivals)]
			if err := r.measure(f.Slice); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	rows := [][]string{{"server", "per second", "p50 µs", "p99 µs", "p999 µs", "CPU s per M"}}
	for _, r := range rivals {
		rows = append(rows, []string{
			r.name, fmt.Sprintf("%.0f", r.median(func(o outcome) float64 { return o.rate })),
			fmt.Sprintf("%.0f", r.median(func(o outcome) float64 { return o.p50 })), fmt.Sprintf("%.0f", r.median(func(o outcome) float64 { return o.p99 })),
			fmt.Sprintf("%.0f", r.median(func(o outcome) float64 { return o.p999 })), fmt.Sprintf("%.2f", r.median(func(o outcome) float64 { return o.cpu })),
		})
	}
	f.Table(rows)
	return nil
}

// shared compares a shared store with memory.
func (f *figures) shared() error {
	if err := f.race(f.memory); err != nil {
		return err
	}
	cpu := func(o outcome) float64 { return o.cpu }
	memory, shared := f.memory[0].all(cpu), f.memory[1].all(cpu)
	f.AtMost(2, report.Ratio(shared, memory), " ×", "limits in Redis, processor time with that of redis-server, beside limits in memory")
	return nil
}

func (r *rival) median(of func(outcome) float64) float64 { return report.Median(r.all(of)) }

func (r *rival) all(of func(outcome) float64) []float64 {
	all := make([]float64, len(r.out))
	for i, o := range r.out {
		all[i] = of(o)
	}
	return all
}

// measure asks for a while, and notes what came of it.
func (r *rival) measure(each time.Duration) error {
	if _, err := r.during(each / 3); err != nil { // to warm up
		return err
	}
	before, err := r.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := r.during(each)
	if err != nil {
		return err
	}
	passed := time.Since(began)
	after, err := r.cpu()
	if err != nil {
		return err
	}
	if len(took) == 0 {
		return errors.New("nothing was answered")
	}
	slices.SortFunc(took, cmp.Compare)
	at := func(share float64) float64 {
		return float64(took[min(int(share*float64(len(took))), len(took)-1)].Nanoseconds()) / 1e3
	}
	decisions := float64(len(took) * r.per)
	r.out = append(r.out, outcome{decisions / passed.Seconds(), at(0.5), at(0.99), at(0.999), (after - before).Seconds() / decisions * 1e6})
	return nil
}

// cpu returns the processor time that its servers have used.
func (r *rival) cpu() (sum time.Duration, err error) {
	for _, p := range r.servers {
		one, err := p.cpu()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

func (r *rival) during(d time.Duration) ([]time.Duration, error) {
	stop := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(stop) })
	defer timer.Stop()
	return r.drive(stop)
}

// A process is one server.
type process struct{ *exec.Cmd }

func (p *process) stop() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
}

// ticks are how often a second /proc counts.
const ticks = 100

// cpu returns the processor time that a process has used.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc: %q", text)
	}
	var sum int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}
