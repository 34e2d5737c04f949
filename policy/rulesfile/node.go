package rulesfile

import (
	"iter"
	"slices"
	"strings"
)

// A Node is a value of a rules file, whatever syntax it is written in.
type Node struct {
	Kind Kind
	// Value is the text of a string, or of a number or boolean as written.
	Value string
	// Line and Column are where the value begins, from 1; a column counts characters.
	Line, Column int
	// Fields are the fields of a map, in the order of the file; a name may come twice.
	Fields []Field
	// Items are the items of a list.
	Items []*Node
	// Each, if not nil, takes the place of Items: it yields the items once, as they are read.
	Each iter.Seq[*Node]
}

// True reports whether a node is true, in any case of letters.
func (n *Node) True() bool { return n.Kind == Bool && strings.EqualFold(n.Value, "true") }

func (n *Node) each() iter.Seq[*Node] {
	if n.Each != nil {
		return n.Each
	}
	return slices.Values(n.Items)
}

// A Field is one field of a map.
type Field struct {
	Name         string
	Line, Column int // of the name
	Value        *Node
}

// A Kind is what a [Node] holds.
type Kind uint8

// The kinds of nodes.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	MapKind
)

// String returns the kind in words: "a list".
func (k Kind) String() string {
	words := [...]string{"nothing", "true or false", "a number", "text", "a list", "a map"}
	if int(k) < len(words) {
		return words[k]
	}
	return "an unknown kind"
}
