package accesslog

import (
	"bytes"
	"strings"
)

// A cutter cuts off the prefix that something put before a line on the line's way. It returns the
// message behind the prefix, and the time of the prefix, if it has one. It returns false for a line
// without the prefix.
type cutter func(line []byte) (message []byte, at int64, dated, ok bool)

// A prefix is a text that may precede the lines of a log.
type prefix struct {
	name   string
	cutter func(o *Options) cutter
}

// prefixes are the known prefixes, the strictest first.
var prefixes = []prefix{
	{"behind syslog", func(o *Options) cutter { return (&syslog{newCalendar(o)}).cut }},
	{"behind CRI", func(o *Options) cutter { c := newCalendar(o); return c.cri }},
	{"behind docker compose", func(*Options) cutter { return compose }},
	{"behind kubectl --prefix", func(*Options) cutter { return podPrefix }},
	{"behind timestamps", func(o *Options) cutter { c := newCalendar(o); return c.timestamps }},
	{"in docker json-file", func(o *Options) cutter { return newWrapped(o, "log").cut }},
	{"in JSON", func(o *Options) cutter { return newWrapped(o, "message").cut }},
}

// behind reads lines behind a prefix. The time of the message counts; if it has none, the time of
// the prefix does.
type behind struct {
	cut     cutter
	message Parser
}

// Parse implements [Parser].
func (p *behind) Parse(line []byte, r *Record) error {
	if len(line) == 0 {
		return ErrSkip
	}
	message, at, dated, ok := p.cut(line)
	if !ok {
		return errShape
	}
	if dated {
		r.At, r.dated = at, true
	}
	err := p.message.Parse(message, r)
	r.dated = false
	return err
}

// cri cuts the prefix of containerd and CRI-O: 2023-11-14T22:13:20.1Z stdout F .
func (c *calendar) cri(line []byte) (message []byte, at int64, dated, ok bool) {
	message, at, dated, ok = c.timestamps(line)
	if !ok {
		return nil, 0, false, false
	}
	for _, stream := range [...]string{"stdout ", "stderr "} {
		if rest, found := bytes.CutPrefix(message, []byte(stream)); found && len(rest) >= 2 && (rest[0] == 'F' || rest[0] == 'P') {
			if rest[1] == ' ' {
				return rest[2:], at, dated, true
			}
			if tags, message, found := bytes.Cut(rest, blank); found && tags[1] == ':' {
				return message, at, dated, true
			}
		}
	}
	return nil, 0, false, false
}

// timestamps cuts the prefix of docker logs --timestamps and kubectl logs --timestamps: an RFC 3339
// time with its zone.
func (c *calendar) timestamps(line []byte) (message []byte, at int64, dated, ok bool) {
	stamp, message, ok := bytes.Cut(line, blank)
	if !ok || len(stamp) < 20 || stamp[4] != '-' || stamp[10] != 'T' {
		return nil, 0, false, false
	}
	at, ok = c.read(stamp)
	return message, at, true, ok
}

// compose cuts the prefix of docker compose logs: web-1  | .
func compose(line []byte) (message []byte, at int64, dated, ok bool) {
	line = uncoloured(line)
	name, message, ok := bytes.Cut(line, []byte("|"))
	name = bytes.TrimRight(name, " ")
	if !ok || len(name) == 0 || bytes.IndexByte(name, ' ') >= 0 || !addressed(name) {
		return nil, 0, false, false
	}
	message = uncoloured(message)
	return bytes.TrimPrefix(message, blank), 0, false, true
}

// uncoloured cuts off the codes that colour a terminal.
func uncoloured(line []byte) []byte {
	for bytes.HasPrefix(line, []byte("\x1b[")) {
		i := bytes.IndexByte(line, 'm')
		if i < 0 {
			return line
		}
		line = line[i+1:]
	}
	return line
}

// podPrefix cuts the prefix of kubectl logs --prefix: [pod/web-5d4/nginx] .
func podPrefix(line []byte) (message []byte, at int64, dated, ok bool) {
	if !bytes.HasPrefix(line, []byte("[pod/")) {
		return nil, 0, false, false
	}
	_, message, ok = bytes.Cut(line, []byte("] "))
	return message, 0, false, ok
}

// wrapped reads lines that are themselves a field of JSON objects, as in the files of Docker's
// json-file driver.
type wrapped struct {
	object  *object
	field   []byte // the name of the field, in quotes
	capital []byte // the name as the journal writes it
	record  Record
}

func newWrapped(o *Options, field string) *wrapped {
	inner := *o
	inner.Attributes, inner.Fields = []string{field}, map[string]string{field: field}
	return &wrapped{object: newObject(&inner).(*object), field: []byte(`"` + field + `"`), capital: []byte(`"` + strings.ToUpper(field) + `"`), record: Record{Values: make([][]byte, 1)}}
}

func (w *wrapped) cut(line []byte) (message []byte, at int64, dated, ok bool) {
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, w.field) && !bytes.Contains(line, w.capital) {
		return nil, 0, false, false
	}
	w.record.At, w.record.dated = 0, true
	err := w.object.Parse(line, &w.record)
	message = bytes.TrimRight(w.record.Values[0], "\r\n")
	return message, w.record.At, w.record.At > 0, err == nil && len(message) > 0
}
