// Package request has the kinds of attributes of requests, in one table, and the one reader that
// takes attributes from an HTTP request.
//
// To add a kind, write a row of the table. If HTTP requests have it, also write the function that
// reads it.
package request

import (
	"fmt"
	"iter"
	"strings"

	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/internal/wording"
)

// A Kind is the kind of an attribute, which its name determines. The zero Kind, Other, is for all
// other names: values that the caller gives.
type Kind uint8

// The kinds, in the order in which names are compared with them. Where one name is the beginning of
// another, the longer one is first.
const (
	Other Kind = iota
	Method
	Host
	Path
	IP
	HostHeader    // header.host, which is the Host: a request has only one
	Authorization // the case of its scheme does not matter
	Header
	Query
	Cookie
	Body // of JSON; a pointer follows the name
	Claim
	GRPCService
	GRPCMethod
	GRPCMessage
)

// A kind is a row of the table.
type kind struct {
	name  string     // the whole name, or if it ends in a dot, the beginning of names
	form  string     // the name in documents; "" if another row covers it, or HTTP does not have it
	given Interfaces // the interfaces that can give it
	// claims are the interfaces that can give it if the rules say how claims are verified.
	claims Interfaces
	chosen bool // a client can send any value
	secret bool // its values may be secrets: API keys, sessions, tokens
	// check says what is wrong with a name; rest is what follows its first dot.
	check func(name, rest string) (reason, hint string)
	// read reads it from an HTTP request; nil if HTTP does not have it.
	read func(q *HTTP, rest string) (value string, ok bool)
	also []string // names in other programs
}

var kinds = [...]kind{
	Other: {given: askers},
	Method: {name: "method", form: "method", given: everyone, chosen: true, read: (*HTTP).method,
		also: []string{"verb", "request_method"}},
	Host: {name: "host", form: "host", given: everyone, chosen: true, read: (*HTTP).host,
		also: []string{"authority", "hostname"}},
	Path: {name: "path", form: "path", given: everyone, chosen: true, read: (*HTTP).path,
		also: []string{"uri", "url", "request_uri"}},
	IP: {name: "ip", form: "ip", given: everyone, read: (*HTTP).ip,
		also: []string{"remote_addr", "remote_address", "client_ip", "clientip", "address", "addr", "remote_ip"}},
	HostHeader:    {name: "header.host", given: everyone, chosen: true, read: (*HTTP).host},
	Authorization: {name: "header.authorization", given: everyone, chosen: true, secret: true, read: (*HTTP).authorization},
	Header:        {name: "header.", form: "header.NAME", given: everyone, chosen: true, secret: true, check: headerName, read: (*HTTP).header},
	Query:         {name: "query.", form: "query.NAME", given: overHTTP | askers, chosen: true, secret: true, check: named, read: (*HTTP).query},
	Cookie:        {name: "cookie.", form: "cookie.NAME", given: overHTTP | askers, chosen: true, secret: true, check: named, read: (*HTTP).cookie},
	Body:          {name: "body.", form: "body./POINTER", given: overHTTP &^ Auth, chosen: true, check: pointer, read: (*HTTP).body},
	Claim:         {name: "jwt.", given: askers, claims: Proxy | Auth},
	GRPCService:   {name: "grpc.service", given: overGRPC | askers},
	GRPCMethod:    {name: "grpc.method", given: overGRPC | askers},
	GRPCMessage:   {name: "grpc.message", given: overGRPC | askers},
}

// An Attribute is the name of an attribute, as in rules, and its kind.
type Attribute struct {
	Name string
	Kind Kind
}

// Of returns the attribute with a name.
func Of(name string) Attribute {
	for k := Method; int(k) < len(kinds); k++ {
		row := &kinds[k]
		if name == row.name || row.begins() && strings.HasPrefix(name, row.name) {
			return Attribute{name, k}
		}
	}
	return Attribute{name, Other}
}

// begins reports whether the row's name is only the beginning of names.
func (k *kind) begins() bool { return k.name != "" && k.name[len(k.name)-1] == '.' }

// Free reports whether a client can send any value.
func (a Attribute) Free() bool { return kinds[a.Kind].chosen }

// Sent reports whether clients send values that may be secrets: API keys, sessions, tokens.
func (a Attribute) Sent() bool { return kinds[a.Kind].secret }

// OfHTTP reports whether every HTTP request either has the attribute or lacks it.
func (a Attribute) OfHTTP() bool { return kinds[a.Kind].read != nil }

// OfGRPC reports whether every gRPC call either has the attribute or lacks it.
func (a Attribute) OfGRPC() bool { return kinds[a.Kind].given&overGRPC == overGRPC }

// Line returns the name of the attribute's header, in lower case, if a request may have the header
// more than once. Host is not among them.
func (a Attribute) Line() (name string, ok bool) {
	if a.Kind != Header && a.Kind != Authorization {
		return "", false
	}
	return a.Name[len(kinds[Header].name):], true
}

// Rest returns the name without the beginning that all names of the kind have: the name of a
// cookie, the pointer into a body. It is "" for a kind with one name.
func (a Attribute) Rest() string { return a.Name[len(kinds[a.Kind].name):] }

// String returns the name of a kind that has only one, or the beginning of its names.
func (k Kind) String() string { return kinds[k].name }

// Name returns the name of an attribute in rules: the name of a header is in lower case.
func Name(name string) string {
	if prefix := kinds[Header].name; len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
		return strings.ToLower(name)
	}
	return name
}

// maxName is the most bytes of a name.
const maxName = 256

// Parse parses the name of an attribute as rules write it. If it is invalid, reason and hint say
// why, and what would be right.
func Parse(name string) (a Attribute, reason, hint string) {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == 0xfffd }) {
		return a, fmt.Sprintf("%q is no name of an attribute", wording.Shorten(name)),
			"known are " + strings.Join(forms(), ", ") + "; any other must be given by the caller"
	}
	word, rest, dotted := strings.Cut(name, ".")
	low, row := strings.ToLower(word), rowOf(word)
	switch singular, plural := strings.CutSuffix(word, "s"); {
	case row != nil && row.begins():
		if reason, hint = row.check(name, rest); reason != "" {
			return a, reason, hint
		}
		if row == &kinds[Header] {
			name = strings.ToLower(name)
		}
	case row != nil && dotted:
		return a, fmt.Sprintf("unknown attribute %q", name), "did you mean " + word + "?"
	case row != nil:
	case plural && begins(singular):
		return a, fmt.Sprintf("unknown attribute %q", name), "did you mean " + singular + "." + rest + "?"
	case rowOf(low) != nil:
		return a, fmt.Sprintf("unknown attribute %q", name), "did you mean " + low + name[len(word):] + "?"
	}
	return Of(name), "", ""
}

// rowOf returns the row of a kind that HTTP requests have, by the first word of its names; nil if
// there is none.
func rowOf(word string) *kind {
	for i := range kinds {
		if row := &kinds[i]; row.form != "" && strings.TrimSuffix(row.name, ".") == word {
			return row
		}
	}
	return nil
}

// begins reports whether the word is followed by a dot and a name.
func begins(word string) bool {
	row := rowOf(word)
	return row != nil && row.begins()
}

// Taken reports whether rules read the first word of a name as a kind that HTTP requests have, or
// refuse it as misspelt.
func Taken(name string) bool {
	word, _, _ := strings.Cut(strings.ToLower(name), ".")
	return rowOf(word) != nil || begins(strings.TrimSuffix(word, "s"))
}

func forms() (all []string) {
	for i := range kinds {
		if kinds[i].form != "" {
			all = append(all, kinds[i].form)
		}
	}
	return all
}

// Words yields the first words of the kinds that HTTP requests have: those that a dot and a name
// follow, or those that are a whole name.
func Words(dotted bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range kinds {
			if row := &kinds[i]; row.form != "" && row.begins() == dotted && !yield(strings.TrimSuffix(row.name, ".")) {
				return
			}
		}
	}
}

// Alias returns the name in rules for a name in another program; "" if it is not known.
func Alias(theirs string) string {
	for i := range kinds {
		for _, name := range kinds[i].also {
			if name == theirs {
				return kinds[i].name
			}
		}
	}
	return ""
}

// named checks that a name follows the dot.
func named(name, rest string) (reason, hint string) {
	if word, _, _ := strings.Cut(name, "."); rest == "" {
		return fmt.Sprintf("%q lacks the name of the %s", name, word), "such as " + word + ".NAME"
	}
	return "", ""
}

func headerName(name, rest string) (reason, hint string) {
	if strings.ContainsAny(rest, "()<>@,;:\\\"/[]?={}") {
		return fmt.Sprintf("%q is no name of a header", rest), ""
	}
	return named(name, rest)
}

func pointer(name, rest string) (reason, hint string) {
	if _, err := usage.ParsePointer(rest); err != nil {
		return fmt.Sprintf("%q: %s", wording.Shorten(name), err), "such as body./model: what follows the dot is a JSON pointer"
	}
	return "", ""
}
