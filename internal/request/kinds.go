// Package request has the attributes of requests: the one table of their kinds, and the
// one reader of what a request of HTTP says.
//
// To add a kind, write a row of the table; if requests of HTTP have it, with the function
// that reads it.
package request

import (
	"fmt"
	"iter"
	"strings"

	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/internal/wording"
)

// A Kind is what an attribute is, by its name. The zero Kind, Other, is any name that is
// none of the others: a value that the caller gives.
type Kind uint8

// The kinds, in the order in which a name is compared with them: what begins like another
// goes before it.
const (
	Other Kind = iota
	Method
	Host
	Path
	IP
	HostHeader    // of which there is one
	Authorization // whose schemes have no case
	Header
	Query
	Cookie
	Body // of JSON: a pointer follows
	Claim
	GRPCService
	GRPCMethod
	GRPCMessage
)

// A kind is a row of the table.
type kind struct {
	name  string     // the whole name, or with a dot at its end what the names begin with
	form  string     // as documents write it; "" for a name that another row covers, or that HTTP does not have
	given Interfaces // that can give it
	// claims are the interfaces that can give it if the rules say how claims are verified.
	claims Interfaces
	chosen bool // a client sends whatever value it likes
	secret bool // its values may be secrets: API keys, sessions, tokens
	// check says what is wrong with a name and what follows its first dot.
	check func(name, rest string) (reason, hint string)
	// read reads it from a request of HTTP; nil where that does not have it.
	read func(q *HTTP, rest string) (value string, ok bool)
	also []string // what other programs call it
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

// An Attribute is the name of one, as rules have it, and its kind.
type Attribute struct {
	Name string
	Kind Kind
}

// Of returns the attribute of a name.
func Of(name string) Attribute {
	for k := Method; int(k) < len(kinds); k++ {
		row := &kinds[k]
		if name == row.name || row.begins() && strings.HasPrefix(name, row.name) {
			return Attribute{name, k}
		}
	}
	return Attribute{name, Other}
}

// begins reports whether names of the kind only begin with the row's.
func (k *kind) begins() bool { return k.name != "" && k.name[len(k.name)-1] == '.' }

// Free reports whether a client chooses the value as it likes.
func (a Attribute) Free() bool { return kinds[a.Kind].chosen }

// Sent reports whether clients send values that may be secrets: API keys, sessions,
// tokens.
func (a Attribute) Sent() bool { return kinds[a.Kind].secret }

// OfHTTP reports whether a request of HTTP says whether it has the attribute.
func (a Attribute) OfHTTP() bool { return kinds[a.Kind].read != nil }

// OfGRPC reports whether each call of gRPC says so.
func (a Attribute) OfGRPC() bool { return kinds[a.Kind].given&overGRPC == overGRPC }

// Line returns the name of the header that the attribute is, in lower case: of one that a
// request may have more than once. The one Host is none.
func (a Attribute) Line() (name string, ok bool) {
	if a.Kind != Header && a.Kind != Authorization {
		return "", false
	}
	return a.Name[len(kinds[Header].name):], true
}

// Rest returns what follows the beginning that names of the kind have in common: the name
// of a cookie, the pointer into a body. It is "" for a kind of one name.
func (a Attribute) Rest() string { return a.Name[len(kinds[a.Kind].name):] }

// String returns the name of a kind that has but one, or what its names begin with.
func (k Kind) String() string { return kinds[k].name }

// Name returns the name that rules have for an attribute: of a header, it is in lower case.
func Name(name string) string {
	if prefix := kinds[Header].name; len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
		return strings.ToLower(name)
	}
	return name
}

// maxName is how many bytes a name may have.
const maxName = 256

// Parse reads the name of an attribute as rules write it. If it is none, the reason and a
// hint say why, and what would be right.
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

// rowOf returns the row of a kind that requests of HTTP have, by the word that its names
// are or begin with; nil if there is none.
func rowOf(word string) *kind {
	for i := range kinds {
		if row := &kinds[i]; row.form != "" && strings.TrimSuffix(row.name, ".") == word {
			return row
		}
	}
	return nil
}

// begins reports whether a name follows the word.
func begins(word string) bool {
	row := rowOf(word)
	return row != nil && row.begins()
}

// Taken reports whether rules take the first word of a name for a kind that requests of
// HTTP have, or refuse it as misspelt.
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

// Words yields the words of the kinds that requests of HTTP have: those that a name
// follows behind a dot, or those that are the whole name.
func Words(dotted bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range kinds {
			if row := &kinds[i]; row.form != "" && row.begins() == dotted && !yield(strings.TrimSuffix(row.name, ".")) {
				return
			}
		}
	}
}

// Alias returns what rules call what another program has under a name; "" if that is not
// known.
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

// named checks that there is a name behind the dot at all.
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
