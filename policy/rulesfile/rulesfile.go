// Package rulesfile reads rules files. It returns what they hold, or says what is wrong with
// them, where, and what would be right.
//
//	file, err := rulesfile.Parse(data) // docs/RULES.md says what a file holds
//	…
//	rules := policy.Compile(file)      // which package policy decides by
//
// [Parse] reads JSON. [Decode] reads a tree of [Node], into which a program can bring any
// syntax, as the binary does with YAML. Errors and warnings name line and column.
//
// A File does not change, and may be used from many goroutines at once.
package rulesfile

import (
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
)

// A File is a rules file that has been read and found good.
type File struct {
	rules    []*Rule
	foldPath bool
	declared map[string]bool // attributes that callers give besides those of HTTP requests
	uses     []use           // the first use of each attribute
	jwt      *JWT            // nil if the file says nothing of tokens
}

// Rules returns the rules in order. The caller must not change them.
func (f *File) Rules() []*Rule { return f.rules }

// IgnoresPathCase reports whether upper and lower case in paths make no difference. If so,
// conditions have their patterns in lower case.
func (f *File) IgnoresPathCase() bool { return f.foldPath }

// A Rule is one entry of a file.
type Rule struct {
	Line, Column int // from 1
	Name         string
	// Match and Unless are alternatives: a rule matches a request that meets any of Match and
	// none of Unless. A nil Match is met by every request.
	Match, Unless []match.Conjunction
	// Key is the attributes that the rule's keys are made of; the field tag puts one of them
	// first.
	Key []request.Attribute
	// Cost is what a request costs; if Response says the true cost, Cost is what is charged
	// before.
	Cost Cost
	// Response is what the rule takes from the response; nil for nothing.
	Response *Response
	// Own is the plan of requests that no override and no tier takes; nil if Tiers have a
	// default.
	Own *Plan
	// Tiers are plans by the value of an attribute, or nil.
	Tiers *Tiers
	// Overrides are plans for some requests, of which the first that fits is taken.
	Overrides []Override
	// OnMissing is "shared", "deny" or "skip".
	OnMissing string
	// OnStoreFailure is "local", "open" or "closed".
	OnStoreFailure string
	// Wait is how long a request may wait for room under the limits of the rule.
	Wait time.Duration
	// Finish is how long a request to a proxy may hold its place in flight after its client has
	// left. The default value, 0, cancels the request and frees the place at once.
	Finish time.Duration
	// Mode is "strict", "lease", "async" or "share".
	Mode string
	// Reply is what clients are told: as the rule says, else as the file says for all rules.
	Reply Reply
	// Shadow, Final and HashKey are the fields of these names.
	Shadow, Final, HashKey bool
	// Quota is set by shadow: quota, together with Shadow.
	Quota bool
	// IPv4Prefix and IPv6Prefix are how many leading bits of an address a key has.
	IPv4Prefix, IPv6Prefix int
}

// A Plan is what requests are held to: limits, or an action.
type Plan struct {
	// Limits have different IDs, and the names that the file gives them. There are none if
	// there is an action.
	Limits []stint.Limit
	// Action is "", "unlimited" or "block".
	Action string
}

func (p *Plan) inFlight() bool { return slices.ContainsFunc(p.Limits, stint.Limit.InFlight) }

// An Override gives requests another plan.
type Override struct {
	Line, Column int // from 1
	// Name is part of the name that state belongs to; "" if it has none.
	Name string
	When match.Conjunction
	Plan *Plan
}

// Tiers give plans by the value of an attribute.
type Tiers struct {
	By    request.Attribute
	Names []string // in the order of the file
	Plans map[string]*Plan
	// Default is the plan of all other values; if nil, that is the rule's own.
	Default *Plan
}

// plans returns every plan of a rule, the rule's own first.
func (r *Rule) plans() []*Plan {
	var all []*Plan
	if r.Own != nil {
		all = append(all, r.Own)
	}
	if r.Tiers != nil {
		for _, name := range r.Tiers.Names {
			all = append(all, r.Tiers.Plans[name])
		}
	}
	for i := range r.Overrides {
		all = append(all, r.Overrides[i].Plan)
	}
	return all
}

// Parse reads rules from JSON. The error is [Errors].
func Parse(data []byte) (*File, error) {
	root, err := ReadJSON(data)
	if err != nil {
		return nil, err
	}
	return Decode(root)
}
