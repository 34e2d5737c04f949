package rulesfile

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What a rules file may hold at most. 100,000 overrides of a hundred bytes are
// 10 MB; depth is that of the deepest rule, twice over.
const (
	maxBytes = 32 << 20
	maxNodes = 4 << 20
	maxDepth = 16
)

// A jsonReader reads JSON as RFC 8259 has it into nodes. encoding/json would
// take what is not UTF-8 and does not say where a value begins.
type jsonReader struct {
	data  []byte
	at    int
	nodes int

	line, column, counted int // of data[counted]
}

// ReadJSON returns the tree of a JSON document, for callers of [Decode] that
// have fields of their own. The error is [Errors].
func ReadJSON(data []byte) (*Node, error) {
	root, err := readJSON(data)
	if err != nil {
		return nil, Errors{err}
	}
	return root, nil
}

// readJSON returns the tree of a document.
func readJSON(data []byte) (*Node, *Error) {
	r := &jsonReader{data: data, line: 1, column: 1}
	if len(data) > maxBytes {
		return nil, &Error{Reason: fmt.Sprintf("a file of %d bytes: at most %d", len(data), maxBytes)}
	}
	r.blanks()
	if r.at == len(data) {
		return nil, r.fail("the file is empty", `want {"rules": […]}`)
	}
	n, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if r.blanks(); r.at < len(data) {
		return nil, r.fail("something follows the end of the document", "one document a file")
	}
	return n, nil
}

// place returns the line and column of the next byte.
func (r *jsonReader) place() (line, column int) {
	for r.counted < r.at {
		c, size := utf8.DecodeRune(r.data[r.counted:r.at])
		if r.column++; c == '\n' {
			r.line, r.column = r.line+1, 1
		}
		r.counted += size
	}
	return r.line, r.column
}

func (r *jsonReader) fail(reason, hint string) *Error {
	line, column := r.place()
	return &Error{Line: line, Column: column, Reason: reason, Hint: hint}
}

// want fails at the next byte, which is not what should be there.
func (r *jsonReader) want(what string) *Error {
	if r.at >= len(r.data) {
		return r.fail("the file ends where "+what+" should be", "it may be truncated")
	}
	c, size := utf8.DecodeRune(r.data[r.at:])
	if c == utf8.RuneError && size == 1 {
		return r.fail("not UTF-8", "")
	}
	return r.fail(fmt.Sprintf("want %s, not %q", what, c), "")
}

func (r *jsonReader) blanks() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return
		}
	}
}

// peek skips blanks and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	if r.blanks(); r.at < len(r.data) {
		return r.data[r.at]
	}
	return 0
}

func (r *jsonReader) value(depth int) (*Node, *Error) {
	c := r.peek()
	n := &Node{}
	n.Line, n.Column = r.place()
	if r.nodes++; r.nodes > maxNodes {
		return nil, r.fail(fmt.Sprintf("more than %d values", maxNodes), "")
	}
	if depth > maxDepth {
		return nil, r.fail(fmt.Sprintf("nested deeper than %d", maxDepth), "")
	}
	switch {
	case c == '{':
		return n, r.object(n, depth)
	case c == '[':
		return n, r.list(n, depth)
	case c == '"':
		n.Kind = String
		return n, r.text(&n.Value)
	case c == '-' || c >= '0' && c <= '9':
		n.Kind = Number
		return n, r.number(n)
	}
	for word, kind := range map[string]Kind{"true": Bool, "false": Bool, "null": Null} {
		if end := r.at + len(word); end <= len(r.data) && string(r.data[r.at:end]) == word {
			n.Kind, n.Value, r.at = kind, word, end
			return n, nil
		}
	}
	return nil, r.want("a value")
}

func (r *jsonReader) object(n *Node, depth int) *Error {
	n.Kind = MapKind
	r.at++
	if r.peek() == '}' {
		r.at++
		return nil
	}
	for {
		if r.peek() != '"' {
			return r.want("a field's name in quotes")
		}
		var f Field
		var err *Error
		f.Line, f.Column = r.place()
		if err = r.text(&f.Name); err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.want("a colon")
		}
		r.at++
		if f.Value, err = r.value(depth + 1); err != nil {
			return err
		}
		n.Fields = append(n.Fields, f)
		switch r.peek() {
		case ',':
			r.at++
		case '}':
			r.at++
			return nil
		default:
			return r.want("a comma or the end of the map")
		}
	}
}

func (r *jsonReader) list(n *Node, depth int) *Error {
	n.Kind = List
	r.at++
	if r.peek() == ']' {
		r.at++
		return nil
	}
	for {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
		switch r.peek() {
		case ',':
			r.at++
		case ']':
			r.at++
			return nil
		default:
			return r.want("a comma or the end of the list")
		}
	}
}

func (r *jsonReader) digits() bool {
	start := r.at
	for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

func (r *jsonReader) next(of string) bool {
	for i := range len(of) {
		if r.at < len(r.data) && r.data[r.at] == of[i] {
			r.at++
			return true
		}
	}
	return false
}

func (r *jsonReader) number(n *Node) *Error {
	start := r.at
	r.next("-")
	if !r.next("0") && !r.digits() {
		return r.want("a digit")
	}
	if r.next(".") && !r.digits() {
		return r.want("a digit")
	}
	if r.next("eE") {
		r.next("+-")
		if !r.digits() {
			return r.want("a digit")
		}
	}
	n.Value = string(r.data[start:r.at])
	return nil
}

// text reads a string.
func (r *jsonReader) text(to *string) *Error {
	r.at++
	start := r.at
	var out []byte // from the first escape on
	for r.at < len(r.data) {
		c := r.data[r.at]
		switch {
		case c == '"':
			*to = string(out) + string(r.data[start:r.at])
			r.at++
			return nil
		case c == '\\':
			out = append(out, r.data[start:r.at]...)
			var ok bool
			if out, ok = r.escape(out); !ok {
				return r.fail("no escape that JSON knows", `in JSON a backslash is written \\`)
			}
			start = r.at
		case c < ' ':
			return r.fail(fmt.Sprintf("control character %q in text", c), "write it as an escape")
		case c < utf8.RuneSelf:
			r.at++
		default:
			_, size := utf8.DecodeRune(r.data[r.at:])
			if size == 1 {
				return r.fail("not UTF-8", "")
			}
			r.at += size
		}
	}
	return r.want("the quote that ends the text")
}

var plainEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape appends what the escape at the next byte stands for.
func (r *jsonReader) escape(out []byte) ([]byte, bool) {
	if r.at+1 >= len(r.data) {
		return out, false
	}
	if c, ok := plainEscapes[r.data[r.at+1]]; ok {
		r.at += 2
		return append(out, c), true
	}
	c, ok := r.unit()
	if !ok {
		return out, false
	}
	if utf16.IsSurrogate(c) {
		low, ok := r.unit()
		if c = utf16.DecodeRune(c, low); !ok || c == utf8.RuneError {
			return out, false // half a pair
		}
	}
	return utf8.AppendRune(out, c), true
}

// unit reads one \u escape.
func (r *jsonReader) unit() (rune, bool) {
	if r.at+6 > len(r.data) || r.data[r.at] != '\\' || r.data[r.at+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(r.data[r.at+2:r.at+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	r.at += 6
	return rune(v), true
}
