package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// killersFile says by the names of bugs which tests killed them last time. A line
// has a name, a directory, and what go test gets there.
const killersFile = "killers.txt"

func readKillers(dir string) (map[string]stage, error) {
	path := filepath.Join(dir, killersFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	killers := make(map[string]stage)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 {
			return nil, fmt.Errorf("%s: want a bug, a directory and a test in %q", path, line)
		}
		if _, twice := killers[words[0]]; twice {
			return nil, fmt.Errorf("%s: %s has two lines: the test of one would not be run", path, words[0])
		}
		killers[words[0]] = stage{dir: words[1], args: words[2:]}
	}
	return killers, nil
}

// writeKiller writes the file anew with the test that killed this bug.
func writeKiller(dir, bug string, test stage) error {
	if test.dir == "" {
		return nil
	}
	killers, err := readKillers(dir)
	if err != nil {
		return err
	}
	killers[bug] = test
	var lines []string
	for name, s := range killers {
		lines = append(lines, name+" "+s.dir+" "+strings.Join(s.args, " ")+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(dir, killersFile), []byte(strings.Join(lines, "")), 0o644)
}
