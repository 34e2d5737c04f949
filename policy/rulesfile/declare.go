package rulesfile

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/wording"
)

// A use is where the rules first use an attribute.
type use struct {
	request.Attribute
	line, column int
	path         string
}

// undeclared reports whether neither HTTP requests nor the file's attributes and tokens have
// the attribute.
func (f *File) undeclared(u use) bool {
	return !u.OfHTTP() && !f.declared[u.Name] && !f.verifies(u.Attribute)
}

// verifies reports whether an attribute is a claim of tokens that the file has verified.
func (f *File) verifies(a request.Attribute) bool { return f.jwt != nil && a.Kind == request.Claim }

// Unknown returns what is wrong with giving a request an attribute of this name, with a hint;
// nil if nothing is. HTTP requests, the file's declarations and its rules make names known.
// An unknown name would change no decision, and is likely misspelt.
func (f *File) Unknown(name string) *Error {
	a, reason, hint := request.Parse(name)
	switch {
	case reason != "":
		return &Error{Reason: reason, Hint: hint}
	case a.OfHTTP(), f.verifies(a), f.declared[name], slices.ContainsFunc(f.uses, func(u use) bool { return u.Attribute == a }):
		return nil
	}
	return &Error{Reason: fmt.Sprintf("no rule looks at the attribute %q, and no HTTP request has one of that name", wording.Shorten(name)), Hint: f.hint(name)}
}

func (d *decoder) used(line, column int, t *trail, a request.Attribute) {
	if _, known := d.uses[a.Name]; known {
		return
	}
	if d.uses == nil {
		d.uses = make(map[string]use)
	}
	d.uses[a.Name] = use{a, line, column, t.String()}
}

// declared reads the names of attributes that callers give besides those of HTTP requests.
func (d *decoder) declared(n *Node, t *trail) map[string]bool {
	names := make(map[string]bool)
	d.each(n, t, func(n *Node, t *trail) {
		name, ok := d.text(n, t, "the name of an attribute that the caller gives, such as jwt.sub")
		if !ok {
			return
		}
		if a, ok := d.attribute(n.Line, n.Column, nil, name); ok {
			names[a.Name] = true
		}
	})
	return names
}

func (d *decoder) inOrder() []use {
	return slices.SortedFunc(maps.Values(d.uses), func(a, b use) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column), cmp.Compare(a.Name, b.Name))
	})
}

// Given returns the interfaces that can give an attribute to the rules of this file.
func (f *File) Given(a request.Attribute) request.Interfaces {
	return a.Given(f.declared[a.Name], f.jwt != nil)
}

// Seen returns the interfaces that can give every attribute that the rule looks at.
func (f *File) Seen(r *Rule) request.Interfaces {
	by := ^request.Interfaces(0)
	for a := range r.Attributes {
		by &= f.Given(a)
	}
	return by
}

// NotGiven returns the first attribute of a rule that none of the interfaces by can give; the
// zero Attribute if there is none.
func (f *File) NotGiven(r *Rule, by request.Interfaces) request.Attribute {
	for a := range r.Attributes {
		if f.Given(a)&by == 0 {
			return a
		}
	}
	return request.Attribute{}
}

// Refused returns what is wrong with the rules if requests come by these interfaces alone:
// rules look at an attribute that none of them can give, or go by a response that none of
// them sees. It is empty if nothing is wrong.
func (f *File) Refused(by request.Interfaces) Errors {
	var errs Errors
	for _, u := range f.uses {
		can := f.Given(u.Attribute)
		if can&by != 0 {
			continue
		}
		hint, meant := fmt.Sprintf("it can come by %v", can), ""
		if f.undeclared(u) { // it is looked for among all that are declared
			meant = f.meant(u.Name)
		}
		switch {
		case meant != "":
			hint = fmt.Sprintf("did you mean %q?", meant)
		case f.undeclared(u) && u.Kind == request.Claim && by&(request.Proxy|request.Auth) != 0:
			hint = "jwt: {jwks: URL} at the top has tokens verified"
		case f.undeclared(u) && by&(request.Program|request.Service) != 0:
			hint = "what Options.Attribute gives is declared: attributes: [" + wording.Shorten(u.Name) + "]"
		}
		errs = append(errs, &Error{u.line, u.column, u.path, fmt.Sprintf("no request here can have the attribute %q", wording.Shorten(u.Name)), hint})
	}
	for _, r := range f.rules {
		if r.Response != nil && by&request.Whole == 0 && (by&request.Ends == 0 || r.Response.OfBody()) {
			hint := "stint proxy, Caddy and the middleware of Go see it: put the rule into a file for them"
			if by&request.Check != 0 {
				hint += "; callers of /v1 need no count or cost here: they /v1/reserve each try, and /v1/settle it at 0 if it shall not count"
			}
			errs = append(errs, &Error{r.Line, r.Column, "rule " + r.Name, "it goes by the response, which is not seen here", hint})
		}
	}
	return errs
}

func (u use) reason() string {
	return fmt.Sprintf("the attribute %q is not declared, and no HTTP request has one of that name", wording.Shorten(u.Name))
}

// hint says which name may have been meant, or how to declare this one.
func (f *File) hint(name string) string {
	if inside := strings.Trim(name, "[] "); inside != name {
		return fmt.Sprintf("a list has no quotes: [%s]", wording.Shorten(inside))
	}
	declare := fmt.Sprintf("if your callers send it, write attributes: [%s]", wording.Shorten(name))
	if request.Of(name).Kind == request.Claim {
		declare = "stint proxy and /auth verify tokens with jwt: {jwks: URL} at the top; " + declare
	}
	if meant := f.meant(name); meant != "" {
		return fmt.Sprintf("did you mean %q? %s", meant, declare)
	}
	if name == "status" || name == "code" {
		return "count: {status: 401} counts the responses of a status; " + declare
	}
	if !strings.Contains(name, ".") {
		declare += "; a header is header." + wording.Shorten(name)
	}
	return declare
}

// meant returns a known name that is like this one, or "".
func (f *File) meant(name string) string {
	low := strings.ToLower(name)
	if meant := request.Alias(low); meant != "" {
		return meant
	}
	kind, rest, dotted := strings.Cut(low, ".")
	best := wording.Nearest(kind, request.Words(dotted), mostTypos(kind))
	if best != "" && dotted {
		best += "." + rest
	}
	if best == "" {
		best = wording.Nearest(name, maps.Keys(f.declared), mostTypos(name))
	}
	return best
}

// undeclared warns of attributes that only some callers can give.
func (w *warner) undeclared() {
	for _, u := range w.file.uses {
		if name, ok := strings.CutPrefix(u.Name, "header."); ok && request.Claimed(http.CanonicalHeaderKey(name)) {
			w.all = append(w.all, Warning{u.line, u.column, "",
				fmt.Sprintf("%s comes from trusted proxies alone: stint proxy takes it away from others, so that rules see none", u.Name),
				"for the client's address use ip, with trusted_proxies and client_ip_header"})
		} else if ok && strings.Contains(name, "_") {
			w.all = append(w.all, Warning{u.line, u.column, "",
				fmt.Sprintf("%s has an underscore: stint proxy takes such headers away, so that rules see none", u.Name),
				"use " + strings.ReplaceAll(u.Name, "_", "-") + ", or start the proxy with --allow-underscores"})
		}
		if w.file.undeclared(u) && !u.OfGRPC() {
			w.all = append(w.all, Warning{u.line, u.column, "", u.reason(), w.file.hint(u.Name)})
		}
	}
}
