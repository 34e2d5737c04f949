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
	// maxDepth is that of configurations of gateways and of objects of Kubernetes;
	// no rules file comes near. maxValues is package policy's bound, for JSON too.
	// Both count aliases each time they are used.
	maxDepth  = 64
	maxValues = 4 << 20
	// maxStarts bounds the memory that the YAML library takes before it lets
	// anything be counted: up to 600 MB at this bound. 100,000 overrides of a
	// line each have 800,000 starts.
	maxStarts = 1 << 20
)

// ReadYAML returns the tree of a YAML document that need not be a rules file,
// under the bounds of one. The error is [rulesfile.Errors].
func ReadYAML(data []byte) (*rulesfile.Node, error) {
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

// chunkReader hands over a document bit by bit: the library reads all at once, and
// requests are decided meanwhile.
type chunkReader struct{ rest []byte }

// chunkBytes is how much is read in about a millisecond.
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
// values than maxStarts, but for those in quoted text.
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

var deepReason = fmt.Sprintf("nested deeper than %d", maxDepth)

// A tree turns the library's nodes into package policy's. What has an anchor
// is turned once and shared by its aliases, so that a small file stays small.
type tree struct {
	done   map[*yaml.Node]*branch // of anchors; nil while under way
	values int                    // that aliases and merge keys repeat
}

// A branch is a node, how many levels are below it, and how many values it is.
type branch struct {
	node         *rulesfile.Node
	height, size int
}

// repeat counts values that stand for others.
func (t *tree) repeat(at *yaml.Node, values int) *rulesfile.Error {
	if t.values += values; t.values > maxValues {
		return failAt(at, "aliases count each time they are used", "more than %d values", maxValues)
	}
	return nil
}

func failAt(n *yaml.Node, hint, format string, args ...any) *rulesfile.Error {
	return &rulesfile.Error{Line: n.Line, Column: n.Column, Reason: wording.Sprintf(format, args...), Hint: hint}
}

// node turns a node that is depth levels below the root.
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
	return b, t.repeat(n, b.size)
}

// under makes b one level higher than what is below it, and larger by it.
func (b *branch) under(below *branch) {
	b.height, b.size = max(b.height, below.height+1), b.size+below.size
}

func (t *tree) list(n *yaml.Node, b *branch, depth int) *rulesfile.Error {
	if err := tagged(n, "!!seq"); err != nil {
		return err
	}
	b.node.Kind = rulesfile.List
	b.node.Items = make([]*rulesfile.Node, 0, len(n.Content))
	for i, item := range n.Content {
		if i%64 == 63 { // requests are decided meanwhile
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
			merge, from = key, below
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
	b.height, b.size = max(b.height, from.height), b.size+from.size
	return t.merge(merge, from.node, b.node)
}

// merge adds the fields of a map, or of each of a list of maps, that are not
// there yet.
func (t *tree) merge(key *yaml.Node, from, to *rulesfile.Node) *rulesfile.Error {
	have := make(map[string]bool)
	for _, f := range to.Fields {
		have[f.Name] = true
	}
	maps := []*rulesfile.Node{from}
	if from.Kind == rulesfile.List {
		maps = from.Items
	}
	for _, m := range maps {
		if m.Kind != rulesfile.MapKind {
			return failAt(key, `such as <<: *defaults; a field named << is written "<<"`, "want a map to merge, or a list of maps, not %v", m.Kind)
		}
		if err := t.repeat(key, len(m.Fields)+1); err != nil {
			return err
		}
		for _, f := range m.Fields {
			if !have[f.Name] {
				have[f.Name] = true
				to.Fields = append(to.Fields, f)
			}
		}
	}
	return nil
}

// fieldName returns the name of a field: text, or a number or word as written.
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

// YAML 1.2, 10.3.2: the core schema. Underscores in numbers are our own, since
// limits have them too.
var (
	numbers = regexp.MustCompile(`^[-+]?([0-9][0-9_]*|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|^0o[0-7]+$|^0x[0-9a-fA-F]+$|^\.(nan|NaN|NAN)$`)
	words   = map[string]rulesfile.Kind{
		"": rulesfile.Null, "~": rulesfile.Null, "null": rulesfile.Null, "Null": rulesfile.Null, "NULL": rulesfile.Null,
		"true": rulesfile.Bool, "True": rulesfile.Bool, "TRUE": rulesfile.Bool,
		"false": rulesfile.Bool, "False": rulesfile.Bool, "FALSE": rulesfile.Bool,
	}
)

// scalar sets the kind and the value of what is one word or text.
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

// plainScalar sets the kind that text without quotes has.
func plainScalar(text string, to *rulesfile.Node) {
	kind, word := words[text]
	switch {
	case word:
		to.Kind, to.Value = kind, strings.ToLower(text)
	case text == "" || !strings.ContainsRune("-+.0123456789", rune(text[0])): // as nearly all
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

// tagged refuses tags that do not say what the node is anyway.
func tagged(n *yaml.Node, tag string) *rulesfile.Error {
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != tag {
		return failAt(n, "drop the tag", "unknown tag %s", n.Tag)
	}
	return nil
}

// ReadTree is ReadYAML, or its like for JSON where [Decode] would take a file of
// that name for it.
func ReadTree(name string, data []byte) (*rulesfile.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if isJSON(name, data) {
		return rulesfile.ReadJSON(data)
	}
	return ReadYAML(data)
}
