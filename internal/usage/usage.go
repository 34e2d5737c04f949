// Package usage reads numbers out of a response body as it passes: those that JSON
// pointers lead to, in plain JSON, in lines of JSON, and in the data of server-sent
// events.
//
// Nothing of the body is kept but the name or the number at hand, so that memory is
// bounded whatever comes, and the last value of each pointer counts. What the body is
// shows its first character: the label that a server puts on it may be wrong.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/satmath"
)

// Bounds on what is looked for.
const (
	MaxPointers = 16  // of a spec
	MaxPointer  = 256 // bytes of a pointer
)

// A Spec says which numbers of a body count. It does not change, and may be used by many
// goroutines at once.
type Spec struct {
	text     string
	pointers []pointer
	terms    int
	depth    int // of the longest pointer
	key      int // bytes of the longest name, as it may be written

	// ends are what the names end in to which the pointers lead, without which an event
	// has nothing to find; nil if they may be written in several ways.
	ends [][]byte
}

// A pointer is a path through a document, and the term that it is a value of.
type pointer struct {
	path []string
	term int
	last bool // its value comes at the end of a response
}

// known are the specs that have a name. The values of a term are alternatives, of which
// the last counts.
//
// OpenAI gives its sum, in a body or in the last chunk (stream_options.include_usage),
// and in the events of its Responses API. Anthropic gives parts, of which the stream
// has the latest in every event; what it reads from its cache does not count against
// its own limits.
var known = map[string][][]string{
	"openai": {{"/usage/total_tokens", "/response/usage/total_tokens"}},
	"anthropic": {
		{"/usage/input_tokens", "/message/usage/input_tokens"},
		{"/usage/cache_creation_input_tokens", "/message/usage/cache_creation_input_tokens"},
		{"/usage/output_tokens", "/message/usage/output_tokens"},
	},
}

// lasts are those of the known pointers whose value is the end of what is charged.
var lasts = []string{"/response/usage/total_tokens", "/usage/output_tokens"}

// Names are those of [Named], in order.
var Names = []string{"anthropic", "openai"}

// Named returns the spec of a name.
func Named(name string) (*Spec, bool) {
	terms, ok := known[name]
	if !ok {
		return nil, false
	}
	s, err := newSpec("usage of "+name, terms)
	return s, err == nil
}

// Parse returns the spec of pointers (RFC 6901) whose values are added. The error says
// which is none.
func Parse(pointers ...string) (*Spec, error) {
	terms := make([][]string, len(pointers))
	for i, p := range pointers {
		terms[i] = []string{p}
	}
	return newSpec(strings.Join(pointers, " + "), terms)
}

func newSpec(text string, terms [][]string) (*Spec, error) {
	s := &Spec{text: text, terms: len(terms)}
	for term, alternatives := range terms {
		for _, written := range alternatives {
			path, err := ParsePointer(written)
			if err != nil {
				return nil, err
			}
			s.pointers = append(s.pointers, pointer{path, term, len(alternatives) > 1 && slices.Contains(lasts, written)})
			s.depth = max(s.depth, len(path))
			for _, name := range path {
				s.key = max(s.key, 6*len(name)) // \u0061
			}
		}
	}
	if len(s.pointers) == 0 || len(s.pointers) > MaxPointers {
		return nil, fmt.Errorf("%d pointers: from 1 to %d", len(s.pointers), MaxPointers)
	}
	s.ends = s.endNames()
	return s, nil
}

// endNames returns what the names end in to which the pointers lead, if each is a word of
// letters, which JSON can write otherwise by \u alone. It is found the faster the rarer its
// first letter is.
func (s *Spec) endNames() (all [][]byte) {
	for _, p := range s.pointers {
		end := p.path[len(p.path)-1]
		for _, c := range end {
			if (c|0x20 < 'a' || c|0x20 > 'z') && c != '_' {
				return nil
			}
		}
		for _, rare := range []byte("zqxjkv_") {
			if at := strings.LastIndexByte(end, rare); at >= 0 && len(end)-at > 2 {
				end = end[at:]
				break
			}
		}
		if !slices.ContainsFunc(all, func(b []byte) bool { return string(b) == end }) {
			all = append(all, []byte(end))
		}
	}
	return all
}

// ParsePointer returns the names that a pointer is made of.
func ParsePointer(text string) ([]string, error) {
	if text == "" || text[0] != '/' {
		return nil, errors.New("a JSON pointer begins with a slash, such as /usage/total_tokens")
	}
	if len(text) > MaxPointer {
		return nil, fmt.Errorf("a pointer of %d bytes: at most %d", len(text), MaxPointer)
	}
	path := strings.Split(text[1:], "/")
	for i, name := range path {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(name); strings.Contains(rest, "~") {
			return nil, errors.New("in a JSON pointer, ~ is written ~0, and a slash within a name ~1")
		}
		path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return path, nil
}

// PlainNumber returns the one text of what servers read as the same number: 1.0 and 10e-1
// are 1. It reports false for what they read differently: beyond ±(2^53 - 1), one program
// keeps each digit, and another, such as one in JavaScript, takes neighbours for the same.
func PlainNumber(text string) (plain string, ok bool) {
	const most = 1<<53 - 1
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || f > most || f < -most:
		return "", false
	case f == 0: // of either sign
		return "0", true
	}
	return strconv.FormatFloat(f, 'f', -1, 64), true
}

// String returns the pointers, as they were written, or whose usage it is.
func (s *Spec) String() string { return s.text }

// Same reports whether two specs look for the same.
func (s *Spec) Same(as *Spec) bool {
	return s.terms == as.terms && slices.EqualFunc(s.pointers, as.pointers, func(a, b pointer) bool {
		return a.term == b.term && a.last == b.last && slices.Equal(a.path, b.path)
	})
}

// A Reader reads the numbers of one body, which is written to it. Make it with [New].
type Reader struct {
	doc    document
	format format
	events events
}

type format uint8

const (
	unknown format = iota
	plain          // JSON, one or more documents
	stream         // server-sent events
)

// New returns a reader of a body.
func New(s *Spec) *Reader {
	r := &Reader{doc: document{spec: s, values: make([]int64, s.terms), found: make([]bool, s.terms)}}
	r.doc.reset()
	return r
}

// Write reads the next bytes of the body. It never fails, and keeps nothing of p.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for r.format == unknown && len(p) > 0 {
		switch c := p[0]; c {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // with the mark of a byte order
			p = p[1:]
		case '{', '[': // no field of an event begins so
			r.format = plain
		default:
			r.format = stream
		}
	}
	switch r.format {
	case plain:
		r.doc.write(p)
	case stream:
		r.events.write(p, &r.doc)
	}
	return n, nil
}

// Sum returns the sum of the values seen, each the last of its term, and whether there
// was any.
func (r *Reader) Sum() (sum int64, ok bool) {
	for i, v := range r.doc.values {
		sum, ok = int64(satmath.AddInt64(uint64(sum), uint64(v))), ok || r.doc.found[i]
	}
	return sum, ok
}

// Ended reports whether the body has said that nothing follows that counts: some clients
// leave as soon as it has.
func (r *Reader) Ended() bool { return r.events.ended || r.doc.ended }
