package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Pattern is a format as a server's configuration states it.
type Pattern struct {
	pieces []named
	tail   string // the text behind the last piece
	whole  bool   // nothing may follow on a line
}

// A named piece is a field of a pattern, in lower case, and the literal text before it.
type named struct{ before, name string }

// mostPieces bounds the length of a pattern.
const mostPieces = 200

// ParsePattern reads a pattern in one of two notations:
//
//	$remote_addr - $remote_user [$time_local] "$request" $status     nginx
//	%h %l %u %t \"%r\" %>s %b \"%{Referer}i\"                        Apache
//
// The variable is the name of the field, with the meaning that a JSON field of that name would
// have: $remote_addr is the ip, $http_x_api_key the header X-Api-Key, and an unknown name is an
// attribute of that name. A field ends where the text after it in the pattern begins; a field in
// quotes ends at the first quote without a backslash. A blank stands for one or more. What follows
// the pattern on a line is ignored. One field must be a time: $time_local, $time_iso8601, $msec,
// any of the names for a time, or $date and $time.
func ParsePattern(text string) (*Pattern, error) {
	text = strings.ReplaceAll(strings.TrimSpace(text), `\"`, `"`)
	p := &Pattern{}
	var err error
	switch {
	case strings.Contains(text, "$"):
		err = p.nginx(text)
	case strings.Contains(text, "%"):
		err = p.apache(text)
	default:
		err = errors.New(`no field in it: write $name as in nginx's log_format, or %h as in Apache's LogFormat`)
	}
	if err == nil && !p.timed() {
		err = errors.New("no time in it: name its field $time_local, $time_iso8601, $msec or $time, or in Apache's notation %t")
	}
	if err != nil {
		return nil, fmt.Errorf("format %q: %w", text, err)
	}
	return p, nil
}

// timed reports whether one of the fields is a time.
func (p *Pattern) timed() bool {
	return slices.ContainsFunc(p.pieces, func(n named) bool { return slices.Contains(names["time"], n.name) && n.name != "date" })
}

var variable = regexp.MustCompile(`\$(?:(\w+)|\{([^}]+)\})`)

func (p *Pattern) nginx(text string) error {
	at := 0
	for _, m := range variable.FindAllStringSubmatchIndex(text, -1) {
		name := ""
		for _, g := range [...]int{2, 4} {
			if m[g] >= 0 {
				name = text[m[g]:m[g+1]]
			}
		}
		if err := p.add(text[at:m[0]], name); err != nil {
			return err
		}
		at = m[1]
	}
	p.tail = text[at:]
	return nil
}

func (p *Pattern) add(before, name string) error {
	if len(p.pieces) > 0 && before == "" {
		return fmt.Errorf("nothing between $%s and $%s: where does the first end?", p.pieces[len(p.pieces)-1].name, name)
	}
	if len(p.pieces) == mostPieces {
		return fmt.Errorf("over %d fields", mostPieces)
	}
	p.pieces = append(p.pieces, named{before, strings.ToLower(name)})
	return nil
}

// directives maps Apache's directives to the variables of nginx.
var directives = map[string]string{
	"h": "remote_addr", "a": "remote_addr", "l": "ident", "u": "remote_user", "r": "request", "s": "status",
	"b": "body_bytes_sent", "B": "body_bytes_sent", "O": "bytes_sent", "m": "request_method", "U": "uri", "q": "query",
	"v": "host", "V": "host", "D": "duration", "T": "duration", "p": "port", "P": "pid", "H": "protocol", "k": "requests",
	"X": "connection", "L": "id", "I": "received", "S": "transferred", "A": "local", "f": "file", "R": "handler",
}

var directive = regexp.MustCompile(`%[<>]?(?:![0-9,]+)?(?:\{([^}]*)\})?(\^?[a-zA-Z%]{1,2})`)

func (p *Pattern) apache(text string) error {
	at := 0
	for at < len(text) {
		m := directive.FindStringSubmatchIndex(text[at:])
		if m == nil {
			break
		}
		for i := range m {
			if m[i] >= 0 {
				m[i] += at
			}
		}
		letter, argument := text[m[4]:m[4]+1], ""
		end := m[4] + 1
		if m[2] >= 0 {
			argument = text[m[2]:m[3]]
		}
		name, before, err := apacheField(letter, argument, text[at:m[0]])
		if err == nil {
			err = p.add(before, name)
		}
		if err != nil {
			return err
		}
		at = end
		if letter == "t" && argument == "" {
			p.pieces[len(p.pieces)-1].before = before + "["
			text = text[:at] + "]" + text[at:]
		}
	}
	p.tail = text[at:]
	return nil
}

// apacheField returns the field that a directive stands for, and the text before it.
func apacheField(letter, argument, before string) (name, text string, err error) {
	switch letter {
	case "i":
		return "http_" + strings.ReplaceAll(strings.ToLower(argument), "-", "_"), before, nil
	case "t":
		return "time", before, nil
	case "o", "e", "n", "C":
		return strings.ToLower(argument), before, nil
	case "%":
		return "", "", errors.New("%% is not read: name the field before it")
	}
	if name, ok := directives[letter]; ok {
		return name, before, nil
	}
	return "", "", fmt.Errorf("%%%s is no directive of Apache's LogFormat that is known", letter)
}

// attributeOf returns the attribute that a variable holds.
func attributeOf(variable string) string {
	for attribute, all := range names {
		if attribute == variable || slices.Contains(all, variable) {
			return attribute
		}
	}
	if header, ok := strings.CutPrefix(variable, "http_"); ok {
		return "header." + strings.ReplaceAll(header, "_", "-")
	}
	return variable
}

// attributes returns the attributes that the fields hold.
func (p *Pattern) attributes() (all []string) {
	for _, n := range p.pieces {
		if a := attributeOf(n.name); a != "time" && a != "request" {
			all = append(all, a)
		}
	}
	return all
}

// parser returns a parser of lines in the pattern.
func (p *Pattern) parser(o *Options) Parser {
	t := &texts{calendar: newCalendar(o), tail: []byte(p.tail), whole: p.whole, method: o.slot("method"), path: o.slot("path"), host: o.slot("host")}
	for i, n := range p.pieces {
		t.pieces = append(t.pieces, piece{before: []byte(n.before), slot: -1})
		if next := p.after(i); strings.HasSuffix(n.before, `"`) && strings.HasPrefix(next, `"`) {
			t.pieces[i].quoted = true
		}
		if n.name == "request" {
			t.pieces[i].meaning = asRequest
		}
		t.pieces[i].ported = slices.Contains(names["ip"], n.name) && strings.HasPrefix(p.after(i), ":")
	}
	if !p.paired(t) {
		p.bind(t, o.fieldsFor("time"), -1, asTime)
	}
	for slot, a := range o.Attributes {
		p.bind(t, o.fieldsFor(a), slot, meaningOf(a))
	}
	return t
}

// after returns the literal text behind piece i.
func (p *Pattern) after(i int) string {
	if i+1 < len(p.pieces) {
		return p.pieces[i+1].before
	}
	return p.tail
}

// paired finds a day and a time of day in separate fields.
func (p *Pattern) paired(t *texts) bool {
	date := slices.IndexFunc(p.pieces, func(n named) bool { return n.name == "date" })
	clock := slices.IndexFunc(p.pieces, func(n named) bool { return n.name == "time" })
	if date < 0 || clock < date {
		return false
	}
	t.pieces[date].meaning, t.pieces[clock].meaning = asDate, asClock
	return true
}

// bind sets the meaning of the first of the fields that the pattern has.
func (p *Pattern) bind(t *texts, fields []string, slot int, m meaning) {
	for _, field := range fields {
		for i, n := range p.pieces {
			if n.name == field && t.pieces[i].slot < 0 && t.pieces[i].meaning == asIs {
				t.pieces[i].slot, t.pieces[i].meaning = slot, m
				return
			}
		}
	}
}

// texts reads lines of a pattern.
type texts struct {
	calendar           calendar
	pieces             []piece
	tail               []byte
	whole              bool
	method, path, host int

	other Record // of another line
	inner bool   // that is being read
}

// A piece says what to do with one field of a line.
type piece struct {
	before  []byte
	slot    int // −1 if the field is not wanted
	meaning meaning
	quoted  bool
	ported  bool // an address with its port; IPv6 has colons of its own
}

// Parse implements [Parser].
func (t *texts) Parse(line []byte, r *Record) error {
	if len(line) == 0 {
		return ErrSkip
	}
	if repeats(line) {
		return errShape
	}
	r.clear()
	rest, ok := line, false
	var date []byte
	for i := range t.pieces {
		p := &t.pieces[i]
		if rest, ok = literal(rest, p.before); !ok {
			return errShape
		}
		next := t.tail
		if i+1 < len(t.pieces) {
			next = t.pieces[i+1].before
		}
		var value []byte
		if p.ported {
			value, rest, ok = beforePort(rest, next)
		} else if n := t.beforeTime(rest, i); n >= 0 {
			value, rest, ok = bytes.TrimRight(rest[:n], " "), rest[n:], true
		} else {
			value, rest, ok = field(line, rest, next, p.quoted)
		}
		if !ok {
			return errShape
		}
		switch p.meaning {
		case asDate:
			date = value
		case asTime:
			r.At, ok = t.calendar.read(value)
			if ok && bytes.HasPrefix(rest, []byte(`] "`)) && joined(rest[2:], t.calendar.is) {
				return errShape
			}
		case asClock:
			r.At, ok = t.calendar.pair(date, value)
		case asRequest:
			requestLine(value, t.method, t.path, r)
			if t.host >= 0 && r.Values[t.host] == nil {
				r.put(t.host, hostOf(value))
			}
		default:
			r.put(p.slot, p.meaning.of(value))
		}
		if !ok {
			return errTime
		}
	}
	rest, ok = literal(rest, t.tail)
	if !ok || t.whole && len(bytes.TrimSpace(rest)) > 0 || len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' && len(t.tail) == 0 {
		return errShape
	}
	if t.joined(rest, len(r.Values)) {
		return errShape
	}
	return nil
}

// mostAfter is how many fields behind the pattern are looked at for another line.
const mostAfter = 64

// joined reports whether what follows a line on it is another line, as where lines have lost their ends.
func (t *texts) joined(rest []byte, values int) bool {
	if t.inner || len(rest) == 0 {
		return false
	}
	t.inner = true
	defer func() { t.inner = false }()
	t.other.Values = slices.Grow(t.other.Values[:0], values)[:values]
	for range mostAfter {
		if rest = bytes.TrimLeft(rest, " \t"); len(rest) == 0 {
			return false
		}
		if t.Parse(rest, &t.other) == nil {
			return true
		}
		i := bytes.IndexAny(rest, " \t")
		if i < 0 {
			return false
		}
		rest = rest[i:]
	}
	return false
}

// beforeTime returns the end of a value that precedes a time in brackets, or −1 if no time can be
// read: a user name may have brackets of its own.
func (t *texts) beforeTime(rest []byte, i int) int {
	if i+1 == len(t.pieces) || t.pieces[i].quoted || t.pieces[i+1].meaning != asTime || !bytes.HasSuffix(t.pieces[i+1].before, []byte(" [")) {
		return -1
	}
	before := t.pieces[i+1].before
	next := t.tail
	if i+2 < len(t.pieces) {
		next = t.pieces[i+2].before
	}
	for at := 0; ; at++ {
		n := bytes.Index(rest[at:], before)
		if n < 0 {
			return -1
		}
		at += n
		stamp, _ := literal(rest[at:], before)
		if end := bytes.Index(stamp, next); end > 0 {
			if _, ok := t.calendar.read(stamp[:end]); ok {
				return at
			}
		}
	}
}

// literal skips a literal text, in which a blank stands for one or more.
func literal(rest, text []byte) ([]byte, bool) {
	for _, c := range text {
		if len(rest) == 0 || rest[0] != c {
			return nil, false
		}
		if rest = rest[1:]; c == ' ' {
			for len(rest) > 0 && rest[0] == ' ' {
				rest = rest[1:]
			}
		}
	}
	return rest, true
}

// beforePort cuts off an address at the last colon before a blank. Behind it is a port or a dash;
// for a Unix socket nginx writes neither.
func beforePort(rest, next []byte) (value, after []byte, ok bool) {
	word := rest
	if i := bytes.IndexByte(rest, ' '); i >= 0 {
		word = rest[:i]
	}
	i := bytes.LastIndex(word, next)
	if i < 0 {
		return nil, nil, false
	}
	if len(next) == 1 && string(word[:i]) != "unix:" && !port.Match(word[i+1:]) {
		return nil, nil, false
	}
	return address(rest[:i]), rest[i:], true
}

// port matches what follows an address. It does not match what follows the last colon of a time.
var port = regexp.MustCompile(`^(\d+|-)([^\w.]|$)`)

// field cuts off a value. The value ends where next begins, or before a blank if there is no next.
// The slice rest is within line.
func field(line, rest, next []byte, inQuotes bool) (value, after []byte, ok bool) {
	switch {
	case inQuotes:
		value, after, ok = quoted(line[len(line)-len(rest)-1:])
		return value, line[len(line)-len(after)-1:], ok
	case len(next) > 0:
		i := bytes.Index(rest, next)
		if i < 0 {
			return nil, nil, false
		}
		if value = rest[:i]; next[0] == ' ' { // a blank in the pattern stands for one or more
			value = bytes.TrimRight(value, " ")
		}
		return value, rest[len(value):], true
	}
	if i := bytes.IndexByte(rest, ' '); i >= 0 {
		return rest[:i], rest[i:], true
	}
	return rest, nil, true
}
