package ruletest

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/rules"
)

// What a test file may hold. The bound on requests is minutes of work.
const (
	maxErrors   = 100
	maxRequests = 10_000_000 // of one test, each time counted
)

// The fields that test files have; schema.json has the same.
var (
	documentFields = []string{"rules", "start", "tests"}
	testFields     = []string{"name", "start", "requests"}
	requestFields  = []string{"t", "times", "every", "lasts", "attributes", "cost", "sent", "response", "expect"}
	responseFields = []string{"status", "headers", "body"}
	expectFields   = []string{"allowed", "denied_by", "retry_after", "delay", "remaining", "matched", "shadow_denied_by", "refused"}
)

// Read reads a test file and the rules file that it names, whose path is
// relative to the test file. The error is a [rules.Error] that says which of
// the two is wrong.
func Read(path string) (*File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &rules.Error{Name: path, Err: errors.New("not a regular file: name a test file, such as stint_test.yaml")}
	}
	f, err := os.Open(path)
	if err != nil {
		if p, ok := errors.AsType[*os.PathError](err); ok {
			err = p.Err
		}
		return nil, &rules.Error{Name: path, Err: err}
	}
	defer f.Close() // it was only read
	data, err := rules.ReadAll(f)
	if err != nil {
		return nil, &rules.Error{Name: path, Err: err}
	}
	return Decode(path, data)
}

// Decode is Read of a file whose content is at hand.
func Decode(path string, data []byte) (*File, error) {
	root, err := rules.ReadTree(path, data)
	if err != nil {
		return nil, &rules.Error{Name: path, Err: err}
	}
	d := &decoder{file: &File{Name: path}}
	if err := d.document(root); err != nil {
		return nil, err // of the rules file
	}
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *rulesfile.Error) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, &rules.Error{Name: path, Err: d.errs[:min(len(d.errs), maxErrors)]}
	}
	return d.file, nil
}

// A decoder turns nodes into tests and collects what is wrong.
type decoder struct {
	file *File
	errs rulesfile.Errors
	path string // in the tree, of what is being read
}

func (d *decoder) fail(n *rulesfile.Node, hint, format string, args ...any) {
	d.failAt(n.Line, n.Column, hint, format, args...)
}

func (d *decoder) failAt(line, column int, hint, format string, args ...any) {
	d.errs = append(d.errs, &rulesfile.Error{Line: line, Column: column, Path: d.path, Reason: wording.Sprintf(format, args...), Hint: hint})
}

// in reads a part of the tree.
func (d *decoder) in(part string, read func()) {
	was := d.path
	if d.path += part; was == "" {
		d.path = strings.TrimPrefix(part, ".")
	}
	read()
	d.path = was
}

// want reports whether a node is of a kind, and says so if it is not.
func (d *decoder) want(n *rulesfile.Node, kind rulesfile.Kind, hint string) bool {
	if n.Kind != kind {
		d.fail(n, hint, "want %v, not %v", kind, n.Kind)
	}
	return n.Kind == kind
}

// fields returns the fields of a map by name, those that are known and come
// once.
func (d *decoder) fields(n *rulesfile.Node, known []string, hint string) map[string]*rulesfile.Node {
	if !d.want(n, rulesfile.MapKind, hint) {
		return nil
	}
	all, lines := make(map[string]*rulesfile.Node), make(map[string]int)
	for _, f := range n.Fields {
		switch line, twice := lines[f.Name]; {
		case twice:
			d.failAt(f.Line, f.Column, "", "field %q twice: it is in line %d already", f.Name, line)
		case !slices.Contains(known, f.Name):
			d.failAt(f.Line, f.Column, "known are "+strings.Join(known, ", "), "unknown field %q", f.Name)
		default:
			all[f.Name] = f.Value
		}
		lines[f.Name] = f.Line
	}
	return all
}

// document reads the whole file. The error is that of the rules file.
func (d *decoder) document(root *rulesfile.Node) (err error) {
	fields := d.fields(root, documentFields, "want rules: FILE and tests: with a list")
	if fields == nil {
		return nil
	}
	start := epoch
	if n := fields["start"]; n != nil {
		d.in(".start", func() { start = d.instant(n) })
	}
	switch n := fields["rules"]; {
	case n == nil:
		d.fail(root, "such as rules: stint.yaml, relative to this file", "no rules: want the rules file")
	default:
		d.in(".rules", func() { err = d.rules(n) })
	}
	if err != nil || d.file.Rules == nil {
		return err // names of rules and attributes cannot be checked
	}
	n := fields["tests"]
	if n == nil {
		d.fail(root, "want a list of tests, each with a name and requests", "no tests")
		return nil
	}
	d.in(".tests", func() {
		if !d.want(n, rulesfile.List, "a list of tests, each with a name and requests") {
			return
		}
		if len(n.Items) == 0 {
			d.fail(n, "want a list of tests, each with a name and requests", "no tests")
		}
		names := make(map[string]int)
		for i, item := range n.Items {
			d.in("["+strconv.Itoa(i)+"]", func() { d.test(item, start, names) })
		}
	})
	return nil
}

// rules reads the rules file. What is wrong in it is the error.
func (d *decoder) rules(n *rulesfile.Node) error {
	if !d.want(n, rulesfile.String, "the path of one rules file, such as stint.yaml") {
		return nil
	}
	if n.Value == "" {
		d.fail(n, "such as stint.yaml", "the path of the rules file is empty")
		return nil
	}
	path := n.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file.Name), path)
	}
	f, err := rules.Read(path)
	if err == nil {
		d.file.Rules = f
		if _, err = d.file.open(0); err != nil {
			err = &rules.Error{Name: path, Err: err}
		}
		return err
	}
	if _, faults := errors.AsType[rulesfile.Errors](err); faults {
		return err
	}
	if whole, ok := errors.AsType[*rules.Error](err); ok {
		err = whole.Err
	}
	d.fail(n, "the path is relative to the test file", "%s: %v", path, err)
	return nil
}

func (d *decoder) test(n *rulesfile.Node, start epochTime, names map[string]int) {
	fields := d.fields(n, testFields, "a test has a name and requests")
	if fields == nil {
		return
	}
	t := Test{Line: n.Line}
	if name := fields["name"]; name == nil {
		d.fail(n, "say in a few words what is tested", "no name")
	} else {
		d.in(".name", func() { t.Name = d.name(name, names) })
	}
	if n := fields["start"]; n != nil {
		d.in(".start", func() { start = d.instant(n) })
	}
	t.Start = start.Time
	requests := fields["requests"]
	if requests == nil {
		d.fail(n, "want a list of requests, each with t and attributes", "no requests")
		return
	}
	d.in(".requests", func() { d.requests(requests, &t) })
	d.file.Tests = append(d.file.Tests, t)
}

// name reads the name of a test, which there is once.
func (d *decoder) name(n *rulesfile.Node, names map[string]int) string {
	text := d.text(n, "a few words")
	switch line, twice := names[text]; {
	case strings.TrimSpace(text) == "":
		d.fail(n, "say in a few words what is tested", "the name is empty")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }):
		d.fail(n, "one line without control characters", "the name is more than a line")
	case twice:
		d.fail(n, "each test needs a name of its own", "name %q twice: it is in line %d already", text, line)
	}
	names[text] = n.Line
	return text
}

func (d *decoder) requests(n *rulesfile.Node, t *Test) {
	if !d.want(n, rulesfile.List, "a list of requests, each with t and attributes") {
		return
	}
	var after *Request
	var total int64
	expects := false
	for i, item := range n.Items {
		d.in("["+strconv.Itoa(i)+"]", func() {
			faults := len(d.errs)
			r := d.request(item, t)
			if len(d.errs) > faults {
				return
			}
			end := r.At
			if after != nil {
				end = after.last()
			}
			if r.At < end {
				d.fail(item, fmt.Sprintf("requests stand in the order of their times; the one above comes at %v", end), "t: %v is before the request above", r.At)
				return
			}
			if total += r.Times; total > maxRequests {
				d.fail(item, "", "more than %d requests in one test", maxRequests)
				return
			}
			expects = expects || r.Expect != nil
			t.Requests = append(t.Requests, r)
			after = &t.Requests[len(t.Requests)-1]
		})
	}
	if len(d.errs) == 0 && !expects {
		d.fail(n, "say with expect: what must become of one, such as expect: {allowed: false}", "no request expects anything")
	}
}

func (d *decoder) request(n *rulesfile.Node, t *Test) Request {
	r := Request{Line: n.Line, Column: n.Column, Times: 1, Cost: 1}
	fields := d.fields(n, requestFields, "a request has t and attributes")
	if fields == nil {
		return r
	}
	for _, part := range []struct {
		name    string
		missing string // what is said if it is; empty if it may be
		read    func(n *rulesfile.Node)
	}{
		{"t", "such as t: 0s, the time since the start", func(n *rulesfile.Node) { r.At = d.at(n, t.Start) }},
		{"times", "", func(n *rulesfile.Node) { r.Times = d.integer(n, 1, maxRequests) }},
		{"every", "", func(n *rulesfile.Node) { r.Every = d.duration(n) }},
		{"lasts", "", func(n *rulesfile.Node) { r.Lasts = d.duration(n) }},
		{"attributes", "such as attributes: {method: POST, path: /login, ip: 192.0.2.7}", func(n *rulesfile.Node) {
			r.Attributes = d.attributes(n)
			r.fault = d.derive(n, r.Attributes)
		}},
		{"cost", "", func(n *rulesfile.Node) { r.Cost = d.integer(n, 0, 1<<63-1) }},
		{"sent", "", func(n *rulesfile.Node) { r.Sent = d.integer(n, 0, 1<<63-1) }},
		{"response", "", func(n *rulesfile.Node) { r.Response = d.response(n) }},
		{"expect", "", func(n *rulesfile.Node) { r.Expect = d.expect(n) }},
	} {
		switch n2 := fields[part.name]; {
		case n2 != nil:
			d.in("."+part.name, func() { part.read(n2) })
		case part.missing != "":
			d.fail(n, part.missing, "no %s", part.name)
		}
	}
	if len(d.errs) == 0 && !r.fits(t.Start) {
		d.fail(n, "", "the last of the requests is beyond the year 2262, where the clock ends")
	}
	return r
}

// response reads what is answered.
func (d *decoder) response(n *rulesfile.Node) *Response {
	r := &Response{Status: http.StatusOK, Headers: make(map[string][]string)}
	fields := d.fields(n, responseFields, "such as {status: 401}")
	if n := fields["status"]; n != nil {
		d.in(".status", func() { r.Status = int(d.integer(n, 200, 599)) })
	}
	if n := fields["body"]; n != nil {
		d.in(".body", func() { r.Body = d.text(n, "the text of the body") })
	}
	if n := fields["headers"]; n != nil && d.want(n, rulesfile.MapKind, "such as {X-Cost: 7}") {
		for _, f := range n.Fields {
			d.in(".headers."+f.Name, func() { http.Header(r.Headers).Add(f.Name, d.text(f.Value, "text")) })
		}
	}
	return r
}

// attributes reads what the request is. A name that no request can have, and no
// rule looks at, is a slip of the pen: the request would match nothing.
func (d *decoder) attributes(n *rulesfile.Node) map[string]string {
	all := make(map[string]string)
	if !d.want(n, rulesfile.MapKind, "such as {method: POST, path: /login, ip: 192.0.2.7}") {
		return all
	}
	for _, f := range n.Fields {
		name := request.Name(f.Name)
		_, twice := all[name]
		unknown := d.file.Rules.Rules.File().Unknown(name)
		switch kind := f.Value.Kind; {
		case twice:
			d.failAt(f.Line, f.Column, "", "attribute %q twice", name)
		case unknown != nil:
			d.failAt(f.Line, f.Column, unknown.Hint, "%s", unknown.Reason)
		case kind != rulesfile.String && kind != rulesfile.Number && kind != rulesfile.Bool:
			d.fail(f.Value, "leave the attribute out for a request that does not have it", "%s: want text, not %v", name, kind)
		case name == "ip" && !isAddress(f.Value.Value):
			d.fail(f.Value, "such as 192.0.2.7 or 2001:db8::1, without a port; leave ip out for a request without one", "ip: %q is no address", f.Value.Value)
		default:
			all[name] = f.Value.Value
		}
	}
	return all
}

// derive adds the parameters and cookies that rules look at where they stand in the path and
// in header.cookie, as a request has them. It returns why the request is refused.
func (d *decoder) derive(n *rulesfile.Node, attributes map[string]string) error {
	var servers httplimit.Ambiguous
	fault := servers.Check(d.file.Rules.Rules, request.Described(attributes).Request())
	_, query, _ := strings.Cut(attributes["path"], "?")
	header := make(http.Header)
	if line, ok := attributes["header.cookie"]; ok {
		header.Set("Cookie", line)
	}
	read := request.HTTP{RawQuery: query, Header: header}
	from := map[request.Kind]string{request.Query: "path", request.Cookie: "header.cookie"}
	for _, name := range d.file.Rules.Rules.Attributes() {
		where, derived := from[request.Of(name).Kind]
		value, there := read.Attribute(name)
		if !derived || !there {
			continue
		}
		if _, twice := attributes[name]; twice {
			d.fail(n, "write it in one place", "%s is in %s, too", name, where)
		}
		attributes[name] = value
	}
	return fault
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
