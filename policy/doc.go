// Package policy decides requests by rules, which match requests by their attributes
// and hold each to its limits. Package rulesfile reads them from a
// file.
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
// Several requests that stand or fall together, such as the descriptors of one
// request to Envoy's rate limit service, are asked by [Policy.DecideAll].
//
// Rules with count, or with a cost of the response, are settled when the response has
// ended: [Policy.Begin] is for who sees it. All other methods charge what such rules
// reserve.
//
// # Guarantees
//
// Two requests share a key only if the attributes of the rule's key are equal:
// no value that a client chooses meets another's. Paths are compared decoded
// and cleaned; one that servers read in different ways is refused with a
// [RequestError], never guessed at. A rule in shadow charges its own limits and
// changes nothing else. What keys have used outlives [Policy.Reload], and a
// reload that fails leaves the policy before as it was.
//
// All limits of a request are charged in one step of the store, or none is,
// whatever cost each rule gives it, and the store answers for each limit. Two kinds
// of limits take further calls: each rule in shadow decides by itself, and a limit
// that costs this request nothing is peeked at.
//
// A request is held to [stint.MaxLimits] limits at most, those in shadow not
// counted. Package rulesfile refuses rules that hold every request to more. Where only
// some request meets more, deciding it fails with [stint.ErrLayers] and charges
// nothing.
//
// # Price
//
// Rules are found through an index over paths, hosts, addresses and any other
// attribute, overrides through one of their own: a decision costs about the
// same with five thousand rules as with one. Of a path pattern the segments before its
// first ** or behind its last are looked up; one of stars alone, or with its only fixed
// segment between two **, is tried for each request. Deciding with a used [Result]
// allocates nothing for a key of one attribute, and the key's text for keys of
// several. Each limit of the rules is a limit of the store, with what that
// costs there.
//
// # Concurrency
//
// Rules and a Policy do not change and may be used from many goroutines at
// once; a Result belongs to one.
package policy
