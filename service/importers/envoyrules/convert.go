package envoyrules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options say how configurations become rules.
type Options struct {
	// Compatible keeps windows that begin at whole units since the epoch and
	// counts denied hits, as that service does. The default value is false:
	// buckets that fill evenly, of which a denial takes nothing.
	Compatible bool
}

// A Note says what means something else as a rule than it did.
type Note struct {
	Where string // file:line; "" for what concerns all
	Rule  string
	Text  string
}

// String returns one line.
func (n Note) String() string {
	s := n.Text
	if n.Rule != "" {
		s = "rule " + n.Rule + ": " + s
	}
	if n.Where != "" {
		s = n.Where + ": " + s
	}
	return s
}

// keysAttribute is the attribute that has the keys of a descriptor's entries in
// order: a limit is for descriptors of exactly its keys.
const keysAttribute = "descriptor.keys"

// A rule is one limit of a configuration.
type rule struct {
	name, description string
	match             [][2]string // attribute and condition
	unless            []exception
	key               []string
	limit             string // a limit, or "unlimited" or "block"
	never             bool   // no request passes, though each is counted
	shadow            bool
}

// An exception is values that more exact descriptors take.
type exception struct {
	attribute string
	values    []string // conditions
}

// A step is a descriptor on the way to a limit.
type step struct {
	d         *descriptor
	attribute string
	taken     []string // conditions on its value that its siblings take
}

// converter makes rules of domains.
type converter struct {
	o     Options
	rules []rule
	notes []Note
	names map[string]bool
	said  map[string]bool // notes that are made once

	replaced map[string]bool // names of limits that others replace
}

// Convert returns the rules of domains as a YAML document, and what differs.
func Convert(domains []*Domain, o Options) (yaml []byte, notes []Note) {
	c := &converter{o: o, names: map[string]bool{}, said: map[string]bool{}, replaced: map[string]bool{}}
	for _, d := range domains {
		c.replacements(d.descriptors)
	}
	for _, d := range domains {
		c.walk(d, d.descriptors, nil)
	}
	c.general()
	return c.write(), c.notes
}

// replacements notes which names limits replace.
func (c *converter) replacements(level []*descriptor) {
	for _, d := range level {
		if d.limit != nil {
			for _, name := range d.limit.replaces {
				c.replaced[name] = true
			}
		}
		c.replacements(d.below)
	}
}

// walk makes rules of the limits below a path.
func (c *converter) walk(domain *Domain, level []*descriptor, path []step) {
	for i, d := range level {
		s := step{d: d, attribute: attributeOf(d.key, path), taken: taken(level, i)}
		next := append(path[:len(path):len(path)], s)
		if d.limit != nil {
			c.add(domain, next)
		}
		c.leftOut(level, i)
		c.walk(domain, d.below, next)
	}
}

// taken returns what the siblings of level[i] take before it: exact values go
// before stars, those before each other in order, and both before none.
func taken(level []*descriptor, i int) (values []string) {
	d := level[i]
	star := d.star()
	if d.value != "" && !star {
		return nil
	}
	for k, other := range level {
		switch {
		case other.key != d.key || other.value == "" || k == i:
		case !other.star() && (!star || d.takes(other.value)), other.star() && (!star || k < i):
			values = append(values, other.pattern())
		}
	}
	return values
}

// attributeOf returns the attribute of an entry that comes behind a path: KEY,
// of keys that come again KEY.2 and so on, and entry.KEY of names that rules
// take for something else.
func attributeOf(key string, path []step) string {
	n := 1
	for _, s := range path {
		if s.d.key == key {
			n++
		}
	}
	first, _, _ := strings.Cut(key, ".")
	switch strings.ToLower(first) { // rules refuse PATH too: it looks like path
	case "domain", "path", "host", "method", "ip", "header", "headers", "query", "cookie", "cookies", "descriptor", "entry":
		key = "entry." + key
	}
	if n == 1 {
		return key
	}
	return key + "." + strconv.Itoa(n)
}

// escape returns text as a pattern for exactly that.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(text)
}

// add makes a rule of the limit at the end of a path.
func (c *converter) add(domain *Domain, path []step) {
	last := path[len(path)-1].d
	var keys, told []string
	for _, s := range path {
		keys, told = append(keys, s.d.key), append(told, s.d.text())
	}
	r := rule{description: domain.Name + ": " + strings.Join(told, ", "), shadow: last.shadow || last.quota}
	r.name = c.name(domain.Name, told)
	r.match = [][2]string{{"domain", escape(domain.Name)}, {keysAttribute, escape(strings.Join(keys, ","))}}
	for _, s := range path {
		if s.d.value != "" {
			r.match = append(r.match, [2]string{s.attribute, s.d.pattern()})
		}
		if len(s.taken) > 0 {
			r.unless = append(r.unless, exception{s.attribute, s.taken})
		}
		if s.d.value == "" || s.d.star() && !s.d.share {
			r.key = append(r.key, s.attribute)
		}
	}
	c.limit(&r, last.limit)
	c.differ(&r, last)
	c.rules = append(c.rules, r)
}

// limit writes a limit as text.
func (c *converter) limit(r *rule, l *limit) {
	switch {
	case l.unlimited:
		r.limit = "unlimited"
	case l.count == 0 && !c.o.Compatible:
		r.limit = "block"
	default:
		if l.count == 0 { // a block would end the decision before the other limits count it
			r.never, r.key = true, nil
		}
		r.limit = fmt.Sprintf("%d/%ds", max(l.count, 1), l.times*unitSeconds[l.unit])
		if n, unit := l.times, map[string]string{"minute": "m", "hour": "h", "day": "d", "week": "w"}[l.unit]; unit != "" {
			r.limit = fmt.Sprintf("%d/%d%s", max(l.count, 1), n, unit)
		} else if l.unit == "month" || l.unit == "year" {
			r.limit = fmt.Sprintf("%d/%dd", max(l.count, 1), l.times*unitSeconds[l.unit]/86400)
		}
		if c.o.Compatible {
			r.limit += " fixed_window count_denied"
		}
	}
}

// name returns a name that no other rule has.
func (c *converter) name(domain string, told []string) string {
	const most = 64
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		case r == '=':
			return '_'
		}
		return '-'
	}, domain+"."+strings.Join(told, "."))
	if first := clean[0]; first == '-' || first == '.' {
		clean = "_" + clean[1:]
	}
	name := clean[:min(len(clean), most)]
	for n := 2; c.names[name]; n++ {
		suffix := "-" + strconv.Itoa(n)
		name = clean[:min(len(clean), most-len(suffix))] + suffix
	}
	c.names[name] = true
	return name
}

// differ notes what the rule does not do as the descriptor did.
func (c *converter) differ(r *rule, d *descriptor) {
	note := func(format string, args ...any) {
		c.notes = append(c.notes, Note{d.at.String(), r.name, fmt.Sprintf(format, args...)})
	}
	if d.limit.name != "" {
		note("the name %q is not kept: current_limit has the rule's", d.limit.name)
	}
	for _, name := range d.limit.replaces {
		note("replaces %q is not kept: where one request meets both, both hold", name)
	}
	if d.quota {
		note("quota_mode became shadow: it lets pass, and is counted, but no metadata is sent")
	}
	if r.shadow {
		c.said["shadow"] = true
	}
	if r.never {
		note("0 requests are a limit of 1 of which each takes 2: the status has this limit")
	}
	if r.limit == "block" {
		note("0 requests are a block: the status has no limit and no time")
	}
	if d.limit.count == 0 && !d.limit.unlimited {
		if c.replaced[d.limit.name] {
			note("another limit replaces this one there; here it denies all the same: take the rule out, or give it an unless")
		}
	}
}

// leftOut notes the fields of level[i] that no rule has, and values that it never
// sees because a wildcard before it takes them.
func (c *converter) leftOut(level []*descriptor, i int) {
	d := level[i]
	texts := map[string]string{
		"metadata":        "metadata is left out: answers have none",
		"detailed_metric": "detailed_metric is left out: metrics are by rule, never by what clients send",
		"value_to_metric": "value_to_metric is left out: metrics are by rule, never by what clients send",
	}
	for _, f := range d.dropped {
		c.notes = append(c.notes, Note{Where: f.at.String(), Text: texts[f.field]})
	}
	if d.limit == nil && (d.shadow || d.quota) {
		c.notes = append(c.notes, Note{Where: d.at.String(), Text: "shadow_mode and quota_mode without a rate_limit do nothing, there neither"})
	}
	for _, before := range level[:i] {
		if d.star() && before.star() && before.key == d.key && before.takes(d.value) {
			c.notes = append(c.notes, Note{Where: d.at.String(), Text: fmt.Sprintf("%s takes no value: the one at line %d takes them all before it", d.text(), before.at.line)})
		}
	}
}

// general notes what concerns all rules.
func (c *converter) general() {
	if !c.o.Compatible && slices.ContainsFunc(c.rules, func(r rule) bool { return strings.Contains(r.limit, "/") }) {
		c.said["buckets"] = true
	}
	texts := map[string]string{
		"buckets": "limits are buckets that fill evenly: a client that has used 60 per minute has one more after a second, not 60 more with the next minute, and around the end of a window no more than the limit passes. A denied request takes nothing, neither from the limit that denied nor from others that it meets. --compatible keeps windows and counts what is denied",
		"shadow":  "the status of a descriptor whose limit is in shadow is OK without a current_limit",
	}
	for _, what := range slices.Sorted(maps.Keys(texts)) {
		if c.said[what] {
			c.notes = append(c.notes, Note{Text: texts[what]})
		}
	}
}
