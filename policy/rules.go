package policy

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Rules are what a policy decides by. Make them with [Parse], or with [Compile]
// from a file that package rulesfile has read.
type Rules struct {
	rules  []*rule
	byName map[string]*rule
	index  *match.Index
	plans  []*plan // of all rules, by id

	notReady bool // every request fails: there are no rules yet

	file *rulesfile.File

	attributes []string // those that rules look at, sorted
	enforced   []string // those that rules which are not in shadow look at, sorted
	looks      match.Looks
	seen       request.Interfaces // the interfaces that can give every attribute that rules look at
	shadow     bool               // whether any rule is in shadow
	response   bool               // whether any rule goes by the response
}

// A rule is one entry of the file, with its plans.
type rule struct {
	*rulesfile.Rule
	overrides     []*plan          // for each of Rule.Overrides
	tiers         map[string]*plan // by the names in Rule.Tiers
	tierDefault   *plan            // the default of tiers; nil if that is own
	own           *plan            // nil if tiers have a default
	failure       Failure
	preflights    bool               // it lets CORS preflights pass
	seen          request.Interfaces // like Rules.seen, for this rule
	overrideIndex *match.Index
	missingLimits []*RuleLimit // the entry for a missing key, if on_missing is deny
}

// A plan is what a request is held to: limits, or an action.
type plan struct {
	id          int    // in Rules.plans; -1 for an action
	timed       bool   // there are limits other than in flight
	name        string // different from that of any other plan
	rule        string // the name of its rule
	mode        string
	action      string
	ruleLimits  []*RuleLimit // for each limit over time; one for an action
	limits      []stint.Limit
	inFlight    []*RuleLimit // for each limit in flight
	shown       []*RuleLimit // ruleLimits and then inFlight
	all         []stint.Limit
	longestHold time.Duration // the longest that a leaky_queue among them holds a request
	variant     string
	pair        *fallback.Pair // the limits in both stores, of a plan that is not in Rules.plans
}

var failureWords = map[string]Failure{"local": FailLocal, "open": FailOpen, "closed": FailClosed}

// Parse reads rules from JSON. The error is [rulesfile.Errors].
func Parse(data []byte) (*Rules, error) {
	file, err := rulesfile.Parse(data)
	if err != nil {
		return nil, err
	}
	return Compile(file), nil
}

// ErrNotReady says that a request came before there were any rules.
var ErrNotReady = errors.New("policy: there are no rules yet")

// NotReady returns rules that decide nothing: every request fails with
// [ErrNotReady]. It is for programs that wait for their first rules.
func NotReady() *Rules {
	r := Compile(new(rulesfile.File))
	r.notReady = true
	return r
}

// File returns the file that the rules were read from.
func (r *Rules) File() *rulesfile.File { return r.file }

// Names returns the names of the rules in order.
func (r *Rules) Names() []string {
	names := make([]string, len(r.rules))
	for i, one := range r.rules {
		names[i] = one.Name
	}
	return names
}

// Digest returns 64 hexadecimal digits, which are equal for rules whose names and limits are
// equal, in whatever order; "" if there are no limits.
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
	one, err := r.rule(name)
	if err != nil {
		return nil
	}
	var all []*RuleLimit
	for _, p := range one.allPlans() {
		all = append(all, p.shown...)
	}
	return all
}

// Reads reports whether a rule looks at the attribute of this name.
func (r *Rules) Reads(name string) bool { return slices.Contains(r.attributes, name) }

// Attributes returns the names of the attributes that rules look at, sorted.
func (r *Rules) Attributes() []string { return slices.Clone(r.attributes) }

// Enforced returns the names of the attributes that rules which are not in shadow look at,
// sorted. If claims are among them, so is header.NAME of the header that carries the token. A
// request must give these attributes in a form that all servers read alike; attributes that
// only rules in shadow look at refuse no request.
func (r *Rules) Enforced() []string { return slices.Clone(r.enforced) }

// Enforces reports whether [Rules.Enforced] contains the name.
func (r *Rules) Enforces(name string) bool {
	_, ok := slices.BinarySearch(r.enforced, name)
	return ok
}

func (r *rule) reads(name string) bool {
	for a := range r.Attributes {
		if a.Name == name {
			return true
		}
	}
	return false
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
	if r.Tiers != nil {
		for _, name := range r.Tiers.Names {
			add(r.tiers[name])
		}
	}
	for _, p := range r.overrides {
		add(p)
	}
	return all
}

func (p *plan) countsDenied() bool {
	return !slices.ContainsFunc(p.limits, func(l stint.Limit) bool { return !l.CountDenied() })
}
