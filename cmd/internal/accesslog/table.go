package accesslog

import (
	"bytes"
	"strings"
)

// table reads lines of columns whose names stand in the first line, between
// commas, semicolons or tabs. A field in quotes may hold the separator and, as
// "", a quote, but no end of line.
type table struct {
	heading  string
	comma    byte
	columns  []column
	calendar calendar
	scratch  []byte
}

// A column is what to do with a field.
type column struct {
	slot    int // −1 for none
	meaning meaning
	wanted  bool
}

// readHeading returns the separator and the names of a first line, in lower
// case, and false if it is none.
func readHeading(line []byte) (comma byte, names []string, ok bool) {
	for _, comma := range []byte("\t,;") {
		if bytes.IndexByte(line, comma) < 0 {
			continue
		}
		for _, name := range strings.Split(strings.TrimPrefix(string(line), "#"), string(comma)) {
			name = strings.ToLower(strings.Trim(name, "\" "))
			if name == "" || name[0] >= '0' && name[0] <= '9' || strings.ContainsAny(name, "[]{}") {
				return 0, nil, false
			}
			names = append(names, name)
		}
		return comma, names, true
	}
	return 0, nil, false
}

// newTable returns nil if the line is no heading with a column for the time.
func newTable(heading []byte, o *Options) Parser {
	comma, names, ok := readHeading(heading)
	if !ok {
		return nil
	}
	t := &table{heading: string(heading), comma: comma, columns: make([]column, len(names)), calendar: newCalendar(o)}
	for i := range t.columns {
		t.columns[i].slot = -1
	}
	if !t.bind(names, o.places("time"), column{-1, asTime, true}) {
		return nil
	}
	for slot, a := range o.Attributes {
		t.bind(names, o.places(a), column{slot, meaningOf(a), true})
	}
	return t
}

// bind gives the first of the places that there is its meaning.
func (t *table) bind(names, places []string, c column) bool {
	for _, place := range places {
		for i, name := range names {
			if name == place && !t.columns[i].wanted {
				t.columns[i] = c
				return true
			}
		}
	}
	return false
}

// Parse implements [Parser].
func (t *table) Parse(line []byte, r *Record) error {
	if len(line) == 0 || string(line) == t.heading {
		return ErrSkip
	}
	r.clear()
	t.scratch = t.scratch[:0]
	dated := false
	for i := range t.columns {
		field, rest, ok := t.field(line)
		if !ok {
			return errShape
		}
		if c := t.columns[i]; c.wanted {
			if c.meaning == asTime {
				if r.At, dated = t.calendar.read(field); !dated {
					return errTime
				}
			} else {
				r.put(c.slot, c.meaning.of(field))
			}
		}
		if rest == nil && i < len(t.columns)-1 {
			return errColumns
		}
		line = rest
	}
	return nil
}

// of brings the text of a field to the value of an attribute.
func (m meaning) of(text []byte) []byte {
	switch m {
	case asAddress:
		return address(text)
	case asPath:
		return pathOf(text)
	}
	return text
}

// field cuts off a field; rest is nil behind the last.
func (t *table) field(line []byte) (field, rest []byte, ok bool) {
	if len(line) == 0 || line[0] != '"' || t.comma == '\t' {
		i := bytes.IndexByte(line, t.comma)
		if i < 0 {
			return line, nil, true
		}
		return line[:i], line[i+1:], true
	}
	start := len(t.scratch)
	for line = line[1:]; ; line = line[1:] {
		i := bytes.IndexByte(line, '"')
		if i < 0 {
			return nil, nil, false
		}
		t.scratch = append(t.scratch, line[:i]...)
		line = line[i+1:]
		switch {
		case len(line) == 0:
			return t.scratch[start:], nil, true
		case line[0] == t.comma:
			return t.scratch[start:], line[1:], true
		case line[0] != '"':
			return nil, nil, false
		}
		t.scratch = append(t.scratch, '"')
	}
}
