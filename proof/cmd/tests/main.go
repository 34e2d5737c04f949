// Command tests runs go vet and go test, prints what they print, and at the end, once,
// which tests were left out and why: which program is missing, or which setting asks
// for more.
//
//	go run ./proof/cmd/tests test ./release -- apart deploy/helm ++ vet -race ./cmd/... -- test -race ./cmd/...
//
// A step is one of
//
//	vet ARGUMENTS           go vet
//	test ARGUMENTS          go test
//	apart [FLAGS] MODULES   go test in each of the modules, which go.work leaves out
//
// After -- stands the step that follows, after ++ steps that run at the same time:
// while tests wait for servers, others are compiled. It exits as the first step does
// that fails, and begins none after that.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

func main() {
	lines, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(2)
	}
	r := newReader(os.Stdout)
	var status atomic.Int32
	var wg sync.WaitGroup
	for _, line := range lines {
		wg.Go(func() {
			for _, s := range line {
				if status.Load() == 0 {
					status.CompareAndSwap(0, int32(s.run(r)))
				}
			}
		})
	}
	wg.Wait()
	r.summary()
	os.Exit(int(status.Load()))
}

// A step is one go vet or go test, or the tests of modules apart.
type step struct {
	verb string
	args []string
}

// parse returns the lines that run at the same time, each of steps that follow one
// another.
func parse(args []string) (lines [][]step, err error) {
	for _, line := range cut(args, "++") {
		var steps []step
		for _, words := range cut(line, "--") {
			if len(words) < 2 || !slices.Contains([]string{"vet", "test", "apart"}, words[0]) {
				return nil, fmt.Errorf("%q is no step: want vet, test or apart, and what to run it on", strings.Join(words, " "))
			}
			steps = append(steps, step{words[0], words[1:]})
		}
		lines = append(lines, steps)
	}
	return lines, nil
}

// cut returns what stands between separators.
func cut(args []string, separator string) (parts [][]string) {
	for {
		i := slices.Index(args, separator)
		if i < 0 {
			return append(parts, args)
		}
		parts, args = append(parts, args[:i]), args[i+1:]
	}
}

// run returns the status of a step.
func (s step) run(r *reader) int {
	switch s.verb {
	case "vet":
		c := exec.Command("go", append([]string{"vet"}, s.args...)...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		return status(c.Run())
	case "test":
		return test(r, "", nil, s.args...)
	}
	flags := slices.IndexFunc(s.args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	for _, dir := range s.args[max(flags, 0):] {
		if status := test(r, dir, []string{"GOWORK=off"}, append(slices.Clone(s.args[:max(flags, 0)]), "./...")...); status != 0 {
			return status
		}
	}
	return 0
}

// test runs go test in a directory and returns its status.
func test(r *reader, dir string, env []string, args ...string) int {
	c := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return status(err)
	}
	r.read(out)
	return status(c.Wait())
}

// status returns what to exit with after a program ended so.
func status(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) && e.ExitCode() > 0 {
		return e.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		return 1
	}
	return 0
}
