package rulesfile

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/strictjson"
)

// These bounds leave room for the largest files: 100,000 overrides of a hundred bytes are 10
// MB. maxDepth is twice the depth of the deepest rule.
const (
	maxBytes = 32 << 20
	maxNodes = 4 << 20
	maxDepth = 16
)

// ReadJSON returns the tree of a JSON document, for callers of [Decode] that
// have fields of their own. The error is [Errors].
func ReadJSON(data []byte) (*Node, error) {
	if len(data) > maxBytes {
		return nil, Errors{{Reason: fmt.Sprintf("a file of %d bytes: at most %d", len(data), maxBytes)}}
	}
	t := newJSONTree(strings.TrimPrefix(string(data), "\ufeff")) // a byte order mark, which some editors write
	n, err := t.document()
	if err != nil {
		var bad *strictjson.Error
		errors.As(err, &bad) // every error here is one
		e := &Error{Reason: bad.Reason, Hint: bad.Hint}
		if e.Hint == "" && !strings.HasPrefix(strings.TrimSpace(t.text), "{") { // the file may be YAML
			e.Hint = "write JSON, which begins with {"
		}
		e.Line, e.Column = newJSONTree(t.text).place(bad.Offset)
		return nil, Errors{e}
	}
	return n, nil
}

// A jsonTree makes nodes of a document.
type jsonTree struct {
	text  string
	r     strictjson.Reader
	nodes int

	line, column, counted int // the place of text[counted]
}

func newJSONTree(text string) *jsonTree {
	return &jsonTree{text: text, r: strictjson.New(text, "the file"), line: 1, column: 1}
}

func (t *jsonTree) document() (*Node, error) {
	t.r.Next()
	if t.r.Offset() == len(t.text) {
		return nil, t.r.Fail("the file is empty", `want {"rules": […]}`)
	}
	n, err := t.value(0)
	if err == nil {
		err = t.r.End()
	}
	return n, err
}

// place returns the line and column of a byte. Offsets must not decrease from call to call.
func (t *jsonTree) place(offset int) (line, column int) {
	for t.counted < offset {
		c, size := utf8.DecodeRuneInString(t.text[t.counted:offset])
		if t.column++; c == '\n' {
			t.line, t.column = t.line+1, 1
		}
		t.counted += size
	}
	return t.line, t.column
}

func (t *jsonTree) value(depth int) (n *Node, err error) {
	c := t.r.Next()
	n = &Node{}
	n.Line, n.Column = t.place(t.r.Offset())
	if t.nodes++; t.nodes > maxNodes {
		return nil, t.r.Fail(fmt.Sprintf("more than %d values", maxNodes), "")
	}
	if depth > maxDepth {
		return nil, t.r.Fail(fmt.Sprintf("nested deeper than %d", maxDepth), "")
	}
	switch {
	case c == '{':
		n.Kind = MapKind
		return n, t.r.Object(func(name string) error {
			f := Field{Name: strings.Clone(name)}
			f.Line, f.Column = t.place(t.r.NameOffset())
			value, err := t.value(depth + 1)
			f.Value = value
			n.Fields = append(n.Fields, f)
			return err
		})
	case c == '[':
		n.Kind = List
		return n, t.r.List(func() error {
			item, err := t.value(depth + 1)
			n.Items = append(n.Items, item)
			return err
		})
	case c == '"':
		n.Kind = String
		n.Value, err = t.r.Text("text")
	case c == '-' || c >= '0' && c <= '9':
		n.Kind = Number
		n.Value, err = t.r.Number()
	default:
		n.Value = t.r.Literal()
		switch n.Value {
		case "true", "false":
			n.Kind = Bool
		case "null":
			n.Kind = Null
		default:
			err = t.r.Want("a value")
		}
	}
	n.Value = strings.Clone(n.Value) // a part of t.text would keep the whole file in memory
	return n, err
}
