package request

import "strings"

// Interfaces is a set of interfaces by which requests come to be decided.
type Interfaces uint16

// The interfaces.
const (
	Proxy       Interfaces = 1 << iota // stint proxy
	Auth                               // /auth, with which a proxy asks
	Check                              // /v1
	RLS                                // Envoy's protocol
	RESP                               // commands of Redis
	Middleware                         // package httplimit
	Program                            // package httplimit with Options.Attribute, which gives declared attributes
	Interceptor                        // package grpclimit
	Service                            // package grpclimit with Options.Attribute
)

const (
	// Serve is the interfaces of stint serve.
	Serve = Auth | Check | RLS | RESP
	// Whole is the interfaces that see a response and the body of a request.
	Whole = Proxy | Middleware | Program
	// Ends is the interfaces that see the status and the fields of a response.
	Ends = Whole | overGRPC

	overHTTP = Whole | Auth
	overGRPC = Interceptor | Service
	askers   = Check | RLS | RESP // callers name the attributes themselves
	everyone = overHTTP | overGRPC | askers
)

// Given returns the interfaces that can give an attribute. declared says that the rules declare it,
// and claims that they say how claims are verified.
func (a Attribute) Given(declared, claims bool) Interfaces {
	row := &kinds[a.Kind]
	by := row.given
	if declared {
		by |= Program | Service
	}
	if claims {
		by |= row.claims
	}
	return by
}

var interfaceNames = [...]string{
	"stint proxy", "/auth", "/v1", "Envoy's protocol", "RESP",
	"package httplimit", "package httplimit with Options.Attribute",
	"package grpclimit", "package grpclimit with Options.Attribute",
}

// String lists the interfaces, for people.
func (i Interfaces) String() string {
	var names []string
	for k, name := range interfaceNames {
		one := Interfaces(1) << k
		if i&one != 0 && i&(one>>1)&(Middleware|Interceptor) == 0 { // these packages give it even without Options.Attribute
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
