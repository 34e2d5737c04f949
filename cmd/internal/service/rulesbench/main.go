// Command rulesbench measures rules in a database: how soon a change is enforced,
// what ten million overrides take, and what changes do to decisions. It starts
// its own PostgreSQL and PgBouncer, and prints the table of docs/RULES-DB.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A part is some rows of the table.
type part struct {
	name string
	run  func(b *bench) error
}

var parts = []part{
	{"listen", (*bench).listen},
	{"poll", (*bench).poll},
	{"worker", (*bench).worker},
	{"changes", (*bench).changes},
	{"publish", (*bench).publish},
	{"start", (*bench).start},
	{"expiry", (*bench).expiry},
	{"millions", (*bench).millions},
}

func main() {
	only := flag.String("only", "", "parts to run, with commas between; all by default")
	overrides := flag.Int("overrides", 10_000_000, "overrides of the part millions")
	flag.Parse()
	if err := run(*only, *overrides); err != nil {
		fmt.Fprintln(os.Stderr, "rulesbench:", err)
		os.Exit(1)
	}
}

func run(only string, overrides int) (err error) {
	b := &bench{overrides: overrides}
	defer runtime.KeepAlive(make([]byte, headroom))
	defer b.host.end()
	defer func() {
		if failure, ok := recover().(failure); ok {
			err = errors.New(string(failure))
		}
	}()
	fmt.Println("| what | figure | at most |\n|---|---|---|")
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		if err := p.run(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// headroom is what stint serve gives the garbage collector: it runs as often here.
const headroom = 32 << 20

// row prints a row of the table.
func row(what, figure, most string) { fmt.Printf("| %s | %s | %s |\n", what, figure, most) }

// host is the test that servers of package dbtest are started for.
type host struct {
	testing.TB
	cleanups []func()
}

// A failure is why a server could not be started.
type failure string

func (h *host) Helper()                           {}
func (h *host) Cleanup(f func())                  { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (h *host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (h *host) Skipf(format string, args ...any)  { h.Fatalf(format, args...) }

// end stops what was started, the last first.
func (h *host) end() {
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
}

// A sample is durations of the same thing.
type sample []time.Duration

// at returns a quantile.
func (s sample) at(q float64) time.Duration {
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
