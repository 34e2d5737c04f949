package usage

import (
	"bytes"
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
)

// document reads JSON byte by byte, wherever it is cut. It looks for the values at the pointers,
// and skips everything else. A document that is an array is a list of documents, unless a pointer
// begins with an index. document does not check the grammar: in text that is not JSON it may find
// numbers or none.
type document struct {
	spec   *Spec
	values []int64 // by term
	found  []bool
	part   []bool // the value counts only what has come so far
	ended  bool   // the last value that counts was found
	open   bool   // a value was found that a later one will replace
	list   bool   // the documents are the elements of an array that has not ended
	count  int64  // how many documents have ended, and elements of arrays have begun

	token   token
	escaped bool    // the next byte of the string follows a backslash
	levels  []level // the objects and arrays that pointers lead into
	depth   int     // depth of the skipped values within the innermost level
	here    uint32  // a mask of the pointers that lead to the next value
	name    bool    // the next string is the name of a field
	buf     []byte  // the present name or number
	long    bool    // the name is too long for any pointer
}

type token uint8

const (
	between token = iota
	inString
	inNumber
)

type level struct {
	array bool
	index int
	mask  uint32 // the pointers that lead into it
}

// maxNumber bounds the digits of a number.
const maxNumber = 40

func (d *document) reset() {
	d.endNumber()
	d.list = false
	d.begin()
}

// begin prepares for a new document, which may be the next of a list.
func (d *document) begin() {
	d.token, d.escaped, d.levels, d.depth, d.name, d.buf, d.long = between, false, d.levels[:0], 0, false, d.buf[:0], false
	d.here = 1<<len(d.spec.pointers) - 1
}

// within reports whether a document has begun that has not ended.
func (d *document) within() bool {
	return d.list || d.token == inString || d.depth > 0 || len(d.levels) > 0
}

func (d *document) write(p []byte) {
	for len(p) > 0 {
		switch {
		case d.token == inString:
			p = p[d.text(p):]
		case d.depth > 0:
			p = p[d.skip(p):]
		default:
			d.byte(p[0])
			p = p[1:]
		}
	}
}

// text reads on in a string, up to its end if that has come, and returns how many bytes it read.
func (d *document) text(p []byte) int {
	at := 0
	for quote := -1; at < len(p); {
		if d.escaped {
			d.escaped = false
			d.keep(p[at : at+1])
			at++
			continue
		}
		if quote < at {
			if quote = bytes.IndexByte(p[at:], '"'); quote < 0 {
				quote = len(p)
			} else {
				quote += at
			}
		}
		back := bytes.IndexByte(p[at:quote], '\\')
		if back >= 0 {
			d.keep(p[at : at+back+1])
			at, d.escaped = at+back+1, true
			continue
		}
		d.keep(p[at:quote])
		if quote == len(p) {
			return quote
		}
		d.token = between
		d.endString()
		return quote + 1
	}
	return at
}

// keep buffers bytes of a string that may be a name in a pointer.
func (d *document) keep(p []byte) {
	if !d.name || d.depth > 0 || d.long {
		return
	}
	if d.long = len(d.buf)+len(p) > d.spec.key; !d.long {
		d.buf = append(d.buf, p...)
	}
}

func (d *document) endString() {
	if !d.name || d.depth > 0 {
		return
	}
	d.name, d.here = false, 0
	if name := d.buf; !d.long && len(d.levels) > 0 {
		if bytes.IndexByte(name, '\\') >= 0 {
			var text string
			if json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &text) == nil {
				name = []byte(text)
			}
		}
		d.lead(name)
	}
	d.buf, d.long = d.buf[:0], false
}

// lead finds the pointers that continue with a name.
func (d *document) lead(name []byte) {
	d.here = 0
	at := len(d.levels) - 1
	for mask := d.levels[at].mask; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask)
		if d.spec.pointers[i].path[at] == string(name) {
			d.here |= 1 << i
		}
	}
}

// structure are the bytes that matter in skipped values.
var structure = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skip reads on in a value that no pointer leads into, and returns how many bytes it read.
func (d *document) skip(p []byte) int {
	for i, c := range p {
		if !structure[c] {
			continue
		}
		switch c {
		case '"':
			d.token = inString
			return i + 1
		case '{', '[':
			d.depth++
		default:
			if d.depth--; d.depth == 0 {
				return i + 1
			}
		}
	}
	return len(p)
}

// byte reads a byte between strings.
func (d *document) byte(c byte) {
	if d.token == inNumber {
		if numeric(c) {
			if d.long = d.long || len(d.buf) == maxNumber; !d.long {
				d.buf = append(d.buf, c)
			}
			return
		}
		d.endNumber()
	}
	switch {
	case c == '"':
		d.token = inString
	case len(d.levels) == 0 && d.inList(c):
	case c == '{' || c == '[':
		d.enter(c == '[')
	case c == '}' || c == ']':
		d.leave()
	case c == ',' && len(d.levels) > 0:
		d.nextValue(&d.levels[len(d.levels)-1])
	case d.here != 0 && !d.name && numeric(c) && c != 'e' && c != 'E':
		d.token, d.buf = inNumber, append(d.buf[:0], c)
	}
}

// inList reports whether a byte outside of all documents begins, continues or ends a list of them.
func (d *document) inList(c byte) bool {
	switch {
	case !d.list && c == '[' && !d.spec.indexed:
		d.list = true
		d.count++
	case d.list && c == ']':
		d.reset()
	case d.list && c == ',':
		d.begin()
		d.count++
	default:
		return false
	}
	return true
}

func numeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

func (d *document) enter(array bool) {
	deeper := uint32(0)
	for mask := d.here; mask != 0; mask &= mask - 1 {
		if i := bits.TrailingZeros32(mask); len(d.spec.pointers[i].path) > len(d.levels) {
			deeper |= 1 << i
		}
	}
	if deeper == 0 || d.name {
		d.depth = 1
		return
	}
	d.levels = append(d.levels, level{array: array, index: -1, mask: deeper})
	d.nextValue(&d.levels[len(d.levels)-1])
}

// nextValue is called before each field and element.
func (d *document) nextValue(in *level) {
	if d.name, d.here = !in.array, 0; in.array {
		in.index++
		d.lead(strconv.AppendInt(nil, int64(in.index), 10))
	}
}

func (d *document) leave() {
	d.name, d.here = false, 0
	if n := len(d.levels); n > 0 {
		d.levels = d.levels[:n-1]
	}
	if len(d.levels) == 0 {
		if !d.list {
			d.count++
		}
		d.begin()
	}
}

func (d *document) endNumber() {
	if d.token != inNumber {
		return
	}
	d.token = between
	if v, ok := value(string(d.buf)); ok && !d.long {
		for mask := d.here; mask != 0; mask &= mask - 1 {
			if p := &d.spec.pointers[bits.TrailingZeros32(mask)]; len(p.path) == len(d.levels) {
				d.values[p.term], d.found[p.term], d.part[p.term], d.ended = v, true, p.part, d.ended || p.last
				d.open = (d.open || p.open) && !p.last
			}
		}
	}
	d.buf, d.long, d.here = d.buf[:0], false, 0
}

// value parses a number that is at least 0, and rounds it up.
func value(text string) (int64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && f == 0 || f < 0 {
		return 0, false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if f = math.Ceil(f); f >= math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(f), true
}
