package policy

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/match"
)

// A Change is one thing that differs between two files of rules.
type Change struct {
	// Rule is the name of the rule.
	Rule string
	// What says what changes.
	What string
	// Fresh reports whether keys of the rule start as if never seen: all, where
	// its name is new; where its key is another, those of a text that the rule
	// has not counted before.
	Fresh bool
}

// String returns one line.
func (c Change) String() string { return fmt.Sprintf("rule %s: %s", c.Rule, c.What) }

// Compare describes what changes when r replaces old, for people to read:
// rules, limits and overrides that come, go and change, and which rules' keys
// start afresh. No value that conditions compare with is in it.
func (r *Rules) Compare(old *Rules) []Change {
	var all []Change
	formers, before := r.formers(old), old.names()
	runtime.Gosched() // requests are decided meanwhile
	for i, one := range r.rules {
		if i%64 == 63 {
			runtime.Gosched()
		}
		if was := before[one.name]; was != nil {
			all = append(all, one.compare(was, formers)...)
			if r.foldPath != old.foldPath && one.reads("path") {
				all = append(all, Change{Rule: one.name, What: fmt.Sprintf("ignore_path_case becomes %t", r.foldPath)})
			}
			delete(before, one.name)
		} else {
			all = append(all, Change{one.name, "is new", true})
		}
	}
	for _, was := range old.rules {
		if before[was.name] != nil {
			all = append(all, Change{Rule: was.name, What: "is gone"})
		}
	}
	return all
}

func (r *rule) compare(old *rule, formers map[*plan]*plan) []Change {
	var all []Change
	say := func(fresh bool, format string, args ...any) {
		all = append(all, Change{r.name, fmt.Sprintf(format, args...), fresh})
	}
	if a, b := old.keyText(), r.keyText(); a != b {
		say(true, "the key was %s and becomes %s: other keys start afresh", a, b)
	}
	stays := make(map[*plan]bool)
	for _, p := range r.allPlans() {
		if was := formers[p]; was != nil {
			stays[was] = true
			p.compare(was, func(format string, args ...any) { say(false, format, args...) })
			continue
		}
		for _, l := range p.limits {
			say(false, "limit %v is new%s", l, p.place())
		}
	}
	for _, was := range old.allPlans() {
		for _, l := range was.limits {
			if !stays[was] {
				say(false, "limit %v is gone%s", l, was.place())
			}
		}
	}
	were, are := old.actions(), r.actions()
	for what, n := range are {
		if d := n - were[what]; d > 0 {
			say(false, "%s is new%s", what, repeated(d))
		}
	}
	for what, n := range were {
		if d := n - are[what]; d > 0 {
			say(false, "%s is gone%s", what, repeated(d))
		}
	}
	if old.mode != r.mode {
		say(false, "mode %s becomes %s", modeName(old.mode), modeName(r.mode))
	}
	if old.shadow != r.shadow {
		say(false, "shadow becomes %v", r.shadow)
	}
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	return all
}

// compare describes what becomes of the limits of a plan.
func (p *plan) compare(old *plan, say func(format string, args ...any)) {
	from, stays := parts(p.limits, old.limits), make(map[int]bool)
	for i, l := range p.limits {
		switch j := from[i]; {
		case j < 0:
			say("limit %v is new%s", l, p.place())
		default:
			if stays[j] = true; l.WithName("") != old.limits[j].WithName("") {
				say("limit %v becomes %v%s", old.limits[j], l, p.place())
			}
		}
	}
	for j, l := range old.limits {
		if !stays[j] {
			say("limit %v is gone%s", l, p.place())
		}
	}
}

// actions counts what the rule has in place of limits.
func (r *rule) actions() map[string]int {
	all := make(map[string]int)
	count := func(p *plan) {
		if p != nil && p.action != "" {
			all[p.action+p.place()]++
		}
	}
	count(r.own)
	if r.tiers != nil {
		for _, name := range r.tiers.names {
			count(r.tiers.plans[name])
		}
	}
	for i := range r.overrides {
		count(r.overrides[i].plan)
	}
	return all
}

// place names the plan if it is not the rule's own.
func (p *plan) place() string {
	if p.variant == "" {
		return ""
	}
	return " (" + p.variant + ")"
}

func repeated(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", %d times", n)
}

// keyText is what a rule makes its keys of.
func (r *rule) keyText() string {
	names := make([]string, 0, len(r.key))
	for _, a := range r.key {
		name := a.Name
		if a.Field == match.IP && (r.ipv4 != 32 || r.ipv6 != 64) {
			name = fmt.Sprintf("ip/%d,/%d", r.ipv4, r.ipv6)
		}
		names = append(names, name)
	}
	s := "[" + strings.Join(names, ", ") + "]"
	if r.hashKey {
		s += " hashed"
	}
	return s
}
