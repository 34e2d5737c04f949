// Command mutants plants known bugs in stint, one at a time, and wants the
// tests to notice each of them.
//
//	go run ./cmd/mutants                 # in the module proof: all, as a table
//	go run ./cmd/mutants float_tat       # only those
//
// A bug is a patch in proof/mutants whose first lines say what it is and which
// guarantee it breaks. The program copies the sources to a temporary
// directory, checks that the tests pass there, then applies each patch, runs
// the tests until one fails, and takes the patch out again. It exits with
// status 1 if a bug survives, or if a patch no longer applies or compiles.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	root := flag.String("root", "..", "the `directory` of stint's root module")
	limit := flag.Duration("timeout", 3*time.Minute, "how long the tests of a package may take")
	flag.Parse()
	if err := run(*root, *limit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(root string, limit time.Duration, names []string) error {
	bugs, err := planted(filepath.Join(root, "proof", "mutants"), names)
	if err != nil {
		return err
	}
	lab, err := newLab(root, limit)
	if err != nil {
		return err
	}
	defer lab.close()
	start := time.Now()
	var files []string
	for _, b := range bugs {
		files = append(files, b.files...)
	}
	if v, err := lab.test(stagesOf(files...)); err != nil {
		return err
	} else if v.failed {
		return fmt.Errorf("the tests fail without any bug:\n%s", v.output)
	}
	fmt.Printf("No bug: all tests pass, in %.1f s.\n\n", time.Since(start).Seconds())
	fmt.Println("| planted bug | breaks | killed by | which is | s |")
	fmt.Println("|---|---|---|---|---|")
	survivors := 0
	kinds := make(map[string]int)
	for _, b := range bugs {
		start := time.Now()
		v, err := lab.plant(b)
		killer := v.killer
		switch {
		case err != nil:
			killer = "**" + firstLine(err.Error()) + "**"
			survivors++
		case !v.failed:
			killer = "**survives**"
			survivors++
		}
		kind := ""
		if err == nil && v.failed {
			kind = kindOf(killer)
			kinds[kind]++
		}
		fmt.Printf("| %s | %s | %s | %s | %.1f |\n", b.what, b.breaks, killer, kind, time.Since(start).Seconds())
	}
	fmt.Printf("\n%d of %d killed.\n", len(bugs)-survivors, len(bugs))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("- %s: %d\n", kind, kinds[kind])
	}
	if survivors > 0 {
		return errors.New("not every bug was killed")
	}
	return nil
}

// A bug is one patch.
type bug struct {
	name, path   string
	what, breaks string
	files        []string // that it changes
}

// planted reads the patches of those names, or all.
func planted(dir string, names []string) ([]bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no patches in %s", dir)
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

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
