package caddylimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// maxDepth is how deep a rules file may nest: as deep as package rulesfile takes.
const maxDepth = 16

// readYAML returns the tree of a rules file. It accepts what stint serve accepts, except anchors,
// aliases and tags.
func readYAML(text []byte) (*rulesfile.Node, error) {
	var document, more yaml.Node
	read := yaml.NewDecoder(bytes.NewReader(text))
	if err := read.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("the file is empty: want rules: and a list of rules")
	}
	switch err := read.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("line %d: a second document: want one", more.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return nodeOf(document.Content[0], 0)
}

func nodeOf(n *yaml.Node, depth int) (*rulesfile.Node, error) {
	at := &rulesfile.Node{Line: n.Line, Column: n.Column}
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("line %d: nested deeper than %d", n.Line, maxDepth)
	case n.Anchor != "" || n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0:
		return nil, fmt.Errorf("line %d: anchors, aliases and tags are not read here: write it out", n.Line)
	case n.Kind == yaml.SequenceNode:
		at.Kind = rulesfile.List
		for _, item := range n.Content {
			one, err := nodeOf(item, depth+1)
			if err != nil {
				return nil, err
			}
			at.Items = append(at.Items, one)
		}
	case n.Kind == yaml.MappingNode:
		at.Kind = rulesfile.MapKind
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: a field's name must be text", key.Line)
			}
			value, err := nodeOf(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			at.Fields = append(at.Fields, rulesfile.Field{Name: key.Value, Line: key.Line, Column: key.Column, Value: value})
		}
	default:
		scalar(n, at)
	}
	return at, nil
}

// numbers matches the numbers of YAML's core schema, also with underscores, since limits allow
// them.
var numbers = regexp.MustCompile(`^[-+]?([0-9][0-9_]*|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)$`)

// scalar sets the kind and the value of a scalar.
func scalar(n *yaml.Node, to *rulesfile.Node) {
	to.Kind, to.Value = rulesfile.String, n.Value
	if n.Style != 0 { // a quoted text or a block
		return
	}
	switch word := strings.ToLower(n.Value); {
	case word == "" || word == "~" || word == "null":
		to.Kind = rulesfile.Null
	case word == "true" || word == "false":
		to.Kind, to.Value = rulesfile.Bool, word
	case numbers.MatchString(n.Value):
		to.Kind = rulesfile.Number
	}
}
