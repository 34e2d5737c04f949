package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const module = "github.com/stint-dev/stint/"

// counted says what the figures are of.
const counted = `Files in which a statement of a function ran, the statements that ran, and the
functions that they are in. A call is counted once it has been made before: what
happens once is not its way. A boot is counted from main until it has listened for a
second; what initializes packages runs before main and is not in it.
`

// A trip is one call through the house, and how many of its files it may touch.
type trip struct {
	name string
	most int
	run  func(bin, covers string) error
	pkg  string // of the program, from the top
}

var allTrips = []trip{
	{"an HTTP request under a policy, in memory", 12, program, "./proof/cmd/house/trip/http"},
	{"a strict decision in Redis", 9, program, "./proof/cmd/house/trip/redis"},
	{"a boot of stint serve, until it answers", 15, boot, "./cmd/stint"},
}

// trips prints the files that each trip runs through. A program that makes one
// call is built with coverage and clears the counters right before the call.
func trips(w io.Writer, top string) error {
	fmt.Fprint(w, counted)
	scratch, err := os.MkdirTemp("", "trips")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	for i, t := range allTrips {
		bin := filepath.Join(scratch, fmt.Sprint("trip", i))
		covers := bin + ".covers"
		for _, dir := range []string{covers, covers + ".rest"} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
		}
		build := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"...", "-tags=trip", "-o", bin, t.pkg)
		build.Dir, build.Stderr = top, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building %s: %w", t.pkg, err)
		}
		if err := t.run(bin, covers); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		ran, err := touched(top, covers)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %d files, at most %d\n", t.name, len(ran), t.most)
		for _, f := range ran {
			fmt.Fprintf(w, "    %-50s %4d  %s\n", f.path, f.statements, strings.Join(f.functions, " "))
		}
	}
	return nil
}

// program runs a program that writes its own counters.
func program(bin, covers string) error {
	cmd := exec.Command(bin, covers)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+covers+".rest")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// boot starts stint serve, and has it write its counters once it listens.
func boot(bin, covers string) error {
	rules := bin + ".yaml"
	if err := os.WriteFile(rules, []byte("rules: [{name: site, key: [ip], limits: [10/s]}]\n"), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(bin, "serve", "-c", rules, "--http", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+covers+".rest", "STINT_TRIP="+covers)
	log, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for s := bufio.NewScanner(log); s.Scan(); {
		if strings.Contains(s.Text(), "msg=listening") {
			time.Sleep(time.Second) // what goes on beside has begun, and waits
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				return err
			}
			break
		}
		fmt.Fprintln(os.Stderr, s.Text())
	}
	return cmd.Wait()
}

// A ran is a file of which something ran.
type ran struct {
	path       string
	statements int
	functions  []string // in the order of the file
}

// touched returns the files of the house with a counter above 0. Counters are of
// statements in functions.
func touched(top, covers string) ([]*ran, error) {
	text, err := output("go", "tool", "covdata", "textfmt", "-i="+covers, "-o=/dev/stdout")
	if err != nil {
		return nil, err
	}
	files := make(map[string]*ran)
	lines := make(map[string][]int)
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		path, counter, is := strings.Cut(strings.TrimPrefix(s.Text(), module), ":")
		var line, column, end, past, statements, count int
		if _, err := fmt.Sscanf(counter, "%d.%d,%d.%d %d %d", &line, &column, &end, &past, &statements, &count); !is || err != nil || count == 0 {
			continue
		}
		if strings.Contains(path, "cmd/house/trip/") || path == "cmd/stint/trip.go" {
			continue
		}
		if files[path] == nil {
			files[path] = &ran{path: path}
		}
		files[path].statements += statements
		lines[path] = append(lines[path], line)
	}
	all := slices.SortedFunc(maps.Values(files), func(a, b *ran) int { return strings.Compare(a.path, b.path) })
	for _, f := range all {
		if f.functions, err = functionsAt(filepath.Join(top, f.path), lines[f.path]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// functionsAt returns the names of the functions of a file that hold some lines.
func functionsAt(path string, lines []int) (names []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		from, to := set.Position(d.Pos()).Line, set.Position(d.End()).Line
		if !slices.ContainsFunc(lines, func(n int) bool { return from <= n && n <= to }) {
			continue
		}
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		} else {
			names = append(names, "var")
		}
	}
	return names, nil
}
