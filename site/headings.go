package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
)

// headings names headings as code hosts do, so that links into the documents hold
// here too. It implements parser.IDs.
type headings map[string]int

var _ parser.IDs = headings{}

// Generate returns the name of a heading: its letters, digits, hyphens and
// underscores in lower case, with hyphens for blanks.
func (h headings) Generate(text []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
			return unicode.ToLower(c)
		}
		return -1
	}, strings.TrimSpace(string(text)))
	n := h[id]
	h[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put keeps a name that a document gives itself.
func (h headings) Put(id []byte) { h[string(id)]++ }
