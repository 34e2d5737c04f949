// Package accesslog reads the access logs of web servers, proxies, load balancers and programs: the
// common and combined formats of Apache and nginx and their relatives, JSON lines and logfmt with
// fields of any name, tables with named columns (CSV, TSV, W3C), the text formats of some twenty
// servers, and any other text by a pattern in nginx's or Apache's own notation. Lines may have the
// prefixes of syslog and of containers. Files may be plain, gzip or zstd.
//
// Open a log with [Open], ask for its format with [File.Detect], and make a [Parser] that fills in
// a [Record] for each line:
//
//	f, err := accesslog.Open("access.log.gz")
//	…
//	format, err := f.Detect(accesslog.Options{Attributes: []string{"ip", "path"}})
//	…
//	parser := format.Parser()
//	for block, err := f.Next(nil); err == nil; block, err = f.Next(block) {
//		for len(block) > 0 {
//			var line []byte
//			line, block = accesslog.Line(block)
//			if err := parser.Parse(line, &record); err != nil { … }
//		}
//	}
//
// A parser looks only at the attributes that were asked for, and a line in the common or combined
// format costs no allocation. Nothing is guessed: a format is recognised when nearly all lines of a
// sample are in it, with an address where the format has one. Otherwise Detect returns an error,
// and Parse returns one for each line that it cannot read.
package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// A Record is one request, as a line describes it.
type Record struct {
	// At is the time of the request, in nanoseconds since the Unix epoch. Most logs give the moment
	// at which it came, some the moment at which the answer was sent.
	At int64
	// Values has the value of each of Options.Attributes, nil where the line has none. They are
	// valid until the next line is parsed or the line's block is used again.
	Values [][]byte

	dated bool // At has the time of the line's prefix
}

// A Parser reads lines of one format. It may be used from one goroutine.
type Parser interface {
	// Parse fills the record. Its Values must have the length of Options.Attributes. The error is
	// [ErrSkip] for a line that is no request, such as a heading; any other error says why the line
	// is bad.
	Parse(line []byte, r *Record) error
}

// Options name the attributes to read from each line, and its format.
type Options struct {
	// Attributes are the names of the attributes to read:
	//
	//	ip, method, path, host, user, status, bytes, header.NAME
	//
	// Any other name is a field of JSON, where dots lead into objects, or a column. The path comes
	// without its query.
	Attributes []string
	// Fields names the JSON field or column of an attribute whose field cannot be recognised by
	// name. The time has the name "time".
	Fields map[string]string
	// Format is the format of lines, in nginx's notation of log_format or in Apache's of LogFormat;
	// see [ParsePattern]. By default the format is recognised.
	Format string
	// Zone is the zone of times without a zone. The default value is UTC.
	Zone *time.Location
	// Latest is about the latest time in the log; it tells the year of times without one. The
	// default value is when the file was last written, or now where there is no file.
	Latest time.Time
}

// Reasons why a line is bad, and [ErrSkip] for a line that is no request. [ErrAside] is a kind of
// ErrSkip: the same program wrote the line about something other than an answered request.
var (
	ErrSkip    = errors.New("no request")
	ErrAside   = fmt.Errorf("%w, but what a server says of itself", ErrSkip)
	errShape   = errors.New("not in the format of the log")
	errTime    = errors.New("a time that cannot be read")
	errNoTime  = errors.New("no time")
	errColumns = errors.New("too few columns")
)

// Line cuts the first line off a block, without its end.
func Line(block []byte) (line, rest []byte) {
	i := bytes.IndexByte(block, '\n')
	if i < 0 {
		i, rest = len(block), nil
	} else {
		rest = block[i+1:]
	}
	if line = block[:i]; i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	if len(line) > 0 && line[0] == 0 { // a log that was truncated while open begins with NUL bytes
		line = bytes.TrimLeft(line, "\x00")
	}
	return line, rest
}

// isAddress reports whether a value is an IP address.
func isAddress(b []byte) bool {
	if len(b) == 0 || len(b) > 64 {
		return false
	}
	_, err := netip.ParseAddr(string(b))
	return err == nil
}

// slot returns the index of an attribute's value, or −1 if it is not wanted.
func (o *Options) slot(name string) int {
	for i, a := range o.Attributes {
		if a == name {
			return i
		}
	}
	return -1
}

// put sets a value if it is wanted and not empty.
func (r *Record) put(slot int, value []byte) {
	if slot >= 0 && len(value) > 0 && (len(value) > 1 || value[0] != '-') {
		r.Values[slot] = value
	}
}

// clear resets the record before the next line.
func (r *Record) clear() {
	for i := range r.Values {
		r.Values[i] = nil
	}
}
