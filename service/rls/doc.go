// Package rls is the service for Envoy and everything else that speaks its rate
// limit service, version 3: envoy.service.ratelimit.v3 over gRPC, and the same
// messages as JSON. docs/ENVOY.md says what each field of a request and of an
// answer means here.
//
// A [Service] decides. Each descriptor of a request becomes attributes, domain
// and its entries, which the rules look at as they do at those of other interfaces;
// all descriptors of a request are one decision. [Serve] answers with it on a
// listener.
//
// # Bounds
//
// A request has at most [MaxDescriptors] descriptors of at most [MaxEntries]
// entries, and [MaxMessage] bytes; a value that rules look at has [MaxValue]. What a
// client of Envoy can bring about is a denial, never an error: Envoy lets pass what it
// gets an error for. Limits that requests bring along are checked before they are used,
// and a bounded number of different ones is kept.
package rls
