package importers

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// mostRepeated is how many values a list may have to be written wherever it is used. A
// longer list is written once, with an anchor, and then as an alias.
const mostRepeated = 8

// mostBytes is the greatest size of a rules file, as package rules has it.
const mostBytes = 32 << 20

// A writer writes a rules file as YAML, and sets the line and column of each node. Each field
// of a rule has its own line, with all of its value, unless that is a list of maps.
type writer struct {
	b            bytes.Buffer
	line, column int
	anchors      map[*rulesfile.Node]string // names of the lists that are written once
	written      map[*rulesfile.Node]bool   // the lists with an anchor that are written already
}

func newWriter() *writer {
	return &writer{line: 1, column: 1, anchors: map[*rulesfile.Node]string{}, written: map[*rulesfile.Node]bool{}}
}

// begin writes a file up to the value of its last field, the list of rules.
func (w *writer) begin(root *rulesfile.Node) {
	root.Line, root.Column = w.line, w.column
	last := len(root.Fields) - 1
	for i := range root.Fields[:last] {
		w.field(&root.Fields[i], 0)
		w.newLine(0)
	}
	w.name(&root.Fields[last])
}

// item writes one rule of the list.
func (w *writer) item(list, rule *rulesfile.Node) {
	if w.newLine(2); list.Line == 0 {
		list.Line, list.Column = w.line, w.column
	}
	w.put("- ")
	rule.Line, rule.Column = w.line, w.column
	for k := range rule.Fields {
		if k > 0 {
			w.newLine(4)
		}
		w.field(&rule.Fields[k], 4)
	}
}

// end returns the whole text.
func (w *writer) end(list *rulesfile.Node) []byte {
	if list.Line == 0 { // there is no rule
		w.put(" ")
		list.Line, list.Column = w.line, w.column
		w.put("[]")
	}
	w.newLine(0)
	return bytes.Clone(w.b.Bytes()) // the buffer may be twice as large, and would live as long as the rules
}

func (w *writer) put(text string) {
	w.b.WriteString(text)
	w.column += utf8.RuneCountInString(text)
}

// blanks is the indent of the deepest line.
const blanks = "      "

func (w *writer) newLine(indent int) {
	w.b.WriteByte('\n')
	w.b.WriteString(blanks[:indent])
	w.line, w.column = w.line+1, indent+1
}

func (w *writer) name(f *rulesfile.Field) {
	f.Line, f.Column = w.line, w.column
	w.put(quoted(f.Name))
	w.put(":")
}

// field writes a field at an indent, without the end of its last line.
func (w *writer) field(f *rulesfile.Field, indent int) {
	w.name(f)
	list := f.Value
	if list.Kind != rulesfile.List || len(list.Items) == 0 || list.Items[0].Kind != rulesfile.MapKind {
		w.put(" ")
		w.value(f.Value)
		return
	}
	for i, item := range list.Items {
		if w.newLine(indent + 2); i == 0 {
			list.Line, list.Column = w.line, w.column
		}
		w.put("- ")
		w.value(item)
	}
}

// value writes a value in one line.
func (w *writer) value(n *rulesfile.Node) {
	if n.Kind == rulesfile.List && w.anchors[n] != "" {
		if w.written[n] {
			w.put("*" + w.anchors[n])
			return
		}
		w.written[n] = true
		w.put("&" + w.anchors[n] + " ")
	}
	n.Line, n.Column = w.line, w.column
	between := func(i int) {
		if i > 0 {
			w.put(", ")
		}
	}
	switch n.Kind {
	case rulesfile.String:
		w.put(quoted(n.Value))
	case rulesfile.List:
		w.put("[")
		for i, item := range n.Items {
			between(i)
			w.value(item)
		}
		w.put("]")
	case rulesfile.MapKind:
		w.put("{")
		for i := range n.Fields {
			f := &n.Fields[i]
			between(i)
			w.name(f)
			w.put(" ")
			w.value(f.Value)
		}
		w.put("}")
	default:
		w.put(n.Value)
	}
}

// plain reports whether YAML reads text as itself without quotes, unless it is a word.
func plain(text string) bool {
	for i := range len(text) {
		c := text[i]
		first := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '/'
		if !first && (i == 0 || (c < '0' || c > '9') && c != '.' && c != '*' && c != '-') {
			return false
		}
	}
	return text != ""
}

// word reports whether YAML may read a text as a boolean or null.
func word(text string) bool {
	if len(text) > len("false") {
		return false
	}
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return true
	}
	return false
}

// quoted returns text as YAML, in quotes if it needs them. Quoted text is a JSON string.
func quoted(text string) string {
	if plain(text) && !word(text) {
		return text
	}
	if !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return `"` + text + `"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be written
	return strings.TrimSuffix(b.String(), "\n")
}
