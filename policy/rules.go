package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Rules are what a policy decides by. Make them with [Parse], or with [Compile]
// from a file that package rulesfile has read.
type Rules struct {
	rules []*rule
	index *match.Index
	plans []*plan // of all rules, by id

	notReady bool // every request fails: there are no rules yet

	file *rulesfile.File

	looks    match.Looks
	body     bool // whether any rule looks into the body
	shadow   bool // whether any rule is in shadow
	response bool // whether any rule goes by the response
}

// A rule is one entry of the file. What every request looks at comes first, so
// that it lies together.
type rule struct {
	match, unless []match.Conjunction // nil match: every request
	overrides     []override
	tiers         *tiers
	own           *plan // nil if tiers have a default
	key           []match.Attribute
	cost          rulesfile.Cost
	response      *rulesfile.Response // what is settled by it; nil for nothing
	shadow, final bool
	hashKey       bool
	missing       missing
	failure       Failure
	mode          string // in which its limits are held
	ipv4, ipv6    int    // how much of an address is a key

	name          string
	line, column  int
	overrideIndex *match.Index
	missingLimits []*RuleLimit // the one of a missing key that is denied
	reply         *rulesfile.Reply
	preflight     bool          // the last of unless is preflight
	wait          time.Duration // for room under a limit in flight
}

// A plan is what a request is held to: limits, or an action.
type plan struct {
	id          int    // in Rules.plans; -1 for an action
	timed       bool   // there are limits other than in flight
	name        string // apart from all other plans
	rule        string // whose it is
	mode        string
	action      string
	ruleLimits  []*RuleLimit // of limits; one for an action
	limits      []stint.Limit
	inFlight    []*RuleLimit // the others
	shown       []*RuleLimit // ruleLimits and then inFlight
	all         []stint.Limit
	longestHold time.Duration // the longest that a leaky_queue among them holds a request
	variant     string
	pair        *fallback.Pair // of a plan that is no rule's, in both stores
}

// An override gives requests another plan.
type override struct {
	when         match.Conjunction
	plan         *plan
	line, column int
}

// tiers give plans by the value of an attribute.
type tiers struct {
	by    match.Attribute
	plans map[string]*plan
	names []string // in order
	def   *plan    // nil: the rule's own
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

// Parse reads rules from JSON. The error is [rulesfile.Errors].
func Parse(data []byte) (*Rules, error) {
	file, err := rulesfile.Parse(data)
	if err != nil {
		return nil, err
	}
	return Compile(file), nil
}

// ErrNotReady is for a request that is asked before there are any rules.
var ErrNotReady = errors.New("policy: there are no rules yet")

// NotReady returns rules that decide nothing: every request fails with
// [ErrNotReady]. It is for programs that wait for their first rules.
func NotReady() *Rules {
	r := Compile(new(rulesfile.File))
	r.notReady = true
	return r
}

// File returns what the rules were read from.
func (r *Rules) File() *rulesfile.File { return r.file }

// Names returns the names of the rules in order.
func (r *Rules) Names() []string {
	names := make([]string, len(r.rules))
	for i, one := range r.rules {
		names[i] = one.name
	}
	return names
}

// Digest returns a text of 64 characters that rules of the same names and limits have in
// common, in whatever order; an empty one where there are no limits.
func (r *Rules) Digest() string {
	var lines []string
	for _, p := range r.plans {
		if len(p.all) > 0 {
			lines = append(lines, p.name+"\x00"+textOf(p.all))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return digest(strings.Join(lines, "\x00\x00"))
}

// Limits returns what the rule of a name may hold requests to: its own limits,
// then those of its tiers and overrides; nil if there is no such rule.
func (r *Rules) Limits(name string) []*RuleLimit {
	var all []*RuleLimit
	for _, one := range r.rules {
		if one.name == name {
			for _, p := range one.allPlans() {
				all = append(all, p.shown...)
			}
		}
	}
	return all
}

// Reads reports whether a rule looks at the attribute of this name.
func (r *Rules) Reads(name string) bool {
	return slices.ContainsFunc(r.rules, func(one *rule) bool { return one.reads(name) })
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
			if !yield(conj[i].Name) {
				return
			}
		}
	}
	for _, a := range r.key {
		if !yield(a.Name) {
			return
		}
	}
	if r.cost.By.Name != "" && !yield(r.cost.By.Name) {
		return
	}
	if r.tiers != nil {
		yield(r.tiers.by.Name)
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
