// Command benchmarks measures stint: the library, or limits in Redis, each beside
// others and beside what none can go below. It prints Markdown tables, and for every
// figure that the project promises the promise, the measured value and whether it was
// kept.
//
//	go run ./test/benchmarks                     # the library, from the root of the repository
//	go run ./test/benchmarks -quick              # a smoke test: the numbers mean nothing
//	go run ./test/benchmarks -only keyed,memory -rounds 15
//	go run ./test/benchmarks redis -only cluster
//
// Run it on a machine that does nothing else: whatever else runs is part of the figure.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/stint-dev/stint/test/benchmarks/library"
	"github.com/stint-dev/stint/test/benchmarks/redis"
	"github.com/stint-dev/stint/test/benchmarks/report"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	what := "library"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	set := flag.NewFlagSet("benchmarks "+what, flag.ExitOnError)
	var s *report.Suite
	switch what {
	case library.ChildWord:
		return library.BeChild(args)
	case "library":
		s = library.Suite()
	case "redis":
		s = redis.Suite()
	default:
		return fmt.Errorf("no benchmarks %q: there are library and redis", what)
	}
	f := report.Figures{Out: os.Stdout}
	s.Flags(&f, set)
	if err := set.Parse(args); err != nil { // it exits
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q: want flags alone; -only names chapters", set.Args())
	}
	return s.Run(&f)
}
