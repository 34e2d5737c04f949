// Package accesslog reads the access logs of web servers, proxies, load
// balancers and programs: the common and combined formats of Apache and nginx
// and those near them, JSON lines and logfmt with fields of any name, tables
// with named columns (CSV, TSV, W3C), the text formats of some twenty servers,
// and any other by a pattern in nginx's or Apache's own notation; behind the
// prefixes of syslog and of containers; plain, gzip or zstd.
//
// Open a log with [Open], ask for its format with [File.Detect], and make a
// [Parser] that fills in a [Record] for each line:
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
// A line costs no allocation in the common and combined formats, and only what
// was asked for is looked at. Nothing is guessed: a format is recognised when
// nearly all lines of a sample are in it and an address stands where it has one;
// else that is an error, and so is each line that cannot be read.
package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// A Record is what a line says of one request.
type Record struct {
	// At is when it was, in nanoseconds since the Unix epoch: in most logs
	// when the request came, in some when the answer was sent.
	At int64
	// Values has an entry for each of Options.Attributes, nil where the line
	// has none. They are valid until the next line is parsed or its block is
	// used again.
	Values [][]byte

	dated bool // At holds what a prefix of the line said
}

// A Parser reads lines of one format. It may be used from one goroutine.
type Parser interface {
	// Parse fills the record, whose Values must have the length of
	// Options.Attributes. The error is [ErrSkip] for a line that is no
	// request, such as a heading, and else says why the line is bad.
	Parse(line []byte, r *Record) error
}

// Options name the attributes to read from each line, and its format.
type Options struct {
	// Attributes are the names of the attributes to read:
	//
	//	ip, method, path, host, user, status, bytes, header.NAME
	//
	// and any other, which names a field of JSON, dots leading into objects,
	// or a column. The path has no query.
	Attributes []string
	// Fields says in which field of JSON or column an attribute stands, and
	// the time under the name "time", where that cannot be known by its name.
	Fields map[string]string
	// Format says how lines are written, in nginx's notation of log_format or
	// in Apache's of LogFormat; see [ParsePattern]. The default value is to
	// recognise the format.
	Format string
	// Zone is where times without a zone belong. The default value is UTC.
	Zone *time.Location
	// Latest is what times without a year are not much after. The default
	// value is when the file was last written, for input without a file now.
	Latest time.Time
}

// Why a line is bad; and [ErrSkip], of which [ErrAside] is a kind: a line of the
// same program that tells of something else than a request that was answered.
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
	if len(line) > 0 && line[0] == 0 { // left by a log that was cut in place
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

// slot returns where the value of an attribute goes, or −1.
func (o *Options) slot(name string) int {
	for i, a := range o.Attributes {
		if a == name {
			return i
		}
	}
	return -1
}

// put sets a value, if it is wanted and there.
func (r *Record) put(slot int, value []byte) {
	if slot >= 0 && len(value) > 0 && (len(value) > 1 || value[0] != '-') {
		r.Values[slot] = value
	}
}

// clear forgets the line before.
func (r *Record) clear() {
	for i := range r.Values {
		r.Values[i] = nil
	}
}
