package server

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON as RFC 8259 has it, and only the shapes that questions
// have: objects and lists of known depth, text and whole numbers. What it has
// no shape for is refused unread, so nothing can be nested deep. encoding/json
// takes fields in any case and twice, and patches what is not UTF-8: a body
// that says "Cost" would cost 1.
//
// Text that needs no unescaping is part of data.
type scanner struct {
	data string
	at   int
}

// bad returns the problem of what is in a body.
func bad(field, format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, field: field, detail: fmt.Sprintf(format, args...)}
}

// in says that a problem is in a field of its own, or in an item of a list.
func (p *problem) in(field string) *problem {
	switch {
	case p == nil:
	case p.field == "" || p.field[0] == '[':
		p.field = field + p.field
	default:
		p.field = field + "." + p.field
	}
	return p
}

// fail says what should stand at the next byte, and what does.
func (s *scanner) fail(want string) *problem {
	if s.at >= len(s.data) {
		return bad("", "byte %d: the body ends where %s should be", s.at+1, want)
	}
	r, size := utf8.DecodeRuneInString(s.data[s.at:])
	if r == utf8.RuneError && size == 1 {
		return bad("", "byte %d is not UTF-8", s.at+1)
	}
	return bad("", "byte %d: want %s, not %s", s.at+1, want, s.kind())
}

// kind says what the value at the next byte is.
func (s *scanner) kind() string {
	switch c := s.data[s.at]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '"':
		return "text"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(s.data[s.at:], word) {
			return word
		}
	}
	r, _ := utf8.DecodeRuneInString(s.data[s.at:])
	return fmt.Sprintf("%q", r)
}

// next skips blanks and returns the byte behind them, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte, want string) *problem {
	if s.next() != c || s.at >= len(s.data) {
		return s.fail(want)
	}
	s.at++
	return nil
}

// end makes sure that nothing follows.
func (s *scanner) end() *problem {
	if s.next(); s.at < len(s.data) {
		return bad("", "byte %d: something follows the end of the object", s.at+1)
	}
	return nil
}

// object reads an object, and calls value with each name to read what follows.
func (s *scanner) object(value func(name string) *problem) *problem {
	if err := s.expect('{', "an object"); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		name, err := s.text("a field's name in quotes")
		if err != nil {
			return err
		}
		if err := s.expect(':', "a colon"); err != nil {
			return err
		}
		if err := value(name); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.at++
		case '}':
			s.at++
			return nil
		default:
			return s.fail("a comma or the end of the object")
		}
	}
}

// list reads a list, and calls value to read each item.
func (s *scanner) list(value func() *problem) *problem {
	if err := s.expect('[', "a list"); err != nil {
		return err
	}
	if s.next() == ']' {
		s.at++
		return nil
	}
	for {
		if err := value(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.at++
		case ']':
			s.at++
			return nil
		default:
			return s.fail("a comma or the end of the list")
		}
	}
}

// whole reads a whole number from 0 to the greatest int64.
func (s *scanner) whole() (int64, *problem) {
	const want = "a whole number"
	c := s.next()
	if c == '-' {
		return 0, bad("", "below zero: /v1/refund gives back")
	}
	if c < '0' || c > '9' {
		return 0, s.fail(want)
	}
	begin, n := s.at, int64(0)
	for ; s.at < len(s.data); s.at++ {
		c := s.data[s.at]
		switch {
		case c == '.' || c|0x20 == 'e':
			return 0, bad("", "want a whole number written in digits")
		case c < '0' || c > '9':
			return n, nil
		case s.at > begin && s.data[begin] == '0':
			return 0, bad("", "want a whole number, which does not begin with 0")
		case n > (math.MaxInt64-int64(c-'0'))/10:
			return 0, bad("", "above the greatest whole number, %d", int64(math.MaxInt64))
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// text reads text.
func (s *scanner) text(want string) (string, *problem) {
	if err := s.expect('"', want); err != nil {
		return "", err
	}
	begin := s.at
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[begin : s.at-1], nil
		case c == '\\' || c < 0x20 || c >= utf8.RuneSelf:
			return s.escapedText(append([]byte(nil), s.data[begin:s.at]...))
		}
	}
	return "", s.fail("a closing quote")
}

// escapedText reads on behind plain text.
func (s *scanner) escapedText(text []byte) (string, *problem) {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return string(text), nil
		case c < 0x20:
			return "", bad("", "byte %d: a control character in text: write it as an escape", s.at+1)
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			text = utf8.AppendRune(text, r)
		default:
			r, size := utf8.DecodeRuneInString(s.data[s.at:])
			if r == utf8.RuneError && size == 1 {
				return "", s.fail("text")
			}
			text = append(text, s.data[s.at:s.at+size]...)
			s.at += size
		}
	}
	return "", s.fail("a closing quote")
}

// escape reads what begins with a backslash. Half of a surrogate pair is
// refused: two such keys would otherwise become one.
func (s *scanner) escape() (rune, *problem) {
	begin := s.at + 1 // as people count
	if s.at++; s.at < len(s.data) {
		if i := strings.IndexByte(`"\/bfnrt`, s.data[s.at]); i >= 0 {
			s.at++
			return rune("\"\\/\b\f\n\r\t"[i]), nil
		}
		r, ok := s.hex()
		if ok && !utf16.IsSurrogate(r) {
			return r, nil
		}
		if ok && strings.HasPrefix(s.data[s.at:], `\u`) {
			s.at++
			low, ok := s.hex()
			if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
				return r, nil
			}
		}
	}
	return 0, bad("", "byte %d: no escape that JSON knows, or half of a pair", begin)
}

// hex reads "u" and four hexadecimal digits.
func (s *scanner) hex() (rune, bool) {
	if len(s.data)-s.at < 5 || s.data[s.at] != 'u' {
		return 0, false
	}
	r := rune(0)
	for _, c := range []byte(s.data[s.at+1 : s.at+5]) {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	s.at += 5
	return r, true
}
