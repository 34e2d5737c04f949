// Package redis measures stint's limits in a Redis beside other libraries that keep
// theirs there, and beside what none can go below: a GET, and the least script that
// keeps a key (TIME, GET, SET with PX), on the same client and the same server. It
// starts redis-servers of its own on free loopback ports.
//
// What is compared is timed in turns (A B C A B C …), and a ratio is the median of the
// ratios within each turn. Client and server share the machine.
package redis

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/machine"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// figures is one run.
type figures struct {
	*report.Figures
	server *redisServer
}

// Suite returns the chapters.
func Suite() *report.Suite {
	f := new(figures)
	return &report.Suite{
		Rounds: 9, Slice: 300 * time.Millisecond, Quick: 5 * time.Millisecond,
		Open: f.open,
		Close: func() {
			if f.server != nil {
				f.server.stop()
			}
		},
		Chapters: []report.Chapter{
			{Name: "decisions", Title: "Decisions", Run: f.decisions},
			{Name: "cluster", Title: "A cluster", Run: f.cluster},
			{Name: "bytes", Title: "Bytes a key", Run: f.bytes},
		},
	}
}

// open starts the server, and says on what and how everything is measured.
func (f *figures) open(of *report.Figures) (err error) {
	f.Figures = of
	if f.server, err = startServer(); err != nil {
		return err
	}
	version, err := f.server.info("server", "redis_version")
	if err != nil {
		return err
	}
	f.Preface(", Redis " + version)
	fmt.Fprintf(f.Out, "\nMedians of %d rounds. Contenders take turns, %v each in a round. All calls are admitted, over %d keys; "+
		"client and server on one machine, over loopback TCP. Processor time is the server's, user and system, as INFO has it, with %d callers.\n",
		f.Rounds, f.Slice, keys, callers)
	fmt.Fprintf(f.Out, "\nBeside: %s.\n", strings.Join(machine.Versions("/redis_rate/", "/throttled/", "/limiter/v3", "/go-redis/v9"), ", "))
	return nil
}
