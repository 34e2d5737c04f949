// Command tests runs go test with the arguments given, prints what it prints, and at
// the end, once, what was left out and why: which program is missing, or which
// setting asks for more.
//
//	go run ./proof/cmd/tests ./release -- -race -timeout 40m ./cmd/... -- adapters/caddylimit deploy/helm
//
// With -- between them stand the arguments of one go test after another, and last
// modules that go.work leaves out: their tests run by themselves, without flags. It
// exits as the first go test does that fails, and runs none after that.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	runs, apart := split(os.Args[1:])
	r := newReader(os.Stdout)
	status := 0
	for _, args := range runs {
		if status == 0 {
			status = test(r, "", nil, args...)
		}
	}
	for _, dir := range apart {
		if status == 0 {
			status = test(r, dir, []string{"GOWORK=off"}, "./...")
		}
	}
	r.summary()
	os.Exit(status)
}

// split returns the arguments of each go test, and the modules that stand apart.
func split(args []string) (runs [][]string, apart []string) {
	for {
		i := slices.Index(args, "--")
		if i < 0 {
			break
		}
		runs, args = append(runs, args[:i]), args[i+1:]
	}
	if runs == nil {
		return [][]string{args}, nil
	}
	return runs, args
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
		fmt.Fprintln(os.Stderr, "tests:", err)
		return 1
	}
	r.read(out)
	err = c.Wait()
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

// read prints the events of go test -json as go test prints them without -v.
func (r *reader) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(r.to, "%s", line) // not of go test's
			} else {
				r.event(&e)
			}
		}
		if err != nil {
			return
		}
	}
}
