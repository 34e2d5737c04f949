package accesslog

import (
	"bytes"
	"slices"
	"strings"
)

// table reads lines of columns. Their names are in the first line, separated by commas, semicolons
// or tabs, or in a line #Fields: separated by blanks or tabs, as in IIS and CloudFront. A field in
// quotes may hold the separator, and a quote as "", but no newline. Day and time of day may be two
// columns.
type table struct {
	heading  string
	comma    byte
	marked   bool // lines that begin with # are no requests
	columns  []column
	twice    string // a column that counts and stands there twice
	calendar calendar
	options  *Options
	scratch  []byte
}

// A column says what to do with one field of a line.
type column struct {
	slot    int // −1 if the field is not wanted
	meaning meaning
	wanted  bool
}

// readHeading returns the separator and the names of a first line, in lower case. It returns false
// if the line is no heading.
func readHeading(line []byte) (comma byte, names []string, ok bool) {
	if w3c, found := bytes.CutPrefix(line, w3cFields); found {
		for _, name := range strings.Fields(string(w3c)) {
			names = append(names, strings.ToLower(name))
		}
		return ' ', names, len(names) > 0
	}
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

// w3cFields begins the line that names the columns of a log in the extended format of the W3C.
var w3cFields = []byte("#Fields:")

// newTable returns nil if the heading has no column for the time.
func newTable(heading []byte, o *Options) Parser {
	comma, names, ok := readHeading(heading)
	if !ok {
		return nil
	}
	t := &table{heading: string(heading), comma: comma, columns: make([]column, len(names)), calendar: newCalendar(o), options: o}
	t.marked = bytes.HasPrefix(heading, w3cFields)
	for i := range t.columns {
		t.columns[i].slot = -1
	}
	apart := slices.Contains(names, "date") && slices.Contains(names, "time") && o.Fields["time"] == ""
	switch {
	case apart && t.bind(names, []string{"date"}, column{-1, asDate, true}) && t.bind(names, []string{"time"}, column{-1, asClock, true}):
	case apart || !t.bind(names, o.fieldsFor("time"), column{-1, asTime, true}):
		return nil
	}
	for slot, a := range o.Attributes {
		t.bind(names, o.fieldsFor(a), column{slot, meaningOf(a), true})
	}
	return t
}

// bind sets the meaning of the first of the fields that the table has.
func (t *table) bind(names, fields []string, c column) bool {
	for _, field := range fields {
		for i, name := range names {
			if name == field && !t.columns[i].wanted {
				t.columns[i] = c
				if slices.Contains(names[i+1:], name) {
					t.twice = name
				}
				return true
			}
		}
	}
	return false
}

// Parse implements [Parser].
func (t *table) Parse(line []byte, r *Record) error {
	if len(line) == 0 || string(line) == t.heading || t.marked && line[0] == '#' {
		if t.marked {
			t.head(line)
		}
		return ErrSkip
	}
	switch {
	case t.columns == nil:
		return errColumns
	case t.twice != "":
		return errTwice
	case repeats(line):
		return errShape
	}
	r.clear()
	t.scratch = t.scratch[:0]
	comma := t.comma
	if t.marked && bytes.IndexByte(line, '\t') >= 0 {
		comma = '\t'
	}
	var date []byte
	for i := range t.columns {
		field, rest, ok := t.field(line, comma)
		if !ok {
			return errShape
		}
		if c := t.columns[i]; c.wanted {
			switch c.meaning {
			case asDate:
				date = field
			case asTime:
				r.At, ok = t.calendar.read(field)
			case asClock:
				r.At, ok = t.calendar.pair(date, field)
			default:
				r.put(c.slot, c.meaning.of(field))
			}
			if !ok {
				return errTime
			}
		}
		if rest == nil && i < len(t.columns)-1 {
			return errColumns
		}
		line = rest
	}
	if len(bytes.TrimSpace(line)) > 0 {
		return errColumns // the line belongs to a heading that is not there, or is of several
	}
	return nil
}

// head takes new columns from a line that names them, as servers write it when they start again.
func (t *table) head(line []byte) {
	if !bytes.HasPrefix(line, w3cFields) || string(line) == t.heading {
		return
	}
	t.heading, t.columns = string(line), nil
	if p, ok := newTable(line, t.options).(*table); ok {
		t.columns, t.twice = p.columns, p.twice
	}
}

// field cuts off a field. After the last field, rest is nil.
func (t *table) field(line []byte, comma byte) (field, rest []byte, ok bool) {
	if len(line) == 0 || line[0] != '"' || comma == '\t' {
		i := bytes.IndexByte(line, comma)
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
		case line[0] == comma:
			return t.scratch[start:], line[1:], true
		case line[0] != '"':
			return nil, nil, false
		}
		t.scratch = append(t.scratch, '"')
	}
}
