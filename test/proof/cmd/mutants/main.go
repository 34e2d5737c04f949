// Command mutants plants known bugs in stint, one at a time, and wants the
// tests to notice each of them.
//
//	go run ./cmd/mutants                 # in test/proof: all, as a table
//	go run ./cmd/mutants float_tat       # only those
//
// A bug is a patch in test/proof/mutants whose first lines say what it is and which
// guarantee it breaks. The program copies the sources to a few temporary
// directories, the labs. In these it applies one patch after the other, runs the
// tests until one fails, and takes the patch out again. It exits with status 1 if
// a bug survives, if a patch no longer applies or compiles, or if the tests of a
// bug fail without it; the others are judged all the same.
//
// killers.txt beside the patches has for each bug the test that killed it last
// time. That test goes first: most bugs need no other. Tests that decide have
// passed without any bug before: each is tried when it is first needed. -record
// writes the file anew.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	root := flag.String("root", "../..", "the `directory` of stint's root module")
	limit := flag.Duration("timeout", 3*time.Minute, "how long the tests of a package may take")
	labs := flag.Int("labs", 2, "how many bugs to look at, at a time")
	record := flag.Bool("record", false, "write down which test killed each bug")
	flag.Parse()
	if err := run(*root, *limit, max(*labs, 1), *record, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(root string, limit time.Duration, labs int, record bool, names []string) error {
	dir := filepath.Join(root, "test", "proof", "mutants")
	bugs, err := planted(root, names)
	if err != nil {
		return err
	}
	clean, err := newLab(root, limit)
	if err != nil {
		return err
	}
	defer clean.close()
	start := time.Now()
	sound := remember(func(s stage) error { return clean.passes([]stage{s}) })

	ends := make([]chan verdict, len(bugs))
	for i := range bugs {
		ends[i] = make(chan verdict, 1)
	}
	var next atomic.Int64
	for range min(labs, len(bugs)) {
		lab, err := newLab(root, limit)
		if err != nil {
			return err
		}
		defer lab.close()
		go func() {
			for i := next.Add(1) - 1; int(i) < len(bugs); i = next.Add(1) - 1 {
				ends[i] <- lab.judge(bugs[i], sound)
			}
		}()
	}
	note := func(bug, verdict) error { return nil }
	if record {
		note = func(b bug, v verdict) error { return writeKiller(dir, b.name, v.alone) }
	}
	survivors, err := report(bugs, ends, note)
	if err != nil {
		return err
	}
	fmt.Printf("All in %.0f s.\n", time.Since(start).Seconds())
	if survivors > 0 {
		return errors.New("not every bug was killed")
	}
	return nil
}

// remember returns ask, which asks once about each stage.
func remember(ask func(stage) error) func(stage) error {
	var answers sync.Map
	return func(s stage) error {
		once, _ := answers.LoadOrStore(s.dir+" "+strings.Join(s.args, " "), sync.OnceValue(func() error { return ask(s) }))
		return once.(func() error)()
	}
}

// report prints the table, each bug as soon as those before it are done, and
// returns how many survive.
func report(bugs []bug, ends []chan verdict, note func(bug, verdict) error) (survivors int, err error) {
	fmt.Println("| planted bug | breaks | killed by | s |")
	fmt.Println("|---|---|---|---|")
	for i, b := range bugs {
		v := <-ends[i]
		if v.wrong != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", b.name, v.wrong)
		}
		if !v.failed {
			survivors++
		}
		fmt.Printf("| %s | %s | %s | %.1f |\n", b.what, b.breaks, v.killer, v.took.Seconds())
		if err := note(b, v); err != nil {
			return survivors, err
		}
	}
	fmt.Printf("\n%d of %d killed.\n", len(bugs)-survivors, len(bugs))
	return survivors, nil
}

// A bug is one patch.
type bug struct {
	name, path   string
	what, breaks string
	files        []string // that it changes
	last         stage    // the test that killed it last time, if that is known
}

// planted reads the patches of those names, or all, from the root module's directory.
func planted(root string, names []string) ([]bug, error) {
	dir := filepath.Join(root, "test", "proof", "mutants")
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no patches in %s", dir)
	}
	killers, err := readKillers(dir)
	if err != nil {
		return nil, err
	}
	var bugs []bug
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		b := bug{name: name, path: path}
		if b.last = killers[name]; b.last.dir != "" && !isDir(filepath.Join(root, b.last.dir, b.last.args[0])) {
			return nil, fmt.Errorf("%s: there are no tests in %s/%s, which killed %s", killersFile, b.last.dir, b.last.args[0], name)
		}
		lines := strings.SplitN(string(text), "\n", 3)
		var isBug, isBreaks bool
		if len(lines) == 3 {
			b.what, isBug = strings.CutPrefix(lines[0], "# bug: ")
			b.breaks, isBreaks = strings.CutPrefix(lines[1], "# breaks: ")
		}
		if !isBug || !isBreaks {
			return nil, fmt.Errorf("%s: want two lines, \"# bug: \" and \"# breaks: \"", path)
		}
		for line := range strings.Lines(string(text)) {
			if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
				b.files = append(b.files, strings.TrimSpace(file))
			}
		}
		bugs = append(bugs, b)
	}
	if len(bugs) == 0 {
		return nil, fmt.Errorf("no patch is called %s", strings.Join(names, " or "))
	}
	return bugs, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
