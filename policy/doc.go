// Package policy decides by rules whether requests pass. A rule matches requests by their
// attributes and holds them to its limits. Package rulesfile reads rules from a file.
//
// A request is a set of named attributes. Most programs read rules once, bind
// them to a store and ask for each request:
//
//	rules, err := policy.Parse(data) // docs/RULES.md says what a file holds
//	…
//	p, err := policy.New(store, rules, policy.Options{})
//	…
//	var r policy.Result
//	err = p.Decide(ctx, policy.Map{"method": "POST", "path": "/login", "ip": ip}, 1, &r)
//	if err == nil && !r.Decision.Allowed { … }
//
// Rules are tried in order. Every rule that matches holds the request to its
// limits, all of them in one decision; a rule that is final, unlimited or a
// block ends the matching. A request that no rule matches passes.
//
// # Which method
//
//   - [Policy.Decide]: may the request pass? [Policy.Peek] charges nothing.
//   - [Policy.Wait]: the same, but the request waits where its rules say wait.
//   - [Policy.Begin]: the caller sees the response. Rules with count, or whose cost comes
//     from the response, are settled by it; all other methods charge what such rules reserve.
//   - [Policy.Reserve], [Policy.WaitReserve]: the caller settles the cost later, by
//     [Policy.Settle], also in another process.
//   - [Policy.DecideAll]: several requests that pass together or not at all, such as the
//     descriptors of one request to Envoy's rate limit service.
//
// # Guarantees
//
// Two requests share a key only if the attributes of the rule's key are equal: no client can
// choose a value that makes its key equal to another client's. Paths are compared decoded and
// cleaned; a path that servers read in different ways is refused with a [RequestError]. A
// rule in shadow charges its own limits and changes nothing else. What keys have used
// outlives [Policy.Reload]; if a reload fails, the policy before it stays as it was.
//
// All limits of a request are charged in one step of the store, or none is, whatever each
// rule costs, and the store answers for each limit. There are two exceptions, which take
// calls of their own: each rule in shadow decides by itself, and a limit that costs this
// request nothing is peeked at.
//
// A request is held to at most [stint.MaxLimits] limits, not counting those in shadow.
// Package rulesfile refuses rules that hold every request to more. If only some requests meet
// more, deciding such a request fails with [stint.ErrLayers] and charges nothing.
//
// # Price
//
// Rules are found through an index over paths, hosts, addresses and any other attribute, and
// overrides through an index of their own: a decision costs about the same with five thousand
// rules as with one. The index looks up a path pattern by the segments before its first ** or
// behind its last; a pattern of stars alone, or whose only fixed segment stands between two
// **, is tried for each request. Deciding with a used [Result] allocates nothing for a key of
// one attribute, and the key's text for a key of several. Each limit of the rules costs what
// a limit of the store costs.
//
// # Concurrency
//
// Rules and a Policy do not change and may be used from many goroutines at once; a Result
// belongs to one goroutine.
package policy
