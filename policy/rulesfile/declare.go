package rulesfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/wording"
)

// A use is where the rules first use an attribute that not every HTTP
// request has.
type use struct {
	request.Attribute
	line, column int
	path         string
}

// Given returns what is wrong with a request that is given an attribute of this
// name, with a hint; nil if nothing is. Names are those of HTTP, those that the
// file declares, and those that rules look at. A name that is none of these
// changes nothing, and is likely misspelt.
func (f *File) Given(name string) *Error {
	a, reason, hint := request.Parse(name)
	switch {
	case reason != "":
		return &Error{Reason: reason, Hint: hint}
	case a.OfHTTP(), f.declared[name], slices.ContainsFunc(f.undeclared, func(u use) bool { return u.Attribute == a }):
		return nil
	}
	return &Error{Reason: fmt.Sprintf("no rule looks at the attribute %q, and no HTTP request has one of that name", wording.Shorten(name)), Hint: f.hint(name)}
}

// used notes an attribute that must be declared.
func (d *decoder) used(line, column int, t *trail, a request.Attribute) {
	if a.OfHTTP() {
		return
	}
	if _, known := d.uses[a.Name]; known {
		return
	}
	if d.uses == nil {
		d.uses = make(map[string]use)
	}
	d.uses[a.Name] = use{a, line, column, t.String()}
}

// declared reads the names that callers give beside those of HTTP.
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

// undeclared returns what was used and not declared, in the order of the file.
func (d *decoder) undeclared(declared map[string]bool) (all []use) {
	for name, u := range d.uses {
		if !declared[name] {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Undeclared returns what is wrong with the rules for who can say of a request
// what HTTP says, and no more, as a proxy: attributes that they speak of, that no
// HTTP request has, and that the file does not declare. Such an attribute is
// always missing: a condition on it never holds, and a key of it is one for all.
// It is empty if there are none.
func (f *File) Undeclared() Errors {
	var errs Errors
	for _, u := range f.undeclared {
		errs = append(errs, &Error{u.line, u.column, u.path, u.reason(), f.hint(u.Name)})
	}
	return errs
}

func (u use) reason() string {
	return fmt.Sprintf("the attribute %q is not declared, and no HTTP request has one of that name", wording.Shorten(u.Name))
}

// hint says what may have been meant.
func (f *File) hint(name string) string {
	declare := fmt.Sprintf("what the caller gives is declared: attributes: [%s]", wording.Shorten(name))
	if meant := f.meant(name); meant != "" {
		return fmt.Sprintf("did you mean %q? %s", meant, declare)
	}
	return declare
}

// meant returns a name like the one written, or "".
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
	for _, u := range w.file.undeclared {
		if !u.OfGRPC() {
			w.all = append(w.all, Warning{u.line, u.column, "", u.reason(), w.file.hint(u.Name)})
		}
	}
}
