// Package strictjson reads JSON as RFC 8259 defines it, value by value, for
// callers that know which shapes they want. encoding/json takes fields in any
// case and twice, replaces what is not UTF-8, and does not say where a value
// begins: a request that says "Cost" would cost 1.
//
// Nothing is nested deeper than the caller asks for. Text without escapes is
// part of what is read, not a copy. A Reader belongs to one goroutine.
package strictjson

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// An Error says what is wrong, and where.
type Error struct {
	Offset int    // of the byte at fault, from 0
	Reason string // what is wrong
	Hint   string // what would be right; may be empty
}

// Error returns one line, in which bytes count from 1.
func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset+1, e.Reason)
	}
	return fmt.Sprintf("byte %d: %s; %s", e.Offset+1, e.Reason, e.Hint)
}

// A Reader reads one document. Make it with [New].
type Reader struct {
	text string
	what string
	at   int
	name int // where the name of the field at hand begins
}

// New returns a reader of a text. What it is, such as "the line", is for errors.
func New(text, what string) Reader { return Reader{text: text, what: what} }

// Offset returns where the next byte is.
func (r *Reader) Offset() int { return r.at }

// NameOffset returns where the name begins that Object has read last.
func (r *Reader) NameOffset() int { return r.name }

// Fail returns an error at the next byte.
func (r *Reader) Fail(reason, hint string) error { return &Error{r.at, reason, hint} }

// Want says what should stand at the next byte, and what does.
func (r *Reader) Want(what string) error {
	if r.at >= len(r.text) {
		return r.Fail(fmt.Sprintf("%s ends where %s should be", r.what, what), "it may be truncated")
	}
	c, size := utf8.DecodeRuneInString(r.text[r.at:])
	if c == utf8.RuneError && size == 1 {
		return r.Fail("not UTF-8", "")
	}
	return r.Fail(fmt.Sprintf("want %s, not %s", what, r.kind()), "")
}

// kind says what the value at the next byte is.
func (r *Reader) kind() string {
	switch c := r.text[r.at]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '"':
		return "text"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(r.text[r.at:], word) {
			return word
		}
	}
	c, _ := utf8.DecodeRuneInString(r.text[r.at:])
	return fmt.Sprintf("%q", c)
}

// Next skips blanks and returns the byte behind them, 0 at the end.
func (r *Reader) Next() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (r *Reader) expect(c byte, want string) error {
	if r.Next() != c || r.at >= len(r.text) {
		return r.Want(want)
	}
	r.at++
	return nil
}

// End makes sure that nothing follows.
func (r *Reader) End() error {
	if r.Next(); r.at < len(r.text) {
		return r.Fail("something follows the end of the document", "one document in "+r.what)
	}
	return nil
}

// Object reads an object, and calls field with each name to read what follows.
func (r *Reader) Object(field func(name string) error) error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	if r.Next() == '}' {
		r.at++
		return nil
	}
	for {
		r.Next()
		begin := r.at
		name, err := r.Text("a field's name in quotes")
		if err != nil {
			return err
		}
		if err := r.expect(':', "a colon"); err != nil {
			return err
		}
		r.name = begin
		if err := field(name); err != nil {
			return err
		}
		switch r.Next() {
		case ',':
			r.at++
		case '}':
			r.at++
			return nil
		default:
			return r.Want(`"," or "}"`)
		}
	}
}

// List reads a list, and calls item to read each value.
func (r *Reader) List(item func() error) error {
	if err := r.expect('[', "a list"); err != nil {
		return err
	}
	if r.Next() == ']' {
		r.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.Next() {
		case ',':
			r.at++
		case ']':
			r.at++
			return nil
		default:
			return r.Want(`"," or "]"`)
		}
	}
}

// Literal reads true, false or null, or returns "" and reads nothing.
func (r *Reader) Literal() string {
	r.Next()
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(r.text[r.at:], word) {
			r.at += len(word)
			return word
		}
	}
	return ""
}

// Number reads a number and returns it as written.
func (r *Reader) Number() (string, error) {
	r.Next()
	begin := r.at
	r.accept("-")
	if !r.accept("0") && !r.digits() {
		return "", r.Want("a number")
	}
	if r.accept(".") && !r.digits() {
		return "", r.Want("a digit")
	}
	if r.accept("eE") {
		r.accept("+-")
		if !r.digits() {
			return "", r.Want("a digit")
		}
	}
	return r.text[begin:r.at], nil
}

// MaxExact is the greatest whole number that every program reads and writes exactly: many keep
// numbers as doubles.
const MaxExact = 1<<53 - 1

// Integer reads a whole number from 0 to the greatest int64, written in digits.
func (r *Reader) Integer() (int64, error) {
	r.Next()
	begin := r.at
	text, err := r.Number()
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, c := range []byte(text) {
		switch {
		case c < '0' || c > '9':
			return 0, &Error{begin, "want a whole number from 0, written in digits", ""}
		case n > (math.MaxInt64-int64(c-'0'))/10:
			return 0, &Error{begin, fmt.Sprintf("above the greatest whole number, %d", int64(math.MaxInt64)), ""}
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

func (r *Reader) accept(any string) bool {
	if r.at < len(r.text) && strings.IndexByte(any, r.text[r.at]) >= 0 {
		r.at++
		return true
	}
	return false
}

func (r *Reader) digits() bool {
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > begin
}

// Text reads text; want is what it should be, for errors.
func (r *Reader) Text(want string) (string, error) {
	if err := r.expect('"', want); err != nil {
		return "", err
	}
	begin := r.at
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			return r.text[begin : r.at-1], nil
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return r.unescape([]byte(r.text[begin:r.at]))
		}
	}
	return "", r.Want("the quote that ends the text")
}

// unescape reads on behind plain text.
func (r *Reader) unescape(text []byte) (string, error) {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			return string(text), nil
		case c < ' ':
			return "", r.Fail(fmt.Sprintf("control character %q in text", c), "write it as an escape")
		case c == '\\':
			var ok bool
			if text, ok = r.escape(text); !ok {
				return "", r.Fail("no escape that JSON knows, or half of a surrogate pair", `in JSON a backslash is written \\`)
			}
		default:
			_, size := utf8.DecodeRuneInString(r.text[r.at:])
			if size == 1 && c >= utf8.RuneSelf {
				return "", r.Fail("not UTF-8", "")
			}
			text = append(text, r.text[r.at:r.at+size]...)
			r.at += size
		}
	}
	return "", r.Want("the quote that ends the text")
}

// escape appends what the escape at the next byte stands for. Half of a
// surrogate pair is refused: two such keys would otherwise become one.
func (r *Reader) escape(text []byte) ([]byte, bool) {
	if r.at+1 >= len(r.text) {
		return text, false
	}
	if i := strings.IndexByte(`"\/bfnrt`, r.text[r.at+1]); i >= 0 {
		r.at += 2
		return append(text, "\"\\/\b\f\n\r\t"[i]), true
	}
	c, ok := hex(r.text[r.at:])
	size := len(`\u0000`)
	if ok && utf16.IsSurrogate(c) {
		low, paired := hex(r.text[r.at+size:])
		c = utf16.DecodeRune(c, low)
		ok, size = paired && c != utf8.RuneError, 2*size
	}
	if !ok {
		return text, false
	}
	r.at += size
	return utf8.AppendRune(text, c), true
}

// hex reads one \u escape.
func hex(text string) (c rune, ok bool) {
	if len(text) < len(`\u0000`) || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, d := range []byte(text[2:6]) {
		switch {
		case d >= '0' && d <= '9':
			c = c<<4 | rune(d-'0')
		case d|0x20 >= 'a' && d|0x20 <= 'f':
			c = c<<4 | rune(d|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return c, true
}
