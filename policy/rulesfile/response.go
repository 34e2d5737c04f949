package rulesfile

import (
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/internal/wording"
)

// A Response is what a rule takes from the response to a request: whether the request counts,
// and what it truly cost. Until then the request is charged the rule's Cost.
type Response struct {
	// Count is the statuses of responses that count; if the response has another, the request
	// is given back its charge. Nil counts all.
	Count *Statuses
	// Header names the field that says the cost, as package net/http spells it. With Bytes,
	// the length of the body is the cost; with Usage, numbers in the body are. Without any of
	// these, a response that counts costs what was charged.
	Header string
	Bytes  bool
	Usage  *usage.Spec
	// Missing is the cost of a response that says none; -1 takes what was charged or, if it
	// is more, what Estimate says.
	Missing int64
	// Estimate has a body of status 2xx without usage cost what [usage.Reader.Estimate] says.
	Estimate bool
	// AskUsage has a proxy ask the server for usage.
	AskUsage bool
	// Cut ends a response whose body has cost more than there is room for.
	Cut bool
}

// Reads reports whether the body of the response must be read.
func (r *Response) Reads() bool { return r.Usage != nil }

// OfBody reports whether the body says the cost.
func (r *Response) OfBody() bool { return r.Bytes || r.Usage != nil }

// Truth returns where the true cost comes from; "" if it is what was charged.
func (r *Response) Truth() string {
	switch {
	case r.Bytes:
		return "bytes of the body"
	case r.Header != "":
		return "header." + strings.ToLower(r.Header)
	case r.Usage != nil:
		return r.Usage.String()
	}
	return ""
}

// Statuses is a set of HTTP statuses.
type Statuses struct {
	has  [10]uint64
	text []string
}

// Has reports whether a status is in the set.
func (s *Statuses) Has(status int) bool {
	return status >= 0 && status < 64*len(s.has) && s.has[status/64]&(1<<(status%64)) != 0
}

// String lists the statuses as the file does.
func (s *Statuses) String() string { return strings.Join(s.text, ", ") }

func (s *Statuses) add(text string, from, past int) {
	s.text = append(s.text, text)
	for status := from; status < past; status++ {
		s.has[status/64] |= 1 << (status % 64)
	}
}

// response returns r.Response, which it makes if it is nil.
func (r *Rule) response() *Response {
	if r.Response == nil {
		r.Response = &Response{Missing: -1}
	}
	return r.Response
}

func (d *decoder) count(r *Rule, n *Node, t *trail) {
	const hint = `such as {"status": [401, 403]}, or {"status": "4xx"}`
	s, before := &Statuses{}, len(d.errs)
	for _, f := range d.fields(n, t, hint, countFields...) {
		d.each(f.Value, t.in(f.Name), func(n *Node, t *trail) { d.status(s, n, t) })
	}
	if s.text == nil && len(d.errs) == before {
		d.fail(n, t, hint, "a count without a status")
	}
	r.response().Count = s
}

func (d *decoder) status(s *Statuses, n *Node, t *trail) {
	const hint = "a status from 100 to 599, or a class such as 4xx"
	if n.Kind != Number && n.Kind != String {
		d.want(n, t, Number, hint)
		return
	}
	if !d.visit(n, t) {
		return
	}
	class, isClass := strings.CutSuffix(strings.ToLower(n.Value), "xx")
	switch v, err := strconv.Atoi(class); {
	case isClass && err == nil && len(class) == 1 && v >= 1 && v <= 5:
		s.add(n.Value, 100*v, 100*v+100)
	case !isClass && err == nil && len(class) == 3 && v >= 100 && v < 600:
		s.add(n.Value, v, v+1)
	default:
		d.fail(n, t, hint, "%q is no status", n.Value)
	}
}

func (d *decoder) truth(r *Response, n *Node, t *trail) {
	const hint = "bytes, header.NAME, or JSON pointers such as /usage/total_tokens"
	if n.Kind == List {
		var pointers []string
		d.each(n, t, func(n *Node, t *trail) {
			text, ok := d.text(n, t, hint)
			if !ok {
				return
			}
			if _, err := usage.ParsePointer(text); err != nil {
				d.fail(n, t, "several values that are added are all JSON pointers", "%q: %s", wording.Shorten(text), err)
				return
			}
			pointers = append(pointers, text)
		})
		if len(pointers) == len(n.Items) {
			d.pointers(r, n, t, pointers)
		}
		return
	}
	text, ok := d.text(n, t, hint)
	name, isHeader := strings.CutPrefix(text, "header.")
	switch {
	case !ok:
	case text == "bytes":
		r.Bytes = true
	case isHeader:
		if a, ok := d.attribute(n.Line, n.Column, t, text); ok {
			r.Header = textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(a.Name, "header."))
		}
	case strings.HasPrefix(text, "/"):
		d.pointers(r, n, t, []string{text})
	default:
		if _, known := usage.Named(text); known {
			d.fail(n, t, fmt.Sprintf("write usage: %s in its place", text), "%q is no part of a response", text)
			return
		}
		d.fail(n, t, hint, "%q is no part of a response", wording.Shorten(name))
	}
}

func (d *decoder) pointers(r *Response, n *Node, t *trail, pointers []string) {
	s, err := usage.Parse(pointers...)
	if err != nil {
		d.fail(n, t, "such as /usage/total_tokens", "%s", err)
	}
	r.Usage = s
}

// InFlight returns the names of the rules that have a limit in flight. It leaves out rules in
// shadow, and rules that match nothing which has the attribute but.
func (f *File) InFlight(but string) []string {
	return f.such(but, func(r *Rule) bool { return slices.ContainsFunc(r.plans(), (*Plan).inFlight) })
}

// ByResponse is InFlight for the rules that go by the response.
func (f *File) ByResponse(but string) []string {
	return f.such(but, func(r *Rule) bool { return r.Response != nil })
}

func (f *File) such(but string, is func(*Rule) bool) (names []string) {
	for _, r := range f.rules {
		if !r.leavesOut(but) && !r.Shadow && is(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// leavesOut reports whether the rule matches no request that has an attribute: an Unless asks
// for this attribute alone, or each Match for its absence.
func (r *Rule) leavesOut(name string) bool {
	has := func(c match.Condition) bool { return c.Name == name && !c.Absent }
	lacks := func(c match.Condition) bool { return c.Name == name && c.Absent }
	for _, conj := range r.Unless {
		if len(conj) == 1 && has(conj[0]) {
			return true
		}
	}
	for _, conj := range r.Match {
		if !slices.ContainsFunc(conj, lacks) {
			return false
		}
	}
	return len(r.Match) > 0
}

// Attributes yields the attributes that the rule looks at, some more than once.
func (r *Rule) Attributes(yield func(request.Attribute) bool) {
	all := append(slices.Clone(r.Key), r.Cost.attributes()...)
	conjunctions := append(r.Match[:len(r.Match):len(r.Match)], r.Unless...)
	for i := range r.Overrides {
		conjunctions = append(conjunctions, r.Overrides[i].When)
	}
	for _, conj := range conjunctions {
		for i := range conj {
			all = append(all, conj[i].Attribute)
		}
	}
	if r.Tiers != nil {
		all = append(all, r.Tiers.By)
	}
	for _, a := range all {
		if !yield(a) {
			return
		}
	}
}
