package gateways

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/rules"
)

// A Document is a configuration, or an object of Kubernetes in a file.
type Document struct{ root node }

// Read reads the documents of a file and of the ConfigMaps in it. A name that ends in
// .toml is read as TOML, any other as YAML, which includes JSON.
func Read(name string, data []byte) ([]Document, error) { return read(name, name, data) }

// configured matches names of configurations in a ConfigMap.
var configured = regexp.MustCompile(`(?i)\.(ya?ml|json|toml)$`)

// limiting matches texts that may have a limit of these gateways.
var limiting = regexp.MustCompile(`(?i)rate.?limit|inFlight`)

// read reads documents by the ending of format; name is the file, for errors.
func read(name, format string, data []byte) (all []Document, err error) {
	if strings.HasSuffix(strings.ToLower(format), ".toml") {
		root, err := readTOML(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return []Document{{node{root, name}}}, nil
	}
	for _, text := range importers.Split(data) {
		root, err := rules.ReadYAML(text)
		if err != nil {
			return nil, &rules.Error{Name: name, Err: err}
		}
		n := node{root, name}
		list := []node{n}
		if items := n.get("items"); strings.HasSuffix(n.get("kind").text(), "List") && items.is(rulesfile.List) {
			list = items.list()
		}
		for _, n := range list {
			more, err := configMap(n)
			if err != nil {
				return nil, err
			}
			all = append(append(all, Document{n}), more...)
		}
	}
	return all, nil
}

// configMap reads the documents in an object, if it is a ConfigMap. A text that cannot be
// read is an error only if it may have a limit: else it belongs to another program.
func configMap(n node) (all []Document, err error) {
	if n.get("kind").text() != "ConfigMap" {
		return nil, nil
	}
	for _, f := range n.get("data").fields() {
		if !configured.MatchString(f.name) {
			continue
		}
		text := f.value.text()
		more, err := read(n.file, f.name, []byte(strings.Repeat("\n", f.value.Line)+text))
		if err != nil && limiting.MatchString(text) {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// A node is a value of a configuration, or no value if Node is nil.
type node struct {
	*rulesfile.Node
	file string
}

func (n node) where() string {
	if n.Node == nil {
		return n.file
	}
	return fmt.Sprintf("%s:%d", n.file, n.Line)
}

func (n node) is(kind rulesfile.Kind) bool { return n.Node != nil && n.Kind == kind }

// there reports whether there is a value.
func (n node) there() bool { return n.Node != nil && n.Kind != rulesfile.Null }

// get returns the value at a path of fields. If a field comes twice, the last one counts.
func (n node) get(path ...string) node {
	for _, name := range path {
		found := node{file: n.file}
		if n.is(rulesfile.MapKind) {
			for _, f := range n.Fields {
				if f.Name == name {
					found.Node = f.Value
				}
			}
		}
		n = found
	}
	return n
}

// anyCase is get, with names of fields in any case, and in snake_case or camelCase.
func (n node) anyCase(path ...string) node {
	for _, name := range path {
		for _, f := range n.fields() {
			if importers.Unscored(f.name) == importers.Unscored(name) {
				name = f.name
			}
		}
		n = n.get(name)
	}
	return n
}

// A field is a field of a map.
type field struct {
	name  string
	value node
}

// fields returns the fields of a map that have a value. A node that is no map has none.
func (n node) fields() (all []field) {
	if !n.is(rulesfile.MapKind) {
		return nil
	}
	for _, f := range n.Fields {
		if v := (node{f.Value, n.file}); v.there() {
			all = append(all, field{f.Name, v})
		}
	}
	return all
}

// list returns the items of a list. A single value counts as a list of one item.
func (n node) list() (all []node) {
	switch {
	case !n.there():
		return nil
	case n.Kind != rulesfile.List:
		return []node{n}
	}
	for _, item := range n.Items {
		if v := (node{item, n.file}); v.there() {
			all = append(all, v)
		}
	}
	return all
}

// text returns a scalar as it is written, "" for any other node.
func (n node) text() string {
	if n.is(rulesfile.String) || n.is(rulesfile.Number) || n.is(rulesfile.Bool) {
		return n.Value
	}
	return ""
}

// yes and no report whether a scalar is true or false, such as t, 1 and True.
func (n node) yes() bool { v, _ := strconv.ParseBool(n.text()); return v }

func (n node) no() bool { v, err := strconv.ParseBool(n.text()); return err == nil && !v }

// digits is text, without a fraction of 0 behind a number.
func (n node) digits() string {
	if whole, fraction, _ := strings.Cut(n.text(), "."); n.is(rulesfile.Number) && strings.Trim(fraction, "0") == "" {
		return whole
	}
	return n.text()
}

func (n node) texts() (all []string) {
	for _, item := range n.list() {
		all = append(all, item.text())
	}
	return all
}

// number returns a whole number of at least 0, or without if the value is missing or wrong.
func (c *converter) number(n node, without int64) int64 {
	if !n.there() {
		return without
	}
	if importers.Octal(n.Node) {
		c.fail(n, "%s is an octal number there: write it without the 0", n.text())
		return without
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(n.digits()), "_", ""), 10, 64)
	if err != nil || v < 0 {
		c.fail(n, "%q: want a whole number of at least 0", n.text())
		return without
	}
	return v
}

// readTOML reads TOML as the tree that it is.
func readTOML(data []byte) (*rulesfile.Node, error) {
	var any map[string]any
	if err := toml.Unmarshal(data, &any); err != nil { // refuses, among others, keys that come twice
		return nil, err
	}
	t := &tomlTree{data: data, line: 1}
	t.parser.Reset(data)
	root := &rulesfile.Node{Kind: rulesfile.MapKind, Line: 1, Column: 1}
	at := root
	for t.parser.NextExpression() {
		switch e := t.parser.Expression(); e.Kind {
		case unstable.Table:
			at = t.below(root, e.Key(), false)
		case unstable.ArrayTable:
			at = t.below(root, e.Key(), true)
		case unstable.KeyValue:
			t.set(at, e)
		}
	}
	return root, t.parser.Error()
}

type tomlTree struct {
	parser unstable.Parser
	data   []byte
	read   int // the offset of the last key
	line   int // the line of that key
}

// below returns the table of a key under at, and makes tables that are missing. With another,
// the last table is a new item of a list.
func (t *tomlTree) below(at *rulesfile.Node, key unstable.Iterator, another bool) *rulesfile.Node {
	for key.Next() {
		name := key.Node()
		if begin := int(name.Raw.Offset); begin > t.read {
			t.line += bytes.Count(t.data[t.read:begin], []byte("\n"))
			t.read = begin
		}
		i := slices.IndexFunc(at.Fields, func(f rulesfile.Field) bool { return f.Name == string(name.Data) })
		if i < 0 {
			i = len(at.Fields)
			at.Fields = append(at.Fields, rulesfile.Field{Name: string(name.Data), Line: t.line, Column: 1,
				Value: &rulesfile.Node{Kind: rulesfile.MapKind, Line: t.line, Column: 1}})
			if key.IsLast() && another {
				at.Fields[i].Value.Kind = rulesfile.List
			}
		}
		if at = at.Fields[i].Value; at.Kind == rulesfile.List {
			if key.IsLast() && another {
				at.Items = append(at.Items, &rulesfile.Node{Kind: rulesfile.MapKind, Line: t.line, Column: 1})
			}
			at = at.Items[len(at.Items)-1]
		}
	}
	return at
}

// set puts a key's value into a table.
func (t *tomlTree) set(at *rulesfile.Node, e *unstable.Node) {
	at = t.below(at, e.Key(), false)
	*at = *t.value(e.Value())
}

func (t *tomlTree) value(v *unstable.Node) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.String, Value: string(v.Data), Line: t.line, Column: 1}
	switch v.Kind {
	case unstable.Bool:
		n.Kind = rulesfile.Bool
	case unstable.Integer, unstable.Float:
		n.Kind = rulesfile.Number
	case unstable.Array:
		n.Kind = rulesfile.List
		for i := v.Children(); i.Next(); {
			if i.Node().Kind != unstable.Comment {
				n.Items = append(n.Items, t.value(i.Node()))
			}
		}
	case unstable.InlineTable:
		n.Kind = rulesfile.MapKind
		for i := v.Children(); i.Next(); {
			t.set(n, i.Node())
		}
	}
	return n
}
