package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"unicode/utf8"

	"github.com/stint-dev/stint/policy/rulesfile"
	"go.yaml.in/yaml/v4"
)

const (
	// maxDepth and maxValues are package policy's bounds, which hold for JSON
	// too: here they count aliases each time they are used.
	maxDepth  = 16
	maxValues = 4 << 20
	// maxStarts bounds the memory that the YAML library takes before it lets
	// anything be counted: up to 600 MB at this bound. 100,000 overrides of a
	// line each have 800,000 starts.
	maxStarts = 1 << 20
)

// readYAML returns the tree of a document. The error is [rulesfile.Errors].
func readYAML(data []byte) (*rulesfile.Node, error) {
	if err := readable(data); err != nil {
		return nil, rulesfile.Errors{err}
	}
	root, err := compose(data)
	if err != nil {
		return nil, rulesfile.Errors{err}
	}
	t := &tree{done: make(map[*yaml.Node]*branch)}
	b, err := t.node(root, 0)
	if err != nil {
		return nil, rulesfile.Errors{err}
	}
	return b.node, nil
}

// compose has the library read the one document of a file.
func compose(data []byte) (root *yaml.Node, bad *rulesfile.Error) {
	defer func() {
		// The library panics where it finds itself at fault. A rules file may
		// not end the process.
		if r := recover(); r != nil {
			root, bad = nil, &rulesfile.Error{Reason: "the YAML library cannot read this file", Hint: "write it in a plainer form, or as JSON"}
		}
	}()
	loader, err := yaml.NewLoader(&sips{data}, yaml.WithPlugin(bounds{}))
	if err != nil {
		return nil, explain(data, err)
	}
	var doc, second yaml.Node
	switch err = loader.Load(&doc); {
	case err == io.EOF || err == nil && len(doc.Content) == 0:
		return nil, &rulesfile.Error{Line: 1, Column: 1, Reason: "the file is empty", Hint: "want rules: and a list of rules"}
	case err != nil:
		return nil, explain(data, err)
	}
	switch err = loader.Load(&second); {
	case err == nil:
		return nil, &rulesfile.Error{Line: second.Line, Column: second.Column, Reason: "a second document begins", Hint: "one document a file"}
	case err != io.EOF:
		return nil, explain(data, err)
	}
	return doc.Content[0], nil
}

// sips hands over a document bit by bit: the library reads all at once, and
// requests are decided meanwhile.
type sips struct{ rest []byte }

// sip is how much is read in about a millisecond.
const sip = 4 << 10

// Read implements [io.Reader].
func (s *sips) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	runtime.Gosched()
	n := copy(p[:min(len(p), sip)], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// bounds end what nests too deep while it is being read. The tree's depth is
// checked again with aliases in their places; a list in a map counts twice for
// the library.
type bounds struct{}

var errDeep = errors.New("nested too deep")

// CheckDepth implements yaml.LoaderLimitsPlugin.
func (bounds) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > 2*maxDepth+2 {
		return errDeep
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin: aliases are not expanded by
// the library.
func (bounds) CheckAlias(int, int) error { return nil }

// readable refuses what is not UTF-8, control characters, and more starts of
// values than maxStarts.
func readable(data []byte) *rulesfile.Error {
	starts := 0
	for i := 0; i < len(data); {
		c, size := rune(data[i]), 1
		switch {
		case c >= utf8.RuneSelf:
			if c, size = utf8.DecodeRune(data[i:]); size == 1 {
				e := errorAt(data, i, "not UTF-8", "save the file as UTF-8")
				if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
					e.Reason = "not UTF-8, but UTF-16"
				}
				return e
			}
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
			return errorAt(data, i, fmt.Sprintf("control character %q", c), `write it as an escape in double quotes, such as "\u0001"`)
		case c == ',' || c == '[' || c == '{' || c == ':', (c == '-' || c == '?') && blankAt(data, i+1):
			if starts++; starts > maxStarts {
				return errorAt(data, i, fmt.Sprintf("more than %d values", maxStarts), "a JSON file may hold four times as many")
			}
		}
		i += size
	}
	return nil
}

func blankAt(data []byte, i int) bool {
	return i >= len(data) || data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r'
}

// errorAt returns the error of a byte.
func errorAt(data []byte, i int, reason, hint string) *rulesfile.Error {
	before := data[:i]
	start := bytes.LastIndexByte(before, '\n') + 1
	return &rulesfile.Error{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(before[start:]) + 1,
		Reason: reason, Hint: hint,
	}
}
