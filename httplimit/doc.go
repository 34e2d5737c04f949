// Package httplimit holds HTTP requests to limits: incoming ones as middleware for net/http,
// outgoing ones as an [http.RoundTripper].
//
// One line of code holds each address to limits, in memory:
//
//	r.Use(httplimit.ByIP("site", "100/min"))
//
// Most programs guard a handler with a limiter and a key:
//
//	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", stint.PerMinute(100))
//	…
//	guard, err := httplimit.New(limiter, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{})
//	…
//	http.ListenAndServe(":8080", guard(handler))
//
// A request that may not pass is answered 429 with Retry-After and a body of the kind it
// accepts; every answer says how much is left, in the fields of one [Dialect]. [NewPolicy]
// takes the limits from the rules of a file instead. [Transport] holds the requests that a
// program makes itself to limits of its own and to what servers ask for.
//
// # Guarantees
//
// The caller always says what a request is counted under: there is no default key. [ClientIP]
// believes no header unless the peer is a trusted proxy. A denied request never reaches the
// handler, and an allowed one is charged before it does. The handler gets the
// [http.ResponseWriter] that came in, so that it can flush, hijack and stream. Only where the
// response settles the charge, or its end frees a place in flight, does the handler get a
// wrapper that can unwrap. Neither a client's text nor a limit's name can put a line break
// into a header.
//
// # Price
//
// By address and with fields, a request costs the limiter's decision and two
// allocations; without fields none. docs/HTTP.md has the figures.
//
// # Concurrency
//
// Middleware and Transport may be used from many goroutines at once. They start no
// goroutines.
package httplimit
