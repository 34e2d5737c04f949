package match

import (
	"net/netip"
	"strings"
)

// A Field is how an attribute is read: some are brought to one form first.
type Field uint8

// The fields. Plain is an attribute whose value counts as it is.
const (
	Plain Field = iota
	Method
	Host
	Path
	IP
)

// An Attribute is the name of one, and how it is read.
type Attribute struct {
	Name  string
	Field Field
}

// AttributeOf returns the attribute of a name.
func AttributeOf(name string) Attribute {
	switch name {
	case "method":
		return Attribute{"method", Method}
	case "host":
		return Attribute{"host", Host}
	case "path":
		return Attribute{"path", Path}
	case "ip":
		return Attribute{"ip", IP}
	}
	return Attribute{name, Plain}
}

// Free reports whether a client chooses the attribute as it likes.
func (a Attribute) Free() bool {
	kind, _, _ := strings.Cut(a.Name, ".")
	switch kind {
	case "header", "query", "cookie", "host", "path", "method":
		return true
	}
	return false
}

// Attributes are what is known of a request; policy.Attributes has the names.
type Attributes interface {
	Attribute(name string) (value string, ok bool)
}

// A Request is attributes on their way through the rules; what must be brought
// to one form is, once. Make it ready with Clean. It belongs to one goroutine.
type Request struct {
	Attrs Attributes
	path  string     // clean
	host  string     // clean
	ip    netip.Addr // unmapped, without a zone
	ipRaw string

	ipKnown          bool
	hasPath, hasHost bool
}

// Clean brings the path and the host to one form, each if rules look at it. For
// a request that servers read in different ways it returns the name of the
// attribute at fault, and the reason.
func (q *Request) Clean(path, host bool) (attribute, reason string) {
	if path {
		if q.path, q.hasPath = q.Attrs.Attribute("path"); q.hasPath {
			if q.path, reason = CleanPath(q.path); reason != "" {
				return "path", reason
			}
		}
	}
	if host {
		if q.host, q.hasHost = q.Attrs.Attribute("host"); q.hasHost {
			if q.host, reason = CleanHost(q.host); reason != "" {
				return "host", reason
			}
		}
	}
	return "", ""
}

// Path returns the clean path; it is empty if no rule looks at it.
func (q *Request) Path() string { return q.path }

// Value returns an attribute in its one form, and whether the request has it.
// An address that cannot be read is none.
func (q *Request) Value(a Attribute) (string, bool) {
	switch a.Field {
	case Plain:
		return q.Attrs.Attribute(a.Name)
	case Path:
		return q.path, q.hasPath
	case Host:
		return q.host, q.hasHost
	case Method:
		v, ok := q.Attrs.Attribute(a.Name)
		return strings.ToUpper(v), ok
	}
	addr, ok := q.Addr()
	if ok && addr.Is4() && len(q.ipRaw) <= len("255.255.255.255") {
		return q.ipRaw, true // there is but one way to write it
	}
	if !ok {
		return "", false
	}
	return addr.String(), true
}

// Addr returns the client's address.
func (q *Request) Addr() (netip.Addr, bool) {
	if !q.ipKnown {
		q.ipKnown = true
		q.ipRaw, _ = q.Attrs.Attribute("ip")
		if addr, err := netip.ParseAddr(q.ipRaw); err == nil {
			if q.ip = addr.WithZone("").Unmap(); q.ip != addr {
				q.ipRaw = q.ip.String()
			}
		}
	}
	return q.ip, q.ip.IsValid()
}
