package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// logfmt reads lines of name=value, separated by blanks. A value with blanks is in quotes. Fields
// are found by the same names as those of JSON.
type logfmt struct {
	*object
	keys  []byte  // the names of the line so far
	pair  []byte  // the present name=value
	whole *shared // nil if it is not known
}

// shared is what most requests of a log have in common. A line that is the beginning of such a line is cut off.
type shared struct {
	keys   string          // the names in their order
	has    uint8           // the requestFields among them
	before map[string]bool // name=value before the first of these, in any request
	learns bool
}

var errCut = errors.New("a line that is cut off")

func newLogfmt(o *Options) Parser { return &logfmt{object: newObject(o).(*object)} }

// whole gives the parsers what the requests among lines have in common.
func whole(lines [][]byte, parser func(*Options) Parser) func(*Options) Parser {
	u := &shared{before: make(map[string]bool), learns: true}
	p := parser(&Options{}).(*logfmt)
	if !p.choosy {
		return parser
	}
	p.whole = u
	times := make(map[string]int)
	for _, line := range lines {
		if r := (Record{}); p.Parse(line, &r) == nil && p.request {
			if times[string(p.keys)]++; times[string(p.keys)] > times[u.keys] {
				u.keys, u.has = string(p.keys), p.has
			}
		}
	}
	u.learns = false
	return func(o *Options) Parser {
		p := parser(o).(*logfmt)
		p.whole = u
		return p
	}
}

// cut reports whether a line is only the beginning of a request's: it breaks off before a field of the request,
// or is no request and says nothing new.
func (p *logfmt) cut(says bool) bool {
	u := p.whole
	return u != nil && !u.learns && !p.aside && (!p.request && !says || p.has&u.has != u.has && strings.HasPrefix(u.keys, string(p.keys)))
}

// Parse implements [Parser].
func (p *logfmt) Parse(line []byte, r *Record) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return ErrSkip
	}
	if repeats(line) {
		return errShape
	}
	p.begin(line, r)
	p.keys = p.keys[:0]
	pairs, others := 0, 0
	var first, second string
	says := false // something that requests do not
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
		p.keys = append(append(p.keys, p.name...), ' ')
		says = p.tells(value) || says
	}
	if pairs < 2 || pairs < others {
		return errShape
	}
	err := p.judge(r)
	if (err == nil || errors.Is(err, ErrAside)) && p.cut(says) {
		return errCut
	}
	return err
}

// tells reports whether the present field, before those of a request, says what no request does. Times and levels
// tell nothing.
func (p *logfmt) tells(value []byte) bool {
	if p.whole == nil || p.has != 0 || slices.Contains(levels, string(p.name)) || slices.ContainsFunc(p.targets[string(p.name)], func(t target) bool { return t.meaning == asTime }) {
		return false
	}
	p.pair = append(append(append(p.pair[:0], p.name...), '='), value...)
	if p.whole.learns && len(p.whole.before) < 1000 {
		p.whole.before[string(p.pair)] = true
	}
	return !p.whole.before[string(p.pair)]
}

var levels = []string{"level", "lvl", "severity"}

// word reads a value, in quotes or not.
func (p *logfmt) word() ([]byte, bool) {
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
