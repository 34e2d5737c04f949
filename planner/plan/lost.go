package plan

import (
	"bytes"
	"unicode/utf8"

	"github.com/stint-dev/stint/planner/accesslog"
)

// A measure of a line is its bytes, and how often it has each of marks.
type measure [1 + len(marks)]int

// marks are characters of which every request has some, in formats whose lines all have them.
var marks = [...]byte{'{', ':', '='}

func measured(line []byte) (m measure) {
	m[0] = len(line)
	for i, mark := range marks {
		m[1+i] = bytes.Count(line, []byte{mark})
	}
	return m
}

// leastOf returns the least of each measure among the lines of a sample that can be read.
func leastOf(sample []byte, p accesslog.Parser, attributes int) (least measure) {
	r, none := accesslog.Record{Values: make([][]byte, attributes)}, true
	sample = sample[:bytes.LastIndexByte(sample, '\n')+1] // the last line may be cut off
	for len(sample) > 0 {
		var line []byte
		if line, sample = accesslog.Line(sample); p.Parse(line, &r) != nil {
			continue
		}
		m := measured(line)
		for i := range m {
			if none || m[i] < least[i] {
				least[i] = m[i]
			}
		}
		none = false
	}
	return least
}

// requestBytes is more than the lines of most requests have.
const requestBytes = 512

// held returns how many requests a line that cannot be read may hold: as many as lines of the least measure fit in
// it, by any part of the measure; at least one for every requestBytes begun, as many as there are ends of objects
// before another, or request lines, and as many as it says that a message was repeated.
func held(line []byte, least *measure) int64 {
	n := max(1+len(line)/requestBytes, bytes.Count(line, []byte(" HTTP/")),
		1+bytes.Count(line, []byte("}{"))+bytes.Count(line, []byte("} {")))
	m := measured(line)
	if packed(line) {
		m[0] *= mostPacked
		n = max(n, m[0]/requestBytes)
	}
	for i := range m {
		if least[i] > 0 {
			n = max(n, m[i]/least[i])
		}
	}
	return max(int64(n), accesslog.Repeated(line))
}

// mostPacked is how many times shorter a packed log may be.
const mostPacked = 50

// packed reports whether a line may be a piece of packed bytes: it is no text.
func packed(line []byte) bool {
	return !utf8.Valid(line) && bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' && r != 0x1b })
}
