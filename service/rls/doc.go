// Package rls is the service for Envoy and other clients of its rate limit service, version 3:
// envoy.service.ratelimit.v3 over gRPC, and the same messages as JSON. docs/ENVOY.md says what each
// field of a request and of an answer means.
//
// A [Service] decides. Each descriptor of a request becomes attributes, which the rules read like
// those of other interfaces; all descriptors of a request are one decision. [Serve] serves a
// Service on a listener.
//
// # Bounds
//
// A request has at most [MaxDescriptors] descriptors of at most [MaxEntries] entries, and
// [MaxMessage] bytes; a value that rules read has at most [MaxValue]. A client of Envoy can bring
// about a denial but never an error, since Envoy lets a request pass after an error. Limits in
// requests are checked before they are used, and a bounded number of different ones is kept.
package rls
