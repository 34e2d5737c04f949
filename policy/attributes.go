package policy

import (
	"errors"
	"fmt"
)

// Attributes are what is known of a request, by name:
//
//	method, host   as in the request
//	path           as on the request line: not decoded; what follows ? is cut off
//	ip             the client's address, without port
//	header.NAME    NAME in lower case
//	query.NAME, cookie.NAME
//
// and any other name that rules speak of, such as jwt.sub. A value is asked for
// only when a rule needs it, maybe more than once, and must stay the same
// meanwhile.
type Attributes interface {
	// Attribute returns the value, and false if the request has none.
	Attribute(name string) (value string, ok bool)
}

// A Map is Attributes in a map.
type Map map[string]string

// Attribute implements [Attributes].
func (m Map) Attribute(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}

// A RequestError says that the request itself is at fault: a path that servers
// read in different ways, or a cost that is no whole number. Nothing was
// charged; over HTTP the answer is 400.
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

// ErrRequest is what every [RequestError] is, for errors.Is.
var ErrRequest = errors.New("policy: the request is at fault")
