package httplimit

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A fieldParser reads structured fields (RFC 9651, 4.2). What it has read is
// gone from rest.
type fieldParser struct{ rest string }

// A bare is a bare item. Those that no rate limit field has are checked and
// not kept.
type bare struct {
	kind   bareKind
	text   string
	number int64
}

type bareKind uint8

const (
	bareOther bareKind = iota
	bareString
	bareToken
	bareInteger
)

// param reads ";name" or ";name=value"; without a value it is true.
func (p *fieldParser) param() (name string, v bare, ok bool) {
	p.rest = strings.TrimLeft(p.rest[1:], " ")
	if p.rest == "" || !(p.rest[0] >= 'a' && p.rest[0] <= 'z' || p.rest[0] == '*') {
		return "", v, false
	}
	i := 1
	for i < len(p.rest) && isKeyByte(p.rest[i]) {
		i++
	}
	name, p.rest = p.rest[:i], p.rest[i:]
	if p.rest == "" || p.rest[0] != '=' {
		return name, v, true
	}
	p.rest = p.rest[1:]
	v, ok = p.bare()
	return name, v, ok
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_-.*", c) >= 0
}

// bare reads a bare item.
func (p *fieldParser) bare() (v bare, ok bool) {
	if p.rest == "" {
		return v, false
	}
	switch c := p.rest[0]; {
	case c == '"':
		v.kind = bareString
		v.text, ok = p.quoted()
		return v, ok
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case c == '@':
		p.rest = p.rest[1:]
		v, ok = p.number()
		return bare{}, ok && v.kind == bareInteger
	case c == '?':
		ok = len(p.rest) > 1 && (p.rest[1] == '0' || p.rest[1] == '1')
		p.rest = p.rest[min(2, len(p.rest)):]
		return v, ok
	case c == ':':
		end := strings.IndexByte(p.rest[1:], ':') + 1
		if end == 0 || strings.Trim(p.rest[1:end], base64Bytes) != "" {
			return v, false
		}
		p.rest = p.rest[end+1:]
		return v, true
	case c == '%':
		return v, p.display()
	case c == '*' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		i := 1
		for i < len(p.rest) && (isTokenByte(p.rest[i]) || p.rest[i] == ':' || p.rest[i] == '/') {
			i++
		}
		v = bare{kind: bareToken, text: p.rest[:i]}
		p.rest = p.rest[i:]
		return v, true
	}
	return v, false // inner lists too: no policy's name is one
}

const base64Bytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

func (p *fieldParser) quoted() (string, bool) {
	var b []byte
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return string(b), true
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", false
			}
			b = append(b, p.rest[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b = append(b, c)
		}
	}
	return "", false
}

// display reads a display string, %"…", of UTF-8 with all but printable ASCII
// percent-encoded in lower case.
func (p *fieldParser) display() bool {
	if !strings.HasPrefix(p.rest, `%"`) {
		return false
	}
	var b []byte
	for i := 2; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return utf8.Valid(b)
		case c < ' ' || c > '~':
			return false
		case c == '%':
			if i+2 >= len(p.rest) || strings.Trim(p.rest[i+1:i+3], "0123456789abcdef") != "" {
				return false
			}
			n, err := strconv.ParseUint(p.rest[i+1:i+3], 16, 8)
			if err != nil {
				return false
			}
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return false
}

// number reads an integer of at most 15 digits, or a decimal of at most 12 and
// from 1 to 3.
func (p *fieldParser) number() (v bare, ok bool) {
	i, digits, point := 0, 0, -1
	if p.rest != "" && p.rest[0] == '-' {
		i = 1
	}
	for ; i < len(p.rest); i++ {
		if c := p.rest[i]; c == '.' && point < 0 && digits > 0 {
			if point = digits; point > 12 {
				return v, false
			}
		} else if c >= '0' && c <= '9' {
			digits++
		} else {
			break
		}
	}
	text := p.rest[:i]
	p.rest = p.rest[i:]
	if point >= 0 {
		return v, digits > point && digits <= point+3
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return bare{kind: bareInteger, number: n}, err == nil && digits <= 15
}
