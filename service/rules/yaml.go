package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/policy/rulesfile"
	"go.yaml.in/yaml/v4"
)

const (
	// maxDepth is enough for configurations of gateways and objects of Kubernetes; no rules file
	// comes near it. maxValues is package policy's bound, also for JSON. Both count an alias each
	// time it is used. The decoder of rules decodes shared lists only once, so rules are the
	// exception.
	maxDepth  = 64
	maxValues = 4 << 20
	// maxStarts bounds the memory that the YAML library takes before anything can be counted: up to
	// 600 MB at this bound. 100,000 overrides of a line each have 800,000 starts.
	maxStarts = 1 << 20
)

// ReadYAML returns the tree of a YAML document of another program, under the bounds of a rules file.
// The error is [rulesfile.Errors].
func ReadYAML(data []byte) (*rulesfile.Node, error) { return expanded(readYAML(data, true)) }

// readYAML also returns how many values the tree has when each alias counts as the values that it
// stands for.
func readYAML(data []byte, foreign bool) (root *rulesfile.Node, values int, err error) {
	if err := readable(data); err != nil {
		return nil, 0, rulesfile.Errors{err}
	}
	composed, bad := compose(data)
	if bad != nil {
		return nil, 0, rulesfile.Errors{bad}
	}
	t := &tree{done: make(map[*yaml.Node]*branch), foreign: foreign}
	b, bad := t.node(composed, 0)
	if bad != nil {
		return nil, 0, rulesfile.Errors{bad}
	}
	return b.node, b.size, nil
}

// expanded refuses a tree of too many values, since readers of a tree visit an alias each time it
// is used. Only the decoder of rules does not, and counts itself.
func expanded(root *rulesfile.Node, values int, err error) (*rulesfile.Node, error) {
	if err == nil && values > maxValues {
		return nil, rulesfile.Errors{{Line: root.Line, Column: root.Column, Hint: "aliases count each time they are used", Reason: fmt.Sprintf("more than %d values", maxValues)}}
	}
	return root, err
}

// compose lets the library parse the single document of a file.
func compose(data []byte) (root *yaml.Node, bad *rulesfile.Error) {
	defer func() {
		// The library panics on its own errors. A rules file must not end the process.
		if r := recover(); r != nil {
			root, bad = nil, &rulesfile.Error{Reason: "the YAML library cannot read this file", Hint: "write it in a plainer form, or as JSON"}
		}
	}()
	loader, err := yaml.NewLoader(&chunkReader{data}, yaml.WithPlugin(bounds{}))
	if err != nil {
		return nil, explain(data, err)
	}
	var doc, second yaml.Node
	switch err = loader.Load(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, &rulesfile.Error{Line: 1, Column: 1, Reason: "the file is empty", Hint: "want rules: and a list of rules"}
	case err != nil:
		return nil, explain(data, err)
	}
	switch err = loader.Load(&second); {
	case err == nil:
		return nil, &rulesfile.Error{Line: second.Line, Column: second.Column, Reason: "a second document begins", Hint: "one document a file"}
	case !errors.Is(err, io.EOF):
		return nil, explain(data, err)
	}
	return doc.Content[0], nil
}

// A chunkReader gives the library a document in small pieces, so that requests are decided while it
// parses.
type chunkReader struct{ rest []byte }

// chunkBytes is how much the library parses in about a millisecond.
const chunkBytes = 4 << 10

// Read implements [io.Reader].
func (s *chunkReader) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	runtime.Gosched()
	n := copy(p[:min(len(p), chunkBytes)], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// bounds stops the library when a document nests too deeply. The depth of the tree is checked again
// with aliases expanded, since the library does not expand them and counts a list in a map twice.
type bounds struct{}

var errDeep = errors.New("nested too deep")

// CheckDepth implements yaml.LoaderLimitsPlugin.
func (bounds) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > 2*maxDepth+2 {
		return errDeep
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin. The library does not expand aliases.
func (bounds) CheckAlias(int, int) error { return nil }

// readable refuses data that is not UTF-8 or has control characters, and data that has more than
// maxStarts starts of values outside of quoted text.
func readable(data []byte) *rulesfile.Error {
	starts := 0
	text := quotes{data: data}
	for i := 0; i < len(data); {
		c, size := rune(data[i]), 1
		quoted := text.inside(i)
		switch {
		case c >= utf8.RuneSelf:
			if _, size = utf8.DecodeRune(data[i:]); size == 1 {
				e := errorAt(data, i, "not UTF-8", "save the file as UTF-8")
				if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
					e.Reason = "not UTF-8, but UTF-16"
				}
				return e
			}
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
			return errorAt(data, i, fmt.Sprintf("control character %q", c), `write it as an escape in double quotes, such as "\u0001"`)
		case quoted:
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

// errorAt returns an error at byte i.
func errorAt(data []byte, i int, reason, hint string) *rulesfile.Error {
	before := data[:i]
	start := bytes.LastIndexByte(before, '\n') + 1
	return &rulesfile.Error{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(before[start:]) + 1,
		Reason: reason, Hint: hint,
	}
}

var deepReason = fmt.Sprintf("nested deeper than %d", maxDepth)

// A tree converts the library's nodes into package policy's. A node with an anchor is converted
// once and shared by its aliases, so that a small file stays small.
type tree struct {
	done   map[*yaml.Node]*branch // by anchor; nil while it is being converted
	merged int                    // number of values that merge keys repeat
	// foreign says that another program reads the file, too. Many let a merge key overwrite the
	// fields before it, against YAML's definition, as yaml.v2 does: such a merge is refused.
	foreign bool
}

// A branch is a node with the number of levels and of values below it.
type branch struct {
	node         *rulesfile.Node
	height, size int
}

func failAt(n *yaml.Node, hint, format string, args ...any) *rulesfile.Error {
	return &rulesfile.Error{Line: n.Line, Column: n.Column, Reason: wording.Sprintf(format, args...), Hint: hint}
}

// node converts a node that is depth levels below the root.
func (t *tree) node(n *yaml.Node, depth int) (*branch, *rulesfile.Error) {
	if n.Kind == yaml.AliasNode {
		return t.alias(n, depth)
	}
	if depth > maxDepth {
		return nil, failAt(n, "", "%s", deepReason)
	}
	if n.Anchor != "" {
		t.done[n] = nil
	}
	b := &branch{node: &rulesfile.Node{Line: n.Line, Column: n.Column}, size: 1}
	var err *rulesfile.Error
	switch n.Kind {
	case yaml.ScalarNode:
		err = scalar(n, b.node)
	case yaml.SequenceNode:
		err = t.list(n, b, depth)
	case yaml.MappingNode:
		err = t.fields(n, b, depth)
	default:
		err = failAt(n, "", "neither text nor a list nor a map")
	}
	if n.Anchor != "" {
		t.done[n] = b
	}
	return b, err
}

func (t *tree) alias(n *yaml.Node, depth int) (*branch, *rulesfile.Error) {
	b := t.done[n.Alias]
	switch {
	case b == nil:
		return nil, failAt(n, "", "alias *%s stands inside of what it stands for", n.Value)
	case depth+b.height > maxDepth:
		return nil, failAt(n, "", "%s by alias *%s", deepReason, n.Value)
	}
	return b, nil
}

// under adds below, one of its children, to b.
func (b *branch) under(below *branch) {
	b.height, b.size = max(b.height, below.height+1), min(b.size+below.size, maxValues+1)
}

func (t *tree) list(n *yaml.Node, b *branch, depth int) *rulesfile.Error {
	if err := tagged(n, "!!seq"); err != nil {
		return err
	}
	b.node.Kind = rulesfile.List
	b.node.Items = make([]*rulesfile.Node, 0, len(n.Content))
	for i, item := range n.Content {
		if i%64 == 63 { // lets requests be decided
			runtime.Gosched()
		}
		below, err := t.node(item, depth+1)
		if err != nil {
			return err
		}
		b.under(below)
		b.node.Items = append(b.node.Items, below.node)
	}
	return nil
}

func (t *tree) fields(n *yaml.Node, b *branch, depth int) *rulesfile.Error {
	if err := tagged(n, "!!map"); err != nil {
		return err
	}
	b.node.Kind = rulesfile.MapKind
	b.node.Fields = make([]rulesfile.Field, 0, len(n.Content)/2)
	var merge *yaml.Node
	var from *branch
	before := 0 // fields in front of the merge key
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		below, err := t.node(value, depth+1)
		if err != nil {
			return err
		}
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			if merge != nil {
				return failAt(key, "merge several by <<: [*a, *b]", "field \"<<\" twice: it is in line %d already", merge.Line)
			}
			merge, from, before = key, below, len(b.node.Fields)
			continue
		}
		b.under(below)
		name, err := fieldName(key)
		if err != nil {
			return err
		}
		b.node.Fields = append(b.node.Fields, rulesfile.Field{Name: name, Line: key.Line, Column: key.Column, Value: below.node})
	}
	if merge == nil {
		return nil
	}
	b.height, b.size = max(b.height, from.height), min(b.size+from.size, maxValues+1)
	return t.merge(merge, from.node, b.node, before)
}

// merge adds the fields of a map, or of each of a list of maps, that the map does not have. The
// merge key stands behind so many of the map's fields as before says.
func (t *tree) merge(key *yaml.Node, from, to *rulesfile.Node, before int) *rulesfile.Error {
	have, early := make(map[string]bool), make(map[string]bool)
	for i, f := range to.Fields {
		have[f.Name] = true
		early[f.Name] = t.foreign && i < before
	}
	maps := []*rulesfile.Node{from}
	if from.Kind == rulesfile.List {
		maps = from.Items
	}
	for _, m := range maps {
		if m.Kind != rulesfile.MapKind {
			return failAt(key, `such as <<: *defaults; a field named << is written "<<"`, "want a map to merge, or a list of maps, not %v", m.Kind)
		}
		if t.merged += len(m.Fields) + 1; t.merged > maxValues {
			return failAt(key, "merge keys count each time they are used", "more than %d values", maxValues)
		}
		for _, f := range m.Fields {
			if early[f.Name] {
				return failAt(key, "write << before all fields", "<< brings a field %q that stands before it: programs differ in which of the two counts", f.Name)
			}
			if !have[f.Name] {
				have[f.Name] = true
				to.Fields = append(to.Fields, f)
			}
		}
	}
	return nil
}

// fieldName returns the name of a field: text, or a number or word as it is written.
func fieldName(n *yaml.Node) (string, *rulesfile.Error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var text rulesfile.Node
	if n.Kind != yaml.ScalarNode {
		return "", failAt(n, "put text that begins with a bracket or brace in quotes", "a field's name must be text")
	}
	if err := scalar(n, &text); err != nil {
		return "", err
	}
	if text.Kind == rulesfile.Null {
		return "", failAt(n, "put it in quotes if it is a name", "a field without a name")
	}
	return n.Value, nil
}

// The core schema of YAML 1.2, section 10.3.2. Underscores in numbers are our addition, since
// limits allow them.
var (
	numbers = regexp.MustCompile(`^[-+]?([0-9][0-9_]*|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|^0o[0-7]+$|^0x[0-9a-fA-F]+$|^\.(nan|NaN|NAN)$`)
	words   = map[string]rulesfile.Kind{
		"": rulesfile.Null, "~": rulesfile.Null, "null": rulesfile.Null, "Null": rulesfile.Null, "NULL": rulesfile.Null,
		"true": rulesfile.Bool, "True": rulesfile.Bool, "TRUE": rulesfile.Bool,
		"false": rulesfile.Bool, "False": rulesfile.Bool, "FALSE": rulesfile.Bool,
	}
)

// scalar sets the kind and the value of a scalar.
func scalar(n *yaml.Node, to *rulesfile.Node) *rulesfile.Error {
	to.Kind, to.Value = rulesfile.String, n.Value
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		return cast(n, to)
	case n.Tag == "!", n.Style&quoted != 0:
		return nil
	}
	plainScalar(n.Value, to)
	return nil
}

// plainScalar sets the kind of a scalar without quotes.
func plainScalar(text string, to *rulesfile.Node) {
	kind, word := words[text]
	switch {
	case word:
		to.Kind = kind // the text stays, for who reads text
	case text == "" || !strings.ContainsRune("-+.0123456789", rune(text[0])): // most texts are neither
	case numbers.MatchString(text):
		to.Kind = rulesfile.Number
	}
}

// cast sets the kind that a tag asks for.
func cast(n *yaml.Node, to *rulesfile.Node) *rulesfile.Error {
	want, known := map[string]rulesfile.Kind{
		"!!str": rulesfile.String, "!!null": rulesfile.Null, "!!bool": rulesfile.Bool,
		"!!int": rulesfile.Number, "!!float": rulesfile.Number,
	}[n.Tag]
	if !known {
		return failAt(n, "drop the tag, or put text that begins with ! in quotes", "unknown tag %s", n.Tag)
	}
	if want == rulesfile.String {
		return nil
	}
	if plainScalar(n.Value, to); to.Kind != want {
		return failAt(n, "drop the tag", "%v is no value of tag %s", to.Kind, n.Tag)
	}
	return nil
}

// tagged refuses a tag that contradicts the kind of its node.
func tagged(n *yaml.Node, tag string) *rulesfile.Error {
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != tag {
		return failAt(n, "drop the tag", "unknown tag %s", n.Tag)
	}
	return nil
}

// ReadTree returns the tree of a YAML document, or of JSON where [Decode] would read a file of that
// name as JSON. The error is [rulesfile.Errors].
func ReadTree(name string, data []byte) (*rulesfile.Node, error) {
	return expanded(readTree(name, data))
}

func readTree(name string, data []byte) (root *rulesfile.Node, values int, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if isJSON(name, data) {
		root, err = rulesfile.ReadJSON(data)
		return root, 0, err
	}
	return readYAML(data, false)
}
