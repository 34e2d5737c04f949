package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// A Change is one thing that differs between two files of rules.
type Change struct {
	// Rule is the name of the rule.
	Rule string
	// What says what changes.
	What string
	// Fresh reports whether keys of the rule start as if never seen: all of them if its name
	// is new; if its key has changed, those whose text the rule has not counted before; if a
	// limit starts unused, all keys under this limit.
	Fresh bool
}

// String returns the rule and what changes in it, as one line.
func (c Change) String() string { return fmt.Sprintf("rule %s: %s", c.Rule, c.What) }

// Compare describes, for people to read, what changes when r replaces old: rules, limits and
// overrides that come, go and change, and rules whose keys start afresh. It shows no value
// that conditions compare with.
func (r *Rules) Compare(old *Rules) []Change {
	var all []Change
	before := make(map[string]*rule, len(old.rules))
	for _, was := range old.rules {
		before[was.Name] = was
	}
	for i, one := range r.rules {
		if i%64 == 63 { // so that requests are decided meanwhile
			runtime.Gosched()
		}
		if was := before[one.Name]; was != nil {
			all = append(all, one.compare(was)...)
			if r.looks.FoldPath != old.looks.FoldPath && one.reads("path") {
				all = append(all, Change{Rule: one.Name, What: fmt.Sprintf("ignore_path_case becomes %t", r.looks.FoldPath)})
			}
			delete(before, one.Name)
		} else {
			all = append(all, Change{one.Name, "is new", true})
		}
	}
	for _, was := range old.rules {
		if before[was.Name] != nil {
			all = append(all, Change{Rule: was.Name, What: "is gone"})
		}
	}
	return all
}

// SameRule reports whether both files have a rule of this name that says the same.
func (r *Rules) SameRule(old *Rules, name string) bool {
	var same [2]rulesfile.Rule
	for i, rules := range []*Rules{r, old} {
		one, err := rules.rule(name)
		if err != nil {
			return false
		}
		same[i] = *one.Rule
		same[i].Line, same[i].Column = 0, 0
		same[i].Overrides = slices.Clone(one.Overrides)
		for k := range same[i].Overrides {
			same[i].Overrides[k].Line, same[i].Overrides[k].Column = 0, 0
		}
	}
	return reflect.DeepEqual(same[0], same[1])
}

// ByResponse reports whether the rule of this name is settled by the response.
func (r *Rules) ByResponse(name string) bool {
	one, err := r.rule(name)
	return err == nil && one.Response != nil
}

// BySent reports whether the length of a request's body is part of its cost under the rule of
// this name.
func (r *Rules) BySent(name string) bool {
	one, err := r.rule(name)
	return err == nil && one.Cost.Sent > 0
}

func (r *rule) compare(old *rule) []Change {
	var all []Change
	say := func(fresh bool, format string, args ...any) {
		all = append(all, Change{r.Name, fmt.Sprintf(format, args...), fresh})
	}
	if a, b := old.keyText(), r.keyText(); a != b {
		say(true, "the key was %s and becomes %s: other keys start afresh", a, b)
	}
	if !r.plansAre(old) {
		r.comparePlans(old, say)
	}
	if old.Mode != r.Mode {
		say(false, "mode %s becomes %s", old.Mode, r.Mode)
	}
	if old.Shadow != r.Shadow || old.Quota != r.Quota {
		say(false, "shadow becomes %s", map[bool]string{true: "quota", false: strconv.FormatBool(r.Shadow)}[r.Quota])
	}
	if !reflect.DeepEqual(old.Reply, r.Reply) {
		say(false, "clients are told otherwise: %s", cmp.Or(r.Reply.String(), "as usual"))
	}
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	return all
}

// plansAre reports whether both rules have one plan only, and the same one: so it is for most
// rules, of which there may be thousands.
func (r *rule) plansAre(old *rule) bool {
	alone := r.Tiers == nil && old.Tiers == nil && len(r.overrides)+len(old.overrides) == 0
	return alone && r.own.action == old.own.action && slices.Equal(r.own.all, old.own.all)
}

func (r *rule) comparePlans(old *rule, say func(fresh bool, format string, args ...any)) {
	r.compareLimits(old, say)
	were, are := old.actions(), r.actions()
	for what := range are {
		if !were[what] {
			say(false, "%s is new", what)
		}
	}
	for what := range were {
		if !are[what] {
			say(false, "%s is gone", what)
		}
	}
}

// A heldLimit is the identity of a limit, and the plan of the rule that has it.
type heldLimit struct{ id, place string }

func (r *rule) held() map[heldLimit][]stint.Limit {
	all := make(map[heldLimit][]stint.Limit)
	for _, p := range r.allPlans() {
		for _, l := range p.all {
			as := heldLimit{l.ID(), p.place()}
			all[as] = append(all[as], l)
		}
	}
	return all
}

// compareLimits describes which limits come, go and change. A limit's state belongs to the
// rule and the limit's identity: it starts unused if no plan of the old rule had this
// identity.
func (r *rule) compareLimits(old *rule, say func(fresh bool, format string, args ...any)) {
	were, are, known := old.held(), r.held(), make(map[string]bool)
	for as := range were {
		known[as.id] = true
	}
	for as, limits := range are {
		had, has := setOf(were[as]), setOf(limits)
		gone := slices.DeleteFunc(were[as], func(l stint.Limit) bool { return has[l] })
		for _, l := range limits {
			switch {
			case had[l]:
			case len(gone) > 0:
				say(false, "limit %v becomes %v%s", gone[0], l, as.place)
				gone = gone[1:]
			case known[as.id]:
				say(false, "limit %v is new%s", l, as.place)
			default:
				say(true, "limit %v is new%s: it starts unused", l, as.place)
			}
		}
		were[as] = gone
	}
	for as, limits := range were {
		for _, l := range limits {
			say(false, "limit %v is gone%s", l, as.place)
		}
	}
}

func setOf(limits []stint.Limit) map[stint.Limit]bool {
	set := make(map[stint.Limit]bool, len(limits))
	for _, l := range limits {
		set[l] = true
	}
	return set
}

func (r *rule) actions() map[string]bool {
	all := make(map[string]bool)
	for _, p := range r.allPlans() {
		if p.action != "" {
			all[p.action+p.place()] = true
		}
	}
	return all
}

func (p *plan) place() string {
	if p.variant == "" {
		return ""
	}
	return " (" + p.variant + ")"
}

func (r *rule) keyText() string {
	names := make([]string, 0, len(r.Key))
	for _, a := range r.Key {
		name := a.Name
		if a.Kind == request.IP && (r.IPv4Prefix != 32 || r.IPv6Prefix != 64) {
			name = fmt.Sprintf("ip/%d,/%d", r.IPv4Prefix, r.IPv6Prefix)
		}
		names = append(names, name)
	}
	s := "[" + strings.Join(names, ", ") + "]"
	if r.HashKey {
		s += " hashed"
	}
	return s
}
