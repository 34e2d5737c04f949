// Package importers has what turning the configuration of another limiter into rules
// takes, whichever it is: notes of what differs, conditions and patterns of paths, and
// the rules file. docs/MOVING.md has what becomes of each configuration.
package importers

import (
	"fmt"
	"slices"
)

// A Note says what means something else as a rule than it did, or what is not kept.
type Note struct {
	Where string // file:line; "" for what concerns all
	Text  string
	// Lost is whether a limit, or a part of one, is not kept.
	Lost bool
}

// String returns one line.
func (n Note) String() string {
	if n.Where == "" {
		return n.Text
	}
	return n.Where + ": " + n.Text
}

// Notes are those of one configuration.
type Notes []Note

// Once are the notes, each once.
func (n Notes) Once() Notes {
	seen := make(map[Note]bool, len(n))
	return slices.DeleteFunc(slices.Clone(n), func(one Note) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
}

// Say notes what differs without a limit being lost.
func (n *Notes) Say(where, format string, args ...any) { n.add(where, false, format, args) }

// Lose notes which limit is not kept.
func (n *Notes) Lose(where, format string, args ...any) { n.add(where, true, format, args) }

func (n *Notes) add(where string, lost bool, format string, args []any) {
	*n = append(*n, Note{where, fmt.Sprintf(format, args...), lost})
}

// Lost is how many say that a limit is not kept.
func (n Notes) Lost() (lost int) {
	for _, one := range n {
		if one.Lost {
			lost++
		}
	}
	return lost
}
