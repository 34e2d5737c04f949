package policy

import (
	"errors"
	"fmt"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
)

// Attributes are what is known of a request, by name:
//
//	method, host   as in the request
//	path           as on the request line: not decoded; what follows ? is cut off
//	ip             the client's address; a port behind it does not count
//	header.NAME    NAME in lower case
//	query.NAME, cookie.NAME
//	body.POINTER   a value in a body of JSON, such as body./model
//
// and any other name that rules use, such as jwt.sub. Attribute is called only when a rule
// needs the value, maybe more than once; a value must not change between the calls.
//
// Attributes may have further methods. Two save reading the request again: Addr()
// (netip.Addr, string, bool) returns the client's address, unmapped and without a zone, and
// the text of ip; PlainPath() (string, bool) returns the path, and whether it is what
// [CleanPath] makes of it. Fault(*Rules) error says, by a [RequestError], why an attribute
// that the rules have asked for and enforce cannot be read. Unknown() bool says that a claim
// that rules have asked for cannot be known at the moment: a rule that needs it goes by its
// on_store_failure. Attributes of this repository's packages also have a method Interface: if
// a rule may hold the request, but looks at something that its interface cannot give, the
// request is refused with a [NotGivenError].
type Attributes interface {
	// Attribute returns the value, and false if the request has none.
	Attribute(name string) (value string, ok bool)
}

// AttributeName returns the name that rules have for an attribute: names of headers are in
// lower case.
func AttributeName(name string) string {
	return request.Name(name)
}

// A Map is Attributes in a map.
type Map map[string]string

// Attribute implements [Attributes].
func (m Map) Attribute(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}

// A RequestError says that the request itself is at fault: it has a path that servers read in
// different ways, say, or a cost that is no whole number. Nothing was charged; over HTTP the
// answer is 400.
type RequestError struct {
	// Attribute is the name of the attribute at fault.
	Attribute string
	// Reason says what is wrong, without the value.
	Reason string
}

// Error names the attribute and the reason, never the value.
func (e *RequestError) Error() string {
	return fmt.Sprintf("policy: %s of the request: %s", e.Attribute, e.Reason)
}

// Is reports whether target is [ErrRequest].
func (e *RequestError) Is(target error) bool { return target == ErrRequest }

// ErrRequest matches every [RequestError] and [CostsError], by errors.Is.
var ErrRequest = errors.New("policy: the request is at fault")

// A NotGivenError says that a rule looks at an attribute that the interface by which the
// request came cannot give, while the rest of the rule matches: with the attribute, the rule
// might hold the request or not. Nothing was charged; over HTTP the answer is 500. The author
// of the rules can mend it: by conditions that leave out requests of this interface.
type NotGivenError struct {
	// Rule is the name of the rule, Attribute that of the attribute.
	Rule, Attribute string
	by              request.Interfaces
}

// Error names the rule, the attribute and the interface.
func (e *NotGivenError) Error() string {
	return fmt.Sprintf("policy: rule %q looks at %s, which %v cannot give", e.Rule, e.Attribute, e.by)
}

// CleanPath returns the path that rules are matched against: decoded once, without empty and
// dot segments and without a slash at the end; what follows ? is cut off. The error is a
// [RequestError] for a path that servers read in different ways: one with an encoded or
// double-encoded separator, a backslash, a semicolon, a #, control characters, dot segments
// that appear by decoding, or bytes that are not UTF-8; one that does not begin with a slash; and
// one of more than 8,192 bytes. docs/RULES.md has the table.
func CleanPath(raw string) (string, error) {
	clean, reason := match.CleanPath(raw)
	if reason != "" {
		return "", &RequestError{"path", reason}
	}
	return clean, nil
}

// CleanHost returns the host that rules are matched against: in lower case, without the port,
// brackets and the dot at the end. The error is a [RequestError] for a text that is neither a
// name nor an address, such as a name with two ports or an empty label: servers read these in
// different ways. An empty host stays empty and is no error.
func CleanHost(raw string) (string, error) {
	clean, reason := match.CleanHost(raw)
	if reason != "" {
		return "", &RequestError{"host", reason}
	}
	return clean, nil
}
