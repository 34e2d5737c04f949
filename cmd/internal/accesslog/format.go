package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// A Format is how the lines of a log are written.
type Format struct {
	// Name says it in words, such as "combined".
	Name string

	parser func() Parser
}

// Parser returns a parser of its own for the caller.
func (f Format) Parser() Parser { return f.parser() }

// sampled is how many lines are looked at to recognise a format.
const sampled = 100

// known is what is read, for those who came with something else.
const known = "combined and common logs, JSON lines, AWS load balancer logs, CSV or TSV with named columns, each maybe behind a syslog prefix"

// Detect recognises the format of the lines in a sample of the beginning of a
// log: the one that reads most of them, if that is the half at least. An empty
// sample has the format "empty".
func Detect(sample []byte, o Options) (Format, error) {
	lines := sampleLines(sample)
	if len(lines) == 0 {
		return Format{"empty", func() Parser { return newCombined(&o) }}, nil
	}
	if bytes.IndexByte(sample, 0) >= 0 {
		return Format{}, errors.New("binary, not lines of text; gzip and zstd are read as they are")
	}
	best, most := Format{}, 0
	for _, f := range candidates(lines[0], &o) {
		if n := f.reads(lines, &o); n > most {
			best, most = f, n
		}
	}
	if most*2 < len(lines) {
		return Format{}, fmt.Errorf("most of the first %d lines are in no format that is known; the first is %s\nwhat is read: %s", len(lines), Excerpt(lines[0]), known)
	}
	best.Name = dialect(best.Name, lines)
	return best, nil
}

// sampleLines returns the first lines of a sample that hold anything.
func sampleLines(sample []byte) (lines [][]byte) {
	for len(sample) > 0 && len(lines) < sampled {
		var line []byte
		line, sample = Line(sample)
		if sample == nil && len(lines) > 0 {
			break // without its end: maybe cut off
		}
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// candidates are the formats that a log may have whose first line is this.
func candidates(first []byte, o *Options) []Format {
	plain := []Format{
		{"combined", func() Parser { return newCombined(o) }},
		{"JSON", func() Parser { return newObject(o) }},
		{"AWS load balancer", func() Parser { return newBalancer(o) }},
	}
	var all []Format
	for _, f := range plain { // first: behind a prefix, a common log looks like one whose client is the prefix
		inner := f.parser
		all = append(all, Format{f.Name + " behind syslog", func() Parser { return newSyslog(o, inner()) }})
	}
	all = append(all, plain...)
	if newTable(first, o) != nil {
		name := "CSV"
		if comma, _, _ := readHeading(first); comma == '\t' {
			name = "TSV"
		}
		heading := bytes.Clone(first)
		all = append(all, Format{name, func() Parser { return newTable(heading, o) }})
	}
	return all
}

// reads returns how many of the lines the format can read.
func (f Format) reads(lines [][]byte, o *Options) (n int) {
	p := f.parser()
	r := Record{Values: make([][]byte, len(o.Attributes))}
	for _, line := range lines {
		if err := p.Parse(line, &r); err == nil || errors.Is(err, ErrSkip) {
			n++
		}
	}
	return n
}

// dialect tells apart what one parser reads: whose JSON, common or combined.
func dialect(name string, lines [][]byte) string {
	line := lines[len(lines)/2]
	has := func(field string) bool { return bytes.Contains(line, []byte(`"`+field+`"`)) }
	switch {
	case strings.HasPrefix(name, "combined") && bytes.Count(line, []byte(`"`)) < 6:
		return strings.Replace(name, "combined", "common", 1)
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

// longestExcerpt is how much of a line is shown, in bytes.
const longestExcerpt = 100

// Excerpt returns the beginning of a line for people: quoted, control
// characters escaped.
func Excerpt(line []byte) string {
	if len(line) > longestExcerpt {
		return fmt.Sprintf("%q…", line[:longestExcerpt])
	}
	return fmt.Sprintf("%q", line)
}
