// Package usage reads numbers from a response body as it passes: the values at JSON pointers, in
// plain JSON, in lines or an array of JSON, and in the data of server-sent events.
//
// It keeps nothing of the body but the present name or number, so memory is bounded whatever comes.
// The last value of each pointer counts. The first character tells what the body is, since the
// Content-Type of a server may be wrong.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/satmath"
)

// Bounds of a spec.
const (
	MaxPointers = 16  // of a spec
	MaxPointer  = 256 // bytes of a pointer
)

// A Spec says which numbers of a body count. It does not change, and may be used by many goroutines
// at once.
type Spec struct {
	text     string
	pointers []pointer
	terms    int
	key      int  // bytes of the longest name, with all letters escaped
	indexed  bool // a pointer begins with an index, so that an array is one document

	// ends are the endings of the names to which the pointers lead: an event without any of them has
	// no value. It is nil if names may be written in several ways.
	ends [][]byte
}

// A pointer is a path through a document, and the term whose value it finds.
type pointer struct {
	path []string
	term int
	last bool // its value comes at the end of a response
	open bool // its value comes at the beginning of a stream
	part bool // its value counts only what has come so far
}

// known are the specs that have a name. The values of one term are alternatives; the last one
// counts.
//
// OpenAI sends a sum, in a body or in the last chunk (stream_options.include_usage), and in the
// events of its Responses API. Anthropic sends the terms of a sum, and in a stream the latest value
// of each in every event. What Anthropic reads from its cache is left out: it does not count against
// Anthropic's own limits.
var known = map[string][][]string{
	"openai": {{"/usage/total_tokens", "/response/usage/total_tokens"}},
	"anthropic": {
		{"/usage/input_tokens", "/message/usage/input_tokens"},
		{"/usage/cache_creation_input_tokens", "/message/usage/cache_creation_input_tokens"},
		{"/usage/output_tokens", "/message/usage/output_tokens"},
	},
	"gemini": {{"/usageMetadata/totalTokenCount"}},
	"ollama": {{"/prompt_eval_count"}, {"/eval_count"}},
}

// lasts are the known pointers whose value completes the sum.
var lasts = []string{"/response/usage/total_tokens", "/usage/output_tokens"}

// firstInput and firstOutput are the counts at the beginning of a stream of Anthropic.
const (
	firstInput  = "/message/usage/input_tokens"
	firstOutput = "/message/usage/output_tokens"
)

// Names are the names for [Named], in order.
var Names = []string{"anthropic", "gemini", "ollama", "openai"}

// Named returns the spec with a name.
func Named(name string) (*Spec, bool) {
	terms, ok := known[name]
	if !ok {
		return nil, false
	}
	s, err := newSpec("usage of "+name, terms)
	return s, err == nil
}

// Parse returns the spec of pointers (RFC 6901) whose values are added up. The error names the
// pointer that is invalid.
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
			s.pointers = append(s.pointers, pointer{path, term, len(alternatives) > 1 && slices.Contains(lasts, written), written == firstInput || written == firstOutput, written == firstOutput})
			_, notIndex := strconv.ParseUint(path[0], 10, 64)
			s.indexed = s.indexed || notIndex == nil
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

// endNames returns the endings of the names to which the pointers lead, if each is a word of
// letters, which JSON can write differently only with \u. An ending with a rare first letter is
// found faster.
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

// ParsePointer returns the names in a pointer.
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

// PlainNumber returns one text for all spellings of a number: 1.0 and 10e-1 are 1. It returns false
// for a number that servers read differently: beyond ±(2^53 - 1), some keep each digit, and others,
// for example in JavaScript, round it.
func PlainNumber(text string) (plain string, ok bool) {
	const most = 1<<53 - 1
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || f > most || f < -most:
		return "", false
	case f == 0: // 0 and -0
		return "0", true
	}
	return strconv.FormatFloat(f, 'f', -1, 64), true
}

// String returns the name of the spec, or its pointers as they were written.
func (s *Spec) String() string { return s.text }

// Same reports whether two specs look for the same values.
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
	blank  int64 // bytes before the first character
}

type format uint8

const (
	unknown format = iota
	plain          // JSON, one or more documents
	array          // of such documents
	stream         // server-sent events
)

// New returns a reader of a body.
func New(s *Spec) *Reader {
	r := &Reader{doc: document{spec: s, values: make([]int64, s.terms), found: make([]bool, s.terms), part: make([]bool, s.terms)}}
	r.doc.reset()
	return r
}

// Write reads the next bytes of the body. It never fails, and does not keep p.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for r.format == unknown && len(p) > 0 {
		switch c := p[0]; c {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // blanks, or a byte order mark
			p = p[1:]
			r.blank++
		case '{': // no field of an event begins with it
			r.format = plain
		case '[':
			r.format = array
		default:
			r.format = stream
		}
	}
	switch r.format {
	case plain, array:
		r.doc.write(p)
	case stream:
		r.events.write(p, &r.doc)
	}
	return n, nil
}

// Sum returns the sum of the last value of each term, and whether there was any.
func (r *Reader) Sum() (sum int64, ok bool) {
	for i, v := range r.doc.values {
		sum, ok = int64(satmath.AddInt64(uint64(sum), uint64(v))), ok || r.doc.found[i]
	}
	return sum, ok
}

// Open reports whether the sum is not complete: the last value found counts only what has come so far,
// or the document has not ended. Some servers break a document off as if it were whole.
func (r *Reader) Open() bool { return r.doc.open || r.format != stream && r.doc.within() }

// Estimate returns an estimated cost of a body of so many bytes: one unit for each event with data,
// element of an array, or document of several, and otherwise one for each 4 bytes, such as of a text
// without events, whose comments and fields of events do not count. To what comes piece by piece it
// adds what the body has said to be there before.
func (r *Reader) Estimate(bytes int64) int64 {
	units := r.doc.count
	bytes = max(bytes-r.blank, 0)
	if r.format == stream {
		units, bytes = r.events.count, r.events.otherBytes()
		if r.events.text || r.events.isText() {
			units++ // the last event has no end yet
		}
	}
	if (r.format <= plain || units == 0) && units <= 1 && !r.events.ended {
		units = bytes/4 + min(bytes%4, 1)
	}
	if r.doc.open {
		for i, v := range r.doc.values {
			if !r.doc.part[i] {
				units = int64(satmath.AddInt64(uint64(units), uint64(v)))
			}
		}
	}
	return units
}

// Ended reports whether the body has said that no other number will count. Some clients close the
// connection at that point.
func (r *Reader) Ended() bool { return r.events.ended || r.doc.ended }
