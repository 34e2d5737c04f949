package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// object reads lines that are JSON objects. The name of a field in a nested object has dots; of a
// list, the first item counts. Names are compared in lower case.
type object struct {
	calendar calendar
	targets  map[string][]target
	method   int // the slot for the method of a field "request" that is a request line
	path     int

	text    []byte // the rest of the line
	name    []byte // the name of the present field
	date    []byte // the day, where day and time of day are two fields
	clock   []byte
	scratch []byte // for texts with escapes
	ranks   []int  // by slot, the time last: the best rank so far
	err     error
	twice   bool               // a field that counts has come twice: readers differ in which they take
	lined   bool               // the line has a field "request" that is a request line
	told    func(field string) // if not nil, called with the name of each field

	choosy  bool  // other lines of the log are requests, so lines without one are skipped
	request bool  // the line has a field of a request
	has     uint8 // which of requestFields the line has, if the parser is choosy
	aside   bool  // the line itself says that it is no request
	line    []byte
}

// A target is the attribute that a field holds. Where several fields hold one attribute, the field
// with the least rank counts.
type target struct {
	slot, rank int
	meaning    meaning
}

// deepest is how deep objects may be nested: logs are flat.
const deepest = 16

var (
	errTwice  = errors.New("a field twice, of which readers take one or the other")
	errJSON   = errors.New("not a JSON object")
	errWithin = errors.New("no request itself, but a text or an object in it has one")
)

func newObject(o *Options) Parser {
	p := &object{
		calendar: newCalendar(o), targets: make(map[string][]target),
		method: o.slot("method"), path: o.slot("path"),
		ranks: make([]int, len(o.Attributes)+1),
	}
	add := func(attribute string, slot int) {
		for rank, field := range o.fieldsFor(attribute) {
			p.targets[field] = append(p.targets[field], target{slot, rank, meaningOf(attribute)})
		}
	}
	for slot, a := range o.Attributes {
		add(a, slot)
	}
	add("time", len(o.Attributes))
	p.targets["logger"] = append(p.targets["logger"], target{noSlot, 0, asLogger})
	return p
}

// noSlot is the slot of a field that only says what kind of line it is.
const noSlot = -1

// requestFields are the attributes by which a line is known to be about a request.
var requestFields = []string{"ip", "method", "path", "status"}

// requestLined are the bits of method and path among requestFields, which a request line has.
const requestLined = 1<<1 | 1<<2

// choose makes the parser skip lines that have nothing of a request.
func (p *object) choose(o *Options) {
	p.choosy = true
	for i, attribute := range requestFields {
		for _, field := range o.fieldsFor(attribute) {
			p.targets[field] = append(p.targets[field], target{slot: noSlot, rank: i})
		}
	}
}

// requestsIn wraps a maker of parsers. If any of the lines has the method, path or status of a
// request, the server wrote the lines without them about itself, and the parsers skip those.
func requestsIn(lines [][]byte, parser func(*Options) Parser) func(*Options) Parser {
	asked := requestFields[1:]
	p, r := parser(&Options{Attributes: asked}), Record{Values: make([][]byte, len(asked))}
	for _, line := range lines {
		if p.Parse(line, &r) == nil && slices.ContainsFunc(r.Values, func(v []byte) bool { return v != nil }) {
			return func(o *Options) Parser {
				p := parser(o)
				p.(interface{ choose(*Options) }).choose(o)
				return p
			}
		}
	}
	return parser
}

// Parse implements [Parser].
func (p *object) Parse(line []byte, r *Record) error {
	if line = element(bytes.TrimSpace(line)); len(line) == 0 {
		return ErrSkip
	}
	p.begin(line, r)
	if line[0] != '{' || !p.value(r, deepest) || len(bytes.TrimSpace(p.text)) > 0 {
		return errJSON
	}
	return p.judge(r)
}

// element returns the item of an array on a line, where each item has a line of its own.
func element(line []byte) []byte {
	if n := len(line); n == 0 || line[0] == '{' && line[n-1] == '}' {
		return line
	}
	for _, end := range [...]string{",", "]"} {
		line = bytes.TrimRight(bytes.TrimSuffix(line, []byte(end)), " \t")
	}
	return bytes.TrimLeft(bytes.TrimPrefix(line, []byte("[")), " \t")
}

// begin prepares the parser for a line.
func (p *object) begin(line []byte, r *Record) {
	p.text, p.name, p.scratch, p.err = line, p.name[:0], p.scratch[:0], nil
	p.twice, p.lined = false, false
	p.date, p.clock, p.request, p.has, p.aside, p.line = nil, nil, false, 0, false, line
	r.clear()
	for i := range p.ranks {
		p.ranks[i] = 1 << 30
	}
}

// judge returns what is wrong with a line after its fields have been read.
func (p *object) judge(r *Record) error {
	if p.aside || p.choosy && !p.request && !slices.ContainsFunc(p.ranks[:len(p.ranks)-1], func(rank int) bool { return rank < 1<<30 }) {
		if !p.aside && within(p.line) {
			return errWithin
		}
		return ErrAside
	}
	if p.twice {
		return errTwice
	}
	if p.err != nil && p.date != nil && p.clock != nil {
		if at, ok := p.calendar.pair(p.date, p.clock); ok {
			r.At, p.err, p.ranks[len(p.ranks)-1] = at, nil, 0
		}
	}
	if p.err != nil {
		return p.err
	}
	if p.ranks[len(p.ranks)-1] == 1<<30 && !r.dated {
		return errNoTime
	}
	return nil
}

// lower adds a name in lower case.
func lower(to, name []byte) []byte {
	for _, c := range name {
		if c-'A' < 26 {
			c |= 0x20
		}
		to = append(to, c)
	}
	return to
}

// skip skips blanks, and reports whether c comes next. It consumes c.
func (p *object) skip(c byte) bool {
	for len(p.text) > 0 && (p.text[0] == ' ' || p.text[0] == '\t' || p.text[0] == '\r') {
		p.text = p.text[1:]
	}
	if len(p.text) > 0 && p.text[0] == c {
		p.text = p.text[1:]
		return true
	}
	return false
}

// value reads any value and puts its wanted attributes into the record.
func (p *object) value(r *Record, depth int) bool {
	switch {
	case depth == 0:
		return false
	case p.skip('{'):
		return p.fields(r, depth)
	case p.skip('['):
		return p.items(r, depth)
	case p.skip('"'):
		text, ok := p.str()
		if ok {
			p.found(text, r)
		}
		return ok
	}
	n := 0
	for n < len(p.text) && p.text[n] != ',' && p.text[n] != '}' && p.text[n] != ']' && p.text[n] > ' ' {
		n++
	}
	word := p.text[:n]
	p.text = p.text[n:]
	switch string(word) {
	case "null":
		return true
	case "true", "false":
	default:
		if n == 0 || word[0] != '-' && word[0]-'0' > 9 {
			return false
		}
	}
	p.found(word, r)
	return true
}

func (p *object) fields(r *Record, depth int) bool {
	if p.skip('}') {
		return true
	}
	before := len(p.name)
	for {
		if !p.skip('"') {
			return false
		}
		key, ok := p.str()
		if !ok || !p.skip(':') {
			return false
		}
		if before > 0 {
			p.name = append(p.name, '.')
		}
		p.name = lower(p.name, key)
		if p.told != nil {
			p.told(string(p.name))
		}
		if !p.value(r, depth-1) {
			return false
		}
		p.name = p.name[:before]
		if p.skip('}') {
			return true
		}
		if !p.skip(',') {
			return false
		}
	}
}

func (p *object) items(r *Record, depth int) bool {
	if p.skip(']') {
		return true
	}
	name := p.name
	defer func() { p.name = name }()
	for {
		if !p.value(r, depth-1) {
			return false
		}
		p.name = append(name, '.') // no field has this name
		if p.skip(']') {
			return true
		}
		if !p.skip(',') {
			return false
		}
	}
}

// str reads a string after its opening quote.
func (p *object) str() ([]byte, bool) {
	i := bytes.IndexByte(p.text, '"')
	if i < 0 {
		return nil, false
	}
	if bytes.IndexByte(p.text[:i], '\\') < 0 {
		text := p.text[:i]
		p.text = p.text[i+1:]
		return text, true
	}
	start := len(p.scratch)
	for len(p.text) > 0 {
		c := p.text[0]
		p.text = p.text[1:]
		switch c {
		case '"':
			return p.scratch[start:], true
		case '\\':
			if !p.escape() {
				return nil, false
			}
		default:
			p.scratch = append(p.scratch, c)
		}
	}
	return nil, false
}

// escape reads what follows a backslash.
func (p *object) escape() bool {
	if len(p.text) == 0 {
		return false
	}
	c := p.text[0]
	p.text = p.text[1:]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := p.hex()
		if !ok {
			return false
		}
		if utf16.IsSurrogate(r) && bytes.HasPrefix(p.text, []byte(`\u`)) {
			p.text = p.text[2:]
			low, ok := p.hex()
			if !ok {
				return false
			}
			r = utf16.DecodeRune(r, low)
		}
		p.scratch = utf8.AppendRune(p.scratch, r)
		return true
	case 'x': // nginx without escape=json
		if len(p.text) < 2 {
			return false
		}
		n, err := strconv.ParseUint(string(p.text[:2]), 16, 8)
		p.text, c = p.text[2:], byte(n)
		if err != nil {
			return false
		}
	default:
		return false
	}
	p.scratch = append(p.scratch, c)
	return true
}

func (p *object) hex() (rune, bool) {
	if len(p.text) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.text[:4]), 16, 16)
	p.text = p.text[4:]
	return rune(n), err == nil
}

// found stores the text of the field p.name under its attributes.
func (p *object) found(text []byte, r *Record) {
	for _, target := range p.targets[string(p.name)] {
		if target.slot == noSlot {
			if target.meaning == asLogger {
				p.aside = p.aside || beside(text)
				continue
			}
			p.has |= 1 << target.rank
			p.request = p.request || len(text) > 0 && string(text) != "-"
			continue
		}
		p.twice = p.twice || target.rank == p.ranks[target.slot]
		if target.rank >= p.ranks[target.slot] {
			continue
		}
		if target.meaning == asTime {
			if at, ok := p.calendar.read(text); ok {
				r.At, p.ranks[target.slot], p.err = at, target.rank, nil
			} else if p.ranks[target.slot] == 1<<30 {
				p.err = errTime
			}
			switch string(p.name) {
			case "date":
				p.date = text
			case "time":
				p.clock = text
			}
			continue
		}
		if value := target.meaning.of(text); len(value) > 0 && string(value) != "-" {
			r.Values[target.slot], p.ranks[target.slot] = value, target.rank
		}
	}
	if string(p.name) == "request" { // nginx: the request line
		p.twice, p.lined = p.twice || p.lined, true
		p.request, p.has = true, p.has|requestLined
		var whole Record
		whole.Values = [][]byte{nil, nil}
		requestLine(text, 0, 1, &whole)
		for i, slot := range [...]int{p.method, p.path} {
			if slot >= 0 && p.ranks[slot] == 1<<30 {
				r.put(slot, whole.Values[i])
			}
		}
	}
}

// beside reports whether a logger of Caddy writes about a request that the access log also has.
func beside(logger []byte) bool {
	return bytes.HasPrefix(logger, []byte("http.log.error")) || bytes.HasPrefix(logger, []byte("http.handlers."))
}
