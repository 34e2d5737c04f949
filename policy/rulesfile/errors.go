package rulesfile

import (
	"fmt"
	"strings"
)

// An Error says what is wrong in a rules file, where, and what would be right.
type Error struct {
	Line   int    // from 1; 0 if not known
	Column int    // from 1, in characters
	Path   string // such as rules[2].limits[0]
	Reason string // what is wrong
	Hint   string // what would be right; may be empty
}

// Error returns one line: place, path, reason and hint.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column)
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Reason)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Errors is all that is wrong in a rules file, in the order of the file.
type Errors []*Error

// Error returns the errors, each on a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors, for [errors.As].
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// A Warning names something in the rules that is allowed, but likely not meant.
type Warning struct {
	Line   int    // from 1; 0 if not known
	Column int    // from 1, in characters
	Rule   string // the rule's name; empty if it is about no rule
	Reason string
	Hint   string // what would be better; may be empty
}

// String returns the warning as one line: where it is, what is wrong, and what would be better.
func (w Warning) String() string {
	e := Error{Line: w.Line, Column: w.Column, Reason: w.Reason, Hint: w.Hint}
	if w.Rule != "" {
		e.Path = "rule " + w.Rule
	}
	return e.Error()
}
