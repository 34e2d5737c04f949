package accesslog

import "bytes"

// logfmt reads lines of name=value, separated by blanks. A value with blanks is in quotes. Fields
// are found by the same names as those of JSON.
type logfmt struct{ *object }

func newLogfmt(o *Options) Parser { return logfmt{newObject(o).(*object)} }

// Parse implements [Parser].
func (p logfmt) Parse(line []byte, r *Record) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return ErrSkip
	}
	p.begin(line, r)
	pairs, others := 0, 0
	var first, second string
	for len(p.text) > 0 {
		if p.skip(' ') {
			continue
		}
		i := bytes.IndexAny(p.text, "= \"")
		if i <= 0 || p.text[i] != '=' {
			if others++; i == 0 {
				return errShape
			}
			if i < 0 {
				break
			}
			p.text = p.text[i:]
			if p.text[0] == '"' {
				return errShape
			}
			continue
		}
		p.name = lower(p.name[:0], p.text[:i])
		p.text = p.text[i+1:]
		value, ok := p.word()
		if !ok {
			return errShape
		}
		switch pairs++; {
		case pairs == 1:
			first = string(p.name)
		case string(p.name) == first || string(p.name) == second:
			return errShape // another line has begun
		case pairs == 2:
			second = string(p.name)
		}
		p.found(value, r)
	}
	if pairs < 2 || pairs < others {
		return errShape
	}
	return p.judge(r)
}

// word reads a value, in quotes or not.
func (p logfmt) word() ([]byte, bool) {
	if p.skip('"') {
		return p.str()
	}
	i := bytes.IndexByte(p.text, ' ')
	if i < 0 {
		i = len(p.text)
	}
	value := p.text[:i]
	p.text = p.text[i:]
	return value, true
}
