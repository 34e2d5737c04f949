package rulesfile

import (
	"fmt"
	"math"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/internal/wording"
)

// A Response is what a rule takes from the response to a request, which was charged the
// rule's cost before it: whether it counts, and what it truly cost.
type Response struct {
	// Count is the statuses that count; the request is given back what it was charged
	// if the response has another. Nil is all.
	Count *Statuses
	// Header is the field that says the cost, as package net/http keeps it; Bytes says
	// that it is the length of the body, Usage that it is numbers in it. If there is
	// none of them, a response that counts costs what was charged.
	Header string
	Bytes  bool
	Usage  *usage.Spec
	// Missing is the cost where the response says none; -1 is what was charged.
	Missing int64
	// Cut ends a response whose body has cost more than there is room for.
	Cut bool
}

// Reads reports whether the body of the response must be read.
func (r *Response) Reads() bool { return r.Usage != nil }

// Truth says where the cost comes from, "" if it is what was charged.
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

// Statuses is a set of statuses of HTTP.
type Statuses struct {
	has  [10]uint64
	text []string
}

// Has reports whether a status is one of them.
func (s *Statuses) Has(status int) bool {
	return status >= 0 && status < 64*len(s.has) && s.has[status/64]&(1<<(status%64)) != 0
}

// String lists them as they were written.
func (s *Statuses) String() string { return strings.Join(s.text, ", ") }

func (s *Statuses) add(text string, from, past int) {
	s.text = append(s.text, text)
	for status := from; status < past; status++ {
		s.has[status/64] |= 1 << (status % 64)
	}
}

// response returns what the rule takes from the response, to add to it.
func (r *Rule) response() *Response {
	if r.Response == nil {
		r.Response = &Response{Missing: -1}
	}
	return r.Response
}

// count reads which responses count.
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

// status reads one, or a class of them.
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

// charge reads what a request costs, or which of them count.
func (d *decoder) charge(r *Rule, f Field, t *trail) {
	if f.Name == "count" {
		d.count(r, f.Value, t)
		return
	}
	r.Cost = d.ruleCost(r, f.Value, t)
}

// ruleCost reads what a request costs, or what it is charged until the response says that.
func (d *decoder) ruleCost(r *Rule, n *Node, t *trail) Cost {
	if !slices.ContainsFunc(n.Fields, func(f Field) bool { return slices.Contains(costFields[ofRequest:], f.Name) }) {
		return d.cost(n, t)
	}
	cost := Cost{Fixed: 1}
	for _, f := range d.fields(n, t, "", costFields...) {
		switch at := t.in(f.Name); f.Name {
		case "response":
			d.truth(r.response(), f.Value, at)
		case "usage":
			name := d.word(f.Value, at, usage.Names...)
			r.response().Usage, _ = usage.Named(name)
		case "missing":
			r.response().Missing = d.number(f.Value, at, 0, math.MaxInt64)
		case "cut":
			r.response().Cut = d.boolean(f.Value, at)
		case "reserve":
			cost = d.reserve(f.Value, at)
		default:
			d.failAt(f.Line, f.Column, at, `what is charged before the response is "reserve", a number or such a map`,
				"%s beside a cost that the response says", f.Name)
		}
	}
	switch {
	case has(n.Fields, "response") && has(n.Fields, "usage"):
		d.fail(n, t, "drop one of them", "both response and usage")
	case !has(n.Fields, "response") && !has(n.Fields, "usage"):
		d.fail(n, t, "say what of the response is the cost: response, or usage", "reserve and missing are for a cost that the response says")
	case r.response().Cut && r.response().Header != "":
		d.fail(n, t, "only a body can be cut: its bytes, JSON pointers into it, or usage", "cut beside a cost that a header says")
	case !has(n.Fields, "reserve"):
		d.fail(n, t, "what the request is charged until the response says its cost, such as reserve: 1000", "a cost that the response says, without reserve")
	}
	return cost
}

// reserve reads what is charged before the response. A request that is charged nothing
// passes whatever the limit says.
func (d *decoder) reserve(n *Node, t *trail) Cost {
	c := d.cost(n, t)
	if n.Kind == MapKind && (c.Min < 1 || c.Default < 1) {
		d.fail(n, t, "a request that reserves nothing passes, whatever others have used", "a reserve that may be 0: at least 1")
	}
	return c
}

// truth reads where the cost comes from.
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

// InFlight returns the names of the rules that have a limit in flight, without those in
// shadow and those that leave out whatever has the attribute but.
func (f *File) InFlight(but string) (names []string) {
	for _, r := range f.rules {
		if !r.leavesOut(but) && !r.Shadow && slices.ContainsFunc(r.plans(), (*Plan).inFlight) {
			names = append(names, r.Name)
		}
	}
	return names
}

// leavesOut reports whether the rule matches nothing that has an attribute: an unless asks
// for it alone, or each match for its absence.
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

// Attributes yields what the rule looks at, some more than once.
func (r *Rule) Attributes(yield func(request.Attribute) bool) {
	all := slices.Clone(r.Key)
	if r.Cost.By.Name != "" {
		all = append(all, r.Cost.By)
	}
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
