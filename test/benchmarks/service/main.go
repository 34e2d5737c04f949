// Servicebench measures the interfaces of stint serve beside the floor of each
// protocol, all in processes of their own on this machine: Envoy's service
// beside a grpc-go server that reads the same request and gives the same
// answer, the same service with a shared store beside that in memory, and
// CL.THROTTLE beside redis-server. Run it as make bench-service; it takes about
// three minutes. With the argument shared it measures the shared store alone.
package main

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
)

const (
	rounds = 5
	each   = 3 * time.Second // of a measurement
	warmUp = time.Second
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "floor":
		err = floor()
	default:
		err = run(len(os.Args) == 2 && os.Args[1] == "shared")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "servicebench:", err)
		os.Exit(1)
	}
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

// run measures all rivals, or the shared store alone beside memory.
func run(only bool) error {
	dir, err := os.MkdirTemp("", "stint-servicebench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // temporary files: the system clears what stays
	processes, err := startAll(dir)
	defer func() {
		for _, p := range processes {
			p.stop()
		}
	}()
	if err != nil {
		return err
	}
	rivals, err := rivals(processes, only)
	if err != nil {
		return err
	}
	for round := range rounds {
		for i := range rivals {
			r := rivals[(i+round)%len(rivals)]
			if err := r.measure(); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	fmt.Printf("| %-34s | %10s | %7s | %7s | %7s | %12s |\n|%s|\n", "server", "per second", "p50 µs", "p99 µs", "p999 µs", "CPU s per M", strings.Repeat("---|", 5)+"---")
	for _, r := range rivals {
		fmt.Printf("| %-34s | %10.0f | %7.0f | %7.0f | %7.0f | %12.2f |\n", r.name,
			r.median(func(o outcome) float64 { return o.rate }), r.median(func(o outcome) float64 { return o.p50 }),
			r.median(func(o outcome) float64 { return o.p99 }), r.median(func(o outcome) float64 { return o.p999 }),
			r.median(func(o outcome) float64 { return o.cpu }))
	}
	memory, shared := rivals[0], rivals[1]
	ratios := make([]float64, rounds)
	for i := range ratios {
		ratios[i] = shared.out[i].cpu / memory.out[i].cpu
	}
	slices.Sort(ratios)
	fmt.Printf("\nWith a shared store, stint and redis-server together take %.2f times the processor time that stint takes in memory (%.2f to %.2f); at most 2 is wanted.\n",
		ratios[rounds/2], ratios[0], ratios[rounds-1])
	return nil
}

func (r *rival) median(of func(outcome) float64) float64 {
	all := make([]float64, len(r.out))
	for i, o := range r.out {
		all[i] = of(o)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// measure asks for a while, and notes what came of it.
func (r *rival) measure() error {
	if _, err := r.during(warmUp); err != nil {
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
