package request

// Interfaces is a set of those by which requests come to be decided about.
type Interfaces uint16

// The interfaces.
const (
	Proxy       Interfaces = 1 << iota // stint proxy
	Auth                               // /auth, by which a proxy asks
	Check                              // /v1
	RLS                                // Envoy's protocol
	RESP                               // commands of Redis
	Middleware                         // package httplimit
	Program                            // the same with a function that gives what rules declare
	Interceptor                        // package grpclimit
	Service                            // the same with such a function
)

const (
	overHTTP = Proxy | Auth | Middleware | Program
	overGRPC = Interceptor | Service
	askers   = Check | RLS | RESP // who ask in words of their own
	everyone = overHTTP | overGRPC | askers
)
