package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
)

// A Change is what a reload does to what keys have used.
type Change struct {
	// Rule is the name of the rule.
	Rule string
	// What says what changes.
	What string
	// Fresh reports whether keys in use start as if never seen, which a reload
	// should do only when told to.
	Fresh bool
}

// String returns one line.
func (c Change) String() string { return fmt.Sprintf("rule %s: %s", c.Rule, c.What) }

// Compare tells what becomes different for keys when r takes the place of old:
// rules that come and go, limits that change and keep what was used, and those
// that start fresh because their kind, their window's period, their tier or
// their key is another.
func (r *Rules) Compare(old *Rules) []Change {
	var all []Change
	before := make(map[string]*rule)
	for _, one := range old.rules {
		before[one.name] = one
	}
	for _, one := range r.rules {
		if was := before[one.name]; was != nil {
			all = append(all, one.compare(was)...)
			delete(before, one.name)
		} else {
			all = append(all, Change{Rule: one.name, What: "is new"})
		}
	}
	for _, was := range old.rules {
		if before[was.name] != nil {
			all = append(all, Change{Rule: was.name, What: "is gone"})
		}
	}
	return all
}

func (r *rule) compare(old *rule) []Change {
	var all []Change
	say := func(fresh bool, format string, args ...any) {
		all = append(all, Change{r.name, fmt.Sprintf(format, args...), fresh})
	}
	was, is := old.byName(), r.byName()
	if a, b := old.keyText(), r.keyText(); a != b && len(was) > 0 && len(is) > 0 {
		say(true, "the key was %s and becomes %s: all keys start fresh", a, b)
	}
	var gone []string
	for name := range was {
		if _, stays := is[name]; !stays {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	var come []string
	for name, l := range is {
		switch o, stayed := was[name]; {
		case !stayed:
			come = append(come, name)
		case o != l && !l.Keeps(o):
			say(true, "limit %v becomes %v and starts fresh", o, l)
		case o != l:
			say(false, "limit %v becomes %v and keeps what was used", o, l)
		}
	}
	slices.Sort(come)
	for _, name := range come {
		// A limit beside those that stay is one more; in the place of another
		// it forgets what that has counted.
		if i := slices.IndexFunc(gone, func(g string) bool { return group(g) == group(name) }); i >= 0 {
			say(true, "limit %v becomes %v and starts fresh", was[gone[i]], is[name])
			gone = slices.Delete(gone, i, i+1)
		} else {
			say(len(was) > 0 && noneIn(was, group(name)), "limit %v is new%s", is[name], place(name))
		}
	}
	for _, name := range gone {
		say(false, "limit %v is gone%s", was[name], place(name))
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

// byName returns the limits of a rule by the names that state belongs to.
func (r *rule) byName() map[string]stint.Limit {
	all := make(map[string]stint.Limit)
	for _, p := range r.allPlans() {
		for _, l := range p.limits {
			all[p.name+"/"+l.Name()] = l
		}
	}
	return all
}

// group returns the part of a limit's name that says which plan it is of.
func group(name string) string {
	if i := strings.IndexByte(name, '='); i >= 0 {
		return name[:i+1]
	}
	return name[:strings.IndexByte(name, '/')+1]
}

// noneIn reports whether no limit is of the group.
func noneIn(limits map[string]stint.Limit, g string) bool {
	for name := range limits {
		if group(name) == g {
			return false
		}
	}
	return true
}

// place names the plan of a limit that is not the rule's own.
func place(name string) string {
	g := group(name)
	switch {
	case strings.Contains(g, "@"):
		return " (tier " + strings.TrimSuffix(g[strings.IndexByte(g, '@')+1:], "/") + ")"
	case strings.Contains(g, "!"):
		return " (override " + strings.TrimSuffix(g[strings.IndexByte(g, '!')+1:], "/") + ")"
	case strings.HasSuffix(g, "="):
		return " (override)"
	}
	return ""
}

// keyText is what a rule makes its keys of.
func (r *rule) keyText() string {
	names := make([]string, 0, len(r.key))
	for _, a := range r.key {
		name := a.name
		if a.field == ipField && (r.ipv4 != 32 || r.ipv6 != 64) {
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
