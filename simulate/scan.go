package simulate

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON as RFC 8259 has it, and only the shapes that lines have:
// objects, arrays, text and numbers. encoding/json takes fields in any case and
// twice, and patches what is not UTF-8; a line that says "Cost" would cost 1.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) fail(want string) error {
	if s.at >= len(s.data) {
		return fmt.Errorf("the line ends where %s should be", want)
	}
	r, size := utf8.DecodeRune(s.data[s.at:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Errorf("column %d is not UTF-8", s.at+1)
	}
	return fmt.Errorf("column %d: want %s, not %q", s.at+1, want, r)
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

func (s *scanner) expect(c byte, want string) error {
	if s.next() != c || s.at >= len(s.data) {
		return s.fail(want)
	}
	s.at++
	return nil
}

// end makes sure that nothing follows.
func (s *scanner) end() error {
	if s.next(); s.at < len(s.data) {
		return s.fail("the end of the line")
	}
	return nil
}

// object reads an object, and calls value with each name to read what follows.
func (s *scanner) object(value func(name []byte) error) error {
	if err := s.expect('{', "an object"); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		name, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':', `":"`); err != nil {
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
			return s.fail(`"," or "}"`)
		}
	}
}

// array reads an array, and calls value to read each element.
func (s *scanner) array(value func() error) error {
	if err := s.expect('[', "an array"); err != nil {
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
			return s.fail(`"," or "]"`)
		}
	}
}

// number reads a number and returns its text.
func (s *scanner) number() ([]byte, error) {
	const want = "a number"
	s.next()
	begin := s.at
	s.accept("-")
	if !s.accept("0") && s.digits() == 0 {
		return nil, s.fail(want)
	}
	if s.accept(".") && s.digits() == 0 {
		return nil, s.fail("a digit")
	}
	if s.accept("eE") {
		s.accept("+-")
		if s.digits() == 0 {
			return nil, s.fail("a digit")
		}
	}
	return s.data[begin:s.at], nil
}

func (s *scanner) accept(any string) bool {
	for i := range len(any) {
		if s.at < len(s.data) && s.data[s.at] == any[i] {
			s.at++
			return true
		}
	}
	return false
}

func (s *scanner) digits() (n int) {
	for s.accept("0123456789") {
		n++
	}
	return n
}

// string reads text into a string.
func (s *scanner) string(to *string) error {
	text, err := s.text()
	*to = string(text)
	return err
}

// text reads a string and returns what it says; that may be part of the line.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"', "text in quotes"); err != nil {
		return nil, err
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
	return nil, s.fail("a closing quote")
}

// escapedText reads on behind plain text.
func (s *scanner) escapedText(text []byte) ([]byte, error) {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return text, nil
		case c < 0x20:
			return nil, s.fail("an escape for a control character")
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			text = utf8.AppendRune(text, r)
		default:
			r, size := utf8.DecodeRune(s.data[s.at:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.fail("text")
			}
			text = append(text, s.data[s.at:s.at+size]...)
			s.at += size
		}
	}
	return nil, s.fail("a closing quote")
}

// escape reads what begins with a backslash. Half of a surrogate pair is
// refused: two such keys would otherwise become one.
func (s *scanner) escape() (rune, error) {
	s.at++
	if s.at >= len(s.data) {
		return 0, s.fail("an escape")
	}
	c := s.data[s.at]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		s.at++
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, s.fail("an escape")
	}
	begin := s.at
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.at+1 < len(s.data) && s.data[s.at] == '\\' && s.data[s.at+1] == 'u' {
		s.at++
		low, err := s.hex()
		if err != nil {
			return 0, err
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, fmt.Errorf("column %d: half of a surrogate pair", begin)
}

// hex reads "u" and four hexadecimal digits.
func (s *scanner) hex() (rune, error) {
	s.at++
	r := rune(0)
	for range 4 {
		if s.at >= len(s.data) {
			return 0, s.fail("four hexadecimal digits")
		}
		c := s.data[s.at]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.fail("four hexadecimal digits")
		}
		s.at++
	}
	return r, nil
}
