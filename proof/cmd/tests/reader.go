package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// An event is one of go test -json: see "go doc test2json".
type event struct {
	Action, Package, Test, Output string
}

// A name is that of a test, or of a package where Test is empty.
type name struct{ Package, Test string }

// A reader prints what go test would, and notes what was left out.
type reader struct {
	mu   sync.Mutex
	to   io.Writer
	said map[name][]string   // by tests that have not ended
	left map[string][]string // the tests that were left out, by why
}

func newReader(to io.Writer) *reader {
	return &reader{to: to, said: make(map[name][]string), left: make(map[string][]string)}
}

// read prints the events of go test -json as go test prints them without -v. It may
// be called for several at the same time.
func (r *reader) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err != nil {
			return
		}
	}
}

func (r *reader) line(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.to, "%s", line) // not of go test's
		return
	}
	r.event(&e)
}

// verbose are the lines that tests have with -v alone.
var verbose = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME|ATTR)\s|--- (PASS|SKIP): )`)

func (r *reader) event(e *event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.to, e.Output)
	case "output":
		r.said[n] = append(r.said[n], e.Output)
	case "skip", "pass":
		if e.Action == "skip" && strings.HasPrefix(e.Test, "Test") {
			why := reason(r.said[n])
			r.left[why] = append(r.left[why], e.Test)
		}
		for _, text := range r.said[n] {
			if e.Test == "" && summed.MatchString(text) {
				fmt.Fprint(r.to, text)
			}
		}
		delete(r.said, n)
	case "fail":
		if !strings.Contains(e.Test, "/") { // what fails within a test is printed with it
			r.failed(n)
		}
	}
}

// summed is the line of a package that has not failed.
var summed = regexp.MustCompile(`^(ok  |\?   )\t`)

// failed prints what a test and those within it said. With a package it prints what is
// left of it: of tests that had not ended, and its own.
func (r *reader) failed(n name) {
	var names []name
	for other := range r.said {
		within := n.Test == "" || other.Test == n.Test || strings.HasPrefix(other.Test, n.Test+"/")
		if other.Package == n.Package && within {
			names = append(names, other)
		}
	}
	slices.SortFunc(names, func(a, b name) int { // the package last
		return cmp.Or(cmp.Compare(last(a), last(b)), strings.Compare(a.Test, b.Test))
	})
	for _, other := range names {
		for _, text := range r.said[other] {
			if text != "PASS\n" && !verbose.MatchString(text) {
				fmt.Fprint(r.to, text)
			}
		}
		delete(r.said, other)
	}
}

func last(n name) int {
	if n.Test == "" {
		return 1
	}
	return 0
}

// logged is a line that a test logs, such as "    x_test.go:12: words".
var logged = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (.*)\n?$`)

// reason returns why a test was left out: the last that it said, in one line.
func reason(said []string) string {
	for _, text := range slices.Backward(said) {
		if found := logged.FindStringSubmatch(text); found != nil {
			return strings.TrimSpace(found[1])
		}
	}
	return "without a word"
}

// summary prints what was left out.
func (r *reader) summary() {
	if len(r.left) == 0 {
		return
	}
	fmt.Fprintln(r.to, "\nLeft out:")
	for _, why := range slices.Sorted(maps.Keys(r.left)) {
		tests := slices.Compact(slices.Sorted(slices.Values(r.left[why])))
		more := ""
		if len(tests) > 3 {
			more = fmt.Sprintf(" and %d more", len(tests)-3)
			tests = tests[:3]
		}
		fmt.Fprintf(r.to, "  %s: %s%s\n", why, strings.Join(tests, ", "), more)
	}
}
