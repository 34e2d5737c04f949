package policy

import (
	"errors"
	"maps"
	"slices"

	"github.com/stint-dev/stint"
)

// Rules are a rules file that has been read and found good. Make them with
// [Parse] or [Decode].
type Rules struct {
	rules []*rule
	index *index
	plans []*plan // of all rules, by id

	notReady bool // every request fails: there are no rules yet

	declared   map[string]bool // attributes that callers give beside those of HTTP
	undeclared []use           // attributes that are neither

	path bool // whether any rule looks at the path
	host bool // whether any rule looks at the host
}

// A rule is one entry of the file. What every request looks at comes first, so
// that it lies together.
type rule struct {
	match, unless []conjunction // nil match: every request
	overrides     []override
	tiers         *tiers
	own           *plan // nil if tiers have a default
	key           []attribute
	cost          cost
	shadow, final bool
	hashKey       bool
	missing       missing
	failure       Failure
	mode          string // in which its limits are held; strict is ""
	ipv4, ipv6    int    // how much of an address is a key

	name          string
	line, column  int
	overrideIndex *index
	missingLayer  *Layer
	groups        map[string]*plan // of overrides, by their limits or name; while decoding
}

// A plan is what a request is held to: limits, or an action.
type plan struct {
	id      int    // in Rules.plans; -1 for an action
	name    string // that its limits are bound under
	mode    string
	action  string
	layers  []*Layer // one for an action
	limits  []stint.Limit
	variant string
	given   *Given // whose plan this is, if it is no rule's
}

// An override gives requests another plan.
type override struct {
	when         conjunction
	plan         *plan
	line, column int
}

// tiers give plans by the value of an attribute.
type tiers struct {
	by    attribute
	plans map[string]*plan
	names []string // in order
	def   *plan    // nil: the rule's own
}

// A cost is what a request costs: a number or an attribute.
type cost struct {
	fixed int64 // 0 if by attribute
	by    attribute
	def   int64 // when the request has none
	min   int64
	max   int64
}

// missing is what a rule does when an attribute of its key is missing.
type missing uint8

const (
	missingShared missing = iota
	missingDeny
	missingSkip
)

var missingWords = map[string]missing{"shared": missingShared, "deny": missingDeny, "skip": missingSkip}

var failureWords = map[string]Failure{"local": FailLocal, "open": FailOpen, "closed": FailClosed}

// Parse reads rules from JSON. The error is [Errors].
func Parse(data []byte) (*Rules, error) {
	root, err := ReadJSON(data)
	if err != nil {
		return nil, err
	}
	return Decode(root)
}

// ReadJSON returns the tree of a JSON document, for callers of [Decode] that
// have fields of their own. The error is [Errors].
func ReadJSON(data []byte) (*Node, error) {
	root, err := readJSON(data)
	if err != nil {
		return nil, Errors{err}
	}
	return root, nil
}

// ErrNotReady is for a request that is asked before there are any rules.
var ErrNotReady = errors.New("policy: there are no rules yet")

// NotReady returns rules that decide nothing: every request fails with
// [ErrNotReady]. It is for programs that wait for their first rules.
func NotReady() *Rules {
	r, err := Parse([]byte(`{"rules": []}`))
	if err != nil {
		panic(err) // it is good
	}
	r.notReady = true
	return r
}

// Names returns the names of the rules in order.
func (r *Rules) Names() []string {
	names := make([]string, len(r.rules))
	for i, one := range r.rules {
		names[i] = one.name
	}
	return names
}

// Layers returns what the rule of a name may hold requests to: its own limits,
// then those of its tiers and overrides; nil if there is no such rule.
func (r *Rules) Layers(name string) []*Layer {
	var all []*Layer
	for _, one := range r.rules {
		if one.name == name {
			for _, p := range one.allPlans() {
				all = append(all, p.layers...)
			}
		}
	}
	return all
}

// Reads reports whether a rule looks at the attribute of this name.
func (r *Rules) Reads(name string) bool {
	for _, one := range r.rules {
		if one.reads(name) {
			return true
		}
	}
	return false
}

// Attributes returns the names of the attributes that rules look at, sorted.
func (r *Rules) Attributes() []string {
	names := make(map[string]bool)
	for _, one := range r.rules {
		for name := range one.attributes {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (r *rule) reads(name string) bool {
	for each := range r.attributes {
		if each == name {
			return true
		}
	}
	return false
}

// attributes yields the names of what the rule looks at, some more than once.
func (r *rule) attributes(yield func(string) bool) {
	conjunctions := slices.Concat(r.match, r.unless)
	for i := range r.overrides {
		conjunctions = append(conjunctions, r.overrides[i].when)
	}
	for _, conj := range conjunctions {
		for i := range conj {
			if !yield(conj[i].name) {
				return
			}
		}
	}
	for _, a := range r.key {
		if !yield(a.name) {
			return
		}
	}
	if r.cost.by.name != "" && !yield(r.cost.by.name) {
		return
	}
	if r.tiers != nil {
		yield(r.tiers.by.name)
	}
}

// allPlans returns every plan of a rule, each once, the rule's own first.
func (r *rule) allPlans() []*plan {
	var all []*plan
	seen := make(map[*plan]bool)
	add := func(p *plan) {
		if p != nil && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	add(r.own)
	if r.tiers != nil {
		for _, name := range r.tiers.names {
			add(r.tiers.plans[name])
		}
	}
	for i := range r.overrides {
		add(r.overrides[i].plan)
	}
	return all
}
