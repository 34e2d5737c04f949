// Command house measures and draws the repository from its own code: how many
// lines each wing has, which files one request runs through, and which package
// imports which.
//
//	go run ./cmd/house lines           lines of code by wing
//	go run ./cmd/house trips           files that one call runs through, and what of each, by coverage
//	go run ./cmd/house draw DIR        rooms.svg for docs/DESIGN.md, readers.svg for docs/RULES-DB.md
//
// It reads the work tree around it and needs redis-server for one trip.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	top, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "lines":
		return lines(os.Stdout, top)
	case len(args) == 1 && args[0] == "trips":
		return trips(os.Stdout, top)
	case len(args) == 2 && args[0] == "draw":
		return draw(top, args[1])
	}
	return errors.New("usage: house lines | house trips | house draw DIR")
}

// output returns what a command prints, without the last line break.
func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
