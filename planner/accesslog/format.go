package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Format is the format of the lines of a log.
type Format struct {
	// Name is the name for people, such as "combined".
	Name string
	// Fields are the names of the fields of the lines, in lower case, if they have names:
	// [Options.Fields] may say what they mean.
	Fields []string

	parser func(o *Options) Parser
	o      *Options
	fixed  bool     // the format itself says where the address is
	others []string // attributes that only this format has
}

// Parser returns a new parser for the caller.
func (f Format) Parser() Parser { return f.parser(f.o) }

// With returns the format with parsers that read other attributes.
func (f Format) With(attributes []string) Format {
	o := *f.o
	o.Attributes = attributes
	f.o = &o
	return f
}

// sampled is how many lines are looked at to recognise a format.
const sampled = 100

// deepestPrefix is how many prefixes a line may have, one before another.
const deepestPrefix = 2

// Detect recognises the format of a sample from the beginning of a log: the format that reads all
// but one in twenty of the lines, and finds an address where it has one. An empty sample has the
// format "empty".
func Detect(sample []byte, o Options) (Format, error) {
	lines := sampleLines(sample)
	if len(lines) == 0 {
		return Format{Name: "empty", parser: newCombined, o: &o}, nil
	}
	if bytes.IndexByte(sample, '\n') < 0 && bytes.IndexByte(bytes.TrimRight(sample, "\r"), '\r') >= 0 {
		return Format{}, errors.New(`its lines end in CR alone: bring them to LF first, such as with tr '\r' '\n' < FILE | stint plan -`)
	}
	if o.Format != "" {
		return stated(lines, &o)
	}
	f, ok := recognise(lines, &o, 0)
	if !ok {
		return Format{}, unknown(sample, lines, &o)
	}
	if len(o.Fields) > 0 && f.Fields == nil {
		return Format{}, fmt.Errorf("%s: its lines have no fields with names, which Fields could name: say how they are written with a format", f.Name)
	}
	return f, nil
}

// stated returns the format that the options ask for.
func stated(lines [][]byte, o *Options) (Format, error) {
	p, err := ParsePattern(o.Format)
	if err != nil {
		return Format{}, err
	}
	f := Format{Name: "as stated", parser: p.parser, o: o, Fields: []string{}, fixed: true}
	for _, n := range p.pieces {
		f.Fields = append(f.Fields, n.name)
	}
	if f.fits(lines) {
		return f, nil
	}
	for _, x := range prefixes {
		if _, ok := stripped(lines, x, o); ok {
			if g := f.behind(x); g.fits(lines) {
				return g, nil
			}
		}
	}
	_, bad := f.count(lines)
	return Format{}, fmt.Errorf("%d of the first %d lines are not in the format that was stated, such as\n  %s", len(bad), len(lines), Excerpt(bad[0]))
}

// recognise finds the format of lines, also behind prefixes.
func recognise(lines [][]byte, o *Options, depth int) (Format, bool) {
	for _, x := range prefixes[len(prefixes)-2:] { // a log in JSON may be wrapped in lines of JSON
		if f, ok := recognisePrefixed(lines, x, o, depth); ok {
			return f, true
		}
	}
	for _, f := range candidates(lines, o) {
		if f.fits(lines) {
			f.Name = dialect(f.Name, lines)
			return f, true
		}
	}
	for _, x := range prefixes[:len(prefixes)-2] {
		if f, ok := recognisePrefixed(lines, x, o, depth); ok {
			return f, true
		}
	}
	return Format{}, false
}

func recognisePrefixed(lines [][]byte, x prefix, o *Options, depth int) (Format, bool) {
	messages, ok := stripped(lines, x, o)
	if !ok || depth == deepestPrefix {
		return Format{}, false
	}
	f, ok := recognise(messages, o, depth+1)
	if !ok { // a message without a time takes the time of its prefix
		for _, c := range candidates(messages, o) {
			if g := c.behind(x); c.Fields != nil && g.fits(lines) {
				return g, true
			}
		}
		return Format{}, false
	}
	return f.behind(x), true
}

// behind returns the format of lines in f that follow a prefix.
func (f Format) behind(x prefix) Format {
	inner := f.parser
	f.parser = func(o *Options) Parser { return &behind{x.cutter(o), inner(o)} }
	f.Name += " " + x.name
	return f
}

// stripped cuts a prefix off the lines. It returns false if many lines do not have the prefix.
func stripped(lines [][]byte, x prefix, o *Options) (messages [][]byte, ok bool) {
	cut := x.cutter(o)
	for _, line := range lines {
		if message, _, _, ok := cut(line); ok && len(message) > 0 {
			messages = append(messages, bytes.Clone(message))
		}
	}
	return messages, nearlyAll(len(messages), len(lines))
}

// nearlyAll reports whether n is all but one in twenty of a number, or all but one of few.
func nearlyAll(n, of int) bool { return n > 0 && n*2 > of && of-n <= max(of/20, 1) }

// sampleLines returns the first lines of a sample that are not empty.
func sampleLines(sample []byte) (lines [][]byte) {
	for len(sample) > 0 && len(lines) < sampled {
		var line []byte
		line, sample = Line(sample)
		if sample == nil && len(lines) > 0 {
			break // the sample ends in this line, which may be cut off
		}
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// candidates returns the formats that lines like these may have.
func candidates(lines [][]byte, o *Options) []Format {
	all := []Format{
		{Name: "combined", parser: newCombined, o: o, fixed: true},
		{Name: "JSON", parser: requestsIn(lines, newObject), o: o, Fields: fieldsOf(lines)},
	}
	if answerers(lines) {
		all[0].parser = newAnswered
	}
	for _, s := range shapes {
		all = append(all, Format{Name: s.name, parser: s.parsed.parser, o: o, fixed: true, others: s.parsed.attributes()})
	}
	heading := headingOf(lines)
	if t, ok := newTable(heading, o).(*table); ok && t.twice == "" {
		comma, columns, _ := readHeading(heading)
		name := map[byte]string{'\t': "TSV", ' ': "W3C"}[comma]
		if name == "" {
			name = "CSV"
		}
		heading = bytes.Clone(heading)
		all = append(all, Format{Name: name, parser: func(o *Options) Parser { return newTable(heading, o) }, o: o, Fields: columns})
	}
	return append(all, Format{Name: "logfmt", parser: whole(lines, requestsIn(lines, newLogfmt)), o: o, Fields: logfmtFields(lines)})
}

// headingOf returns the line that names the columns: the first line, or one that begins with
// #Fields.
func headingOf(lines [][]byte) []byte {
	for _, line := range lines {
		if bytes.HasPrefix(line, w3cFields) {
			return line
		}
	}
	return lines[0]
}

// fits reports whether nearly all lines are in the format, and have an address where the format has
// one.
func (f Format) fits(lines [][]byte) bool {
	good, bad := f.count(lines)
	return nearlyAll(len(good), len(good)+len(bad)) || len(good)+len(bad) == 0
}

// count splits the requests among the lines: those that are in the format, and those that are not.
func (f Format) count(lines [][]byte) (good, bad [][]byte) {
	f = f.With([]string{"ip", "status", "host", "user"})
	p := f.Parser()
	r := Record{Values: make([][]byte, 4)}
	for _, line := range lines {
		switch err := p.Parse(line, &r); {
		case errors.Is(err, ErrSkip):
		case err == nil && (!f.fixed || plausible(&r)):
			good = append(good, line)
		default:
			bad = append(bad, line)
		}
	}
	return good, bad
}

// plausible reports whether address, status, host and user are what they claim.
func plausible(r *Record) bool {
	ip, status, host := r.Values[0], r.Values[1], r.Values[2]
	if bytes.Contains(r.Values[3], []byte(" -")) { // the value has run over several fields
		return false
	}
	code, whole := digits(status)
	return (ip == nil || addressed(ip)) && (status == nil || whole && code < 1000) && (host == nil || addressed(address(host)))
}

// fieldsOf returns the names of the fields in the first lines, in lower case, or nil if they are no
// JSON.
func fieldsOf(lines [][]byte) (all []string) {
	seen := make(map[string]bool)
	for _, line := range lines {
		p := newObject(&Options{}).(*object)
		p.told = func(name string) {
			if !seen[name] && len(all) < mostFields {
				seen[name], all = true, append(all, name)
			}
		}
		var r Record
		if err := p.Parse(line, &r); errors.Is(err, errJSON) || errors.Is(err, ErrSkip) {
			continue
		}
	}
	return all
}

// mostFields bounds how many fields of JSON are named.
const mostFields = 100

var logfmtName = regexp.MustCompile(`(?:^|\s)([A-Za-z_][\w.@-]*)=`)

func logfmtFields(lines [][]byte) []string {
	all := []string{}
	for _, m := range logfmtName.FindAllSubmatch(lines[0], mostFields) {
		all = append(all, strings.ToLower(string(m[1])))
	}
	return all
}

// unknown returns the error that no known format fits, and says which comes closest.
func unknown(sample []byte, lines [][]byte, o *Options) error {
	if why := binary(sample); why != "" {
		return errors.New(why)
	}
	var b strings.Builder
	most, name, bad := closest(lines, o)
	switch {
	case most*10 >= len(lines):
		fmt.Fprintf(&b, "%d of the first %d lines are %s, and too many are not, such as", most, len(lines), name)
		listed(&b, bad)
		b.WriteString("\ntake those out first, if they are of another program")
		return errors.New(b.String())
	case most > 0:
		lines = bad
	}
	if why := fielded(lines, o); why != "" {
		return errors.New(why)
	}
	b.WriteString("the lines are in no format that is known; the first are")
	listed(&b, lines)
	b.WriteString("\nthe formats are " + knownNames())
	b.WriteString("\nsay how the lines are written with --format, as nginx's log_format or Apache's LogFormat has it, such as\n  --format '$remote_addr - $remote_user [$time_local] \"$request\" $status'")
	return errors.New(b.String())
}

// array matches the beginning of a list of JSON objects, and not that of a time in brackets.
var array = regexp.MustCompile(`^\[\s*(\{|$)`)

// fielded says which attribute is missing in lines whose fields have names. It returns "" for other
// lines.
func fielded(lines [][]byte, o *Options) string {
	text := bytes.TrimLeft(lines[0], " \t")
	fields := fieldsOf(lines)
	if t, ok := newTable(headingOf(lines), o).(*table); ok && t.twice != "" {
		return fmt.Sprintf("a table with two columns %s, of which readers take one or the other: take one out, or rename it", t.twice)
	}
	whole := json.Valid(text) && text[0] == '{'
	switch comma, columns, ok := readHeading(headingOf(lines)); {
	case whole && len(fields) > 1 && !slices.ContainsFunc(fields[1:], func(f string) bool { return !strings.HasPrefix(f, fields[0]+".") }):
		return "JSON with all requests in one object: one a line is read, such as from jq -c '." + fields[0] + "[]' FILE | stint plan -"
	case !whole && (array.Match(text) || text[0] == '{' && len(fields) == 0):
		return "JSON, but not with one object a line: bring it to that first, such as with jq -c '.[]' FILE | stint plan -"
	case len(fields) > 0:
		p := newObject(&Options{}).(*object)
		return timeless("JSON lines", "field", fields, o, func(field string) (value string) {
			p.targets = map[string][]target{field: {{slot: 0}}}
			p.ranks = make([]int, 2)
			r := Record{Values: make([][]byte, 1)}
			for i := 0; i < len(lines) && value == ""; i++ {
				_ = p.Parse(lines[i], &r) // an error about the time is expected here
				value = string(r.Values[0])
			}
			return value
		})
	case ok && len(lines) > 1 && bytes.Count(lines[1], []byte{comma}) >= len(columns)-1:
		return timeless("a table", "column", columns, o, func(column string) string {
			return strings.Trim(strings.Split(string(lines[1]), string(comma))[slices.Index(columns, column)], `" `)
		})
	}
	return ""
}

// timeless says of lines with named fields that the field of the time is not known, or that its
// times cannot be read.
func timeless(what, one string, names []string, o *Options, value func(name string) string) string {
	for _, field := range o.fieldsFor("time") {
		if slices.Contains(names, field) {
			return fmt.Sprintf("%s whose times cannot be read: the %s %s has %s, where a time is like 2015-05-17T10:05:03Z, 17/May/2015:10:05:03 +0000 or 1431857103.25", what, one, field, Excerpt([]byte(value(field))))
		}
	}
	return fmt.Sprintf("%s with no %s that is known for the time; the %ss are %s\nsay which has the time, such as --field time=%s", what, one, one, strings.Join(names, ", "), likely("time", names))
}

// listed writes the first few lines.
func listed(b *strings.Builder, lines [][]byte) {
	for _, line := range lines[:min(len(lines), 3)] {
		b.WriteString("\n  " + Excerpt(line))
	}
}

// closest returns the format that most of the lines are in, how many these are, and the lines that
// are not in it.
func closest(lines [][]byte, o *Options) (most int, name string, bad [][]byte) {
	for _, f := range candidates(lines, o) {
		good, others := f.count(lines)
		if len(good) > most {
			most, name, bad = len(good), dialect(f.Name, good), others
		}
	}
	return most, name, bad
}

// likely returns the field that probably holds an attribute.
func likely(attribute string, fields []string) string {
	wants := append([]string{attribute}, names[attribute]...)
	if attribute == "time" {
		wants = append(wants, "date", "when", "stamp", "epoch")
	}
	if attribute == "ip" {
		wants = append(wants, "addr", "peer")
	}
	for _, want := range wants {
		for _, f := range fields {
			if strings.Contains(f, want) {
				return f
			}
		}
	}
	return "FIELD"
}

// usual are the attributes that any format may have.
var usual = []string{"ip", "user", "method", "host", "path", "status", "bytes", "header.referer", "header.user-agent", "header.x-forwarded-for"}

// Attributes returns the attributes that the lines of a sample have.
func (f Format) Attributes(sample []byte) (all []string) {
	asked := slices.Clone(usual)
	for _, name := range f.others {
		if !slices.Contains(asked, name) {
			asked = append(asked, name)
		}
	}
	p := f.With(asked).Parser()
	r, has := Record{Values: make([][]byte, len(asked))}, make([]bool, len(asked))
	for _, line := range sampleLines(sample) {
		if p.Parse(line, &r) != nil {
			continue
		}
		for i, v := range r.Values {
			has[i] = has[i] || v != nil
		}
	}
	for i, name := range asked {
		if has[i] {
			all = append(all, name)
		}
	}
	return all
}

// Likely returns the field of the format that probably holds an attribute, or "FIELD" if no field
// looks like it. For the address that is the field with the most different addresses in the sample.
func (f Format) Likely(attribute string, sample []byte) string {
	best, most := likely(attribute, f.Fields), 0
	if attribute != "ip" {
		return best
	}
	o := *f.o
	o.Attributes, o.Fields = f.Fields, make(map[string]string)
	for _, name := range f.Fields {
		o.Fields[name] = name
	}
	if delete(o.Fields, "time"); f.o.Fields["time"] != "" {
		o.Fields["time"] = f.o.Fields["time"]
	}
	f.o = &o
	seen := make([]map[string]bool, len(f.Fields))
	p, r := f.Parser(), Record{Values: make([][]byte, len(f.Fields))}
	for _, line := range sampleLines(sample) {
		if p.Parse(line, &r) != nil {
			continue
		}
		for i, v := range r.Values {
			if seen[i] == nil {
				seen[i] = make(map[string]bool)
			}
			if v = address(v); isAddress(v) {
				seen[i][string(v)] = true
			}
		}
	}
	for i, values := range seen {
		if len(values) > most {
			best, most = f.Fields[i], len(values)
		}
	}
	return best
}

// binary says why a sample is not text, or returns "" if it may be.
func binary(sample []byte) string {
	if bytes.HasPrefix(sample, []byte{0xff, 0xfe}) || bytes.HasPrefix(sample, []byte{0xfe, 0xff}) {
		return "UTF-16: bring it to UTF-8 first, such as with iconv -f UTF-16 -t UTF-8"
	}
	if wide(sample[:min(len(sample), 4096)]) {
		return "UTF-16 without a mark: bring it to UTF-8 first, such as with iconv -f UTF-16LE (or UTF-16BE) -t UTF-8"
	}
	for magic, tool := range map[string]string{"\xfd7zXZ": "xz", "BZh": "bzip2", "\x04\x22\x4d\x18": "lz4"} {
		if bytes.HasPrefix(sample, []byte(magic)) {
			return "packed by " + tool + ", which is not read: " + tool + " -dc FILE | stint plan -"
		}
	}
	sample = sample[:min(len(sample), 4096)]
	control := 0
	for _, c := range sample {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != 0x1b {
			control++
		}
	}
	if control*50 > len(sample) {
		return "binary, not lines of text; gzip and zstd are read as they are"
	}
	return ""
}

// wide reports whether a sample is ASCII text in UTF-16: every other byte is NUL.
func wide(sample []byte) bool {
	var nul [2]int
	for i, c := range sample {
		if c == 0 {
			nul[i%2]++
		}
	}
	return max(nul[0], nul[1])*10 > len(sample)*4 && min(nul[0], nul[1]) == 0
}

// dialect names the variant of a format that one parser reads in several variants.
func dialect(name string, lines [][]byte) string {
	line := lines[len(lines)/2]
	has := func(field string) bool {
		return slices.ContainsFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"`+field+`"`)) })
	}
	switch {
	case name == "combined" && bytes.Count(line, []byte(`"`)) < 6:
		return "common"
	case name == "combined" && slices.ContainsFunc(lines, addressesFirst):
		return "combined behind a list of addresses"
	case name == "combined" && forwarding(lines) && !answerers(lines):
		return "combined with X-Forwarded-For"
	case !strings.HasPrefix(name, "JSON"):
		return name
	case has("remote_ip") && has("request"):
		return "Caddy " + name
	case has("response_code") || has("downstream_remote_address"):
		return "Envoy " + name
	case has("remote_addr"):
		return "nginx " + name
	}
	return name
}

// addressesFirst reports whether a line of a combined log begins with a list of
// addresses.
func addressesFirst(line []byte) bool {
	_, others := lastOf(line[:max(firstColumn(line), 0)])
	return others != nil
}

// forwarding reports whether nearly all lines of a combined log end with a list
// of addresses.
func forwarding(lines [][]byte) bool {
	p := newCombined(&Options{Attributes: []string{"header.x-forwarded-for"}})
	r := Record{Values: make([][]byte, 1)}
	n := 0
	for _, line := range lines {
		if p.Parse(line, &r) == nil && r.Values[0] != nil {
			n++
		}
	}
	return nearlyAll(n, len(lines))
}

// longestExcerpt is how many bytes of a line are shown.
const longestExcerpt = 100

// Excerpt returns the beginning of a line for people: quoted, control
// characters escaped.
func Excerpt(line []byte) string {
	if len(line) > longestExcerpt {
		return fmt.Sprintf("%q…", line[:longestExcerpt])
	}
	return fmt.Sprintf("%q", line)
}
