package envoyrules

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/service/importers"
)

// Options say how configurations become rules.
type Options struct {
	// Compatible keeps windows that begin at whole units since the epoch and
	// counts denied hits, as that service does. The default value is false:
	// buckets that fill evenly, of which a denial takes nothing.
	Compatible bool
}

// keysAttribute is the attribute that has the keys of a descriptor's entries in
// order: a limit is for descriptors of exactly its keys.
const keysAttribute = "descriptor.keys"

// A step is a descriptor on the way to a limit.
type step struct {
	d         *descriptor
	attribute string
	taken     []string // conditions on its value that its siblings take
}

// converter makes rules of domains.
type converter struct {
	o     Options
	file  importers.File
	notes importers.Notes
	said  map[string]bool // notes that are made once

	replaced map[string]bool // names of limits that others replace
}

// Convert returns the rules of domains as a YAML document, and what differs. The error is
// the context's.
func Convert(ctx context.Context, domains []*Domain, o Options) (yaml []byte, notes importers.Notes, err error) {
	c := &converter{o: o, said: map[string]bool{}, replaced: map[string]bool{}}
	for _, d := range domains {
		c.replacements(d.descriptors)
	}
	for _, d := range domains {
		if err := c.walk(ctx, d, d.descriptors, nil); err != nil {
			return nil, nil, err
		}
	}
	c.general()
	c.file.Attributes = c.attributes()
	return c.file.YAML(), c.notes.Once(), ctx.Err()
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
func (c *converter) walk(ctx context.Context, domain *Domain, level []*descriptor, path []step) error {
	beside := siblingsOf(level)
	for i, d := range level {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := step{d: d, attribute: attributeOf(d.key, path)}
		s.taken = beside[d.key].taken(i, d)
		next := append(path[:len(path):len(path)], s)
		if d.limit != nil {
			c.add(domain, next)
		}
		c.leftOut(d, beside[d.key], i)
		if err := c.walk(ctx, domain, d.below, next); err != nil {
			return err
		}
	}
	return nil
}

// plainKey is a key that can be the name of an attribute.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_/-][A-Za-z0-9_/|:@.-]{0,127}$`)

// attributeOf returns the attribute of an entry that comes behind a path: its key, or by
// its place descriptor.N, if rules take the key for something else, if it comes again,
// or if it is no name.
func attributeOf(key string, path []step) string {
	first, _, _ := strings.Cut(key, ".")
	plain := !request.Taken(key) && plainKey.MatchString(key) && !slices.ContainsFunc(path, func(s step) bool { return s.d.key == key })
	switch strings.ToLower(first) {
	case "domain", "descriptor", "entry": // what the listener itself gives
		plain = false
	}
	if plain {
		return key
	}
	return fmt.Sprintf("descriptor.%d", len(path)+1)
}

// add makes a rule of the limit at the end of a path.
func (c *converter) add(domain *Domain, path []step) {
	last := path[len(path)-1].d
	var keys, told []string
	identity := []string{domain.Name}
	for _, s := range path {
		keys, told = append(keys, inList.Replace(s.d.key)), append(told, s.d.text())
		identity = append(identity, s.d.key, s.d.value)
	}
	r := importers.Rule{Description: domain.Name + ": " + strings.Join(told, ", "), Shadow: last.shadow || last.quota, Quota: last.quota && !last.shadow}
	r.Name = importers.NameOf(domain.Name+"."+strings.Join(told, "."), identity...)
	match := []importers.Cond{is("domain", importers.Escape(domain.Name)), is(keysAttribute, importers.Escape(strings.Join(keys, ",")))}
	for _, s := range path {
		if s.d.value != "" {
			match = append(match, is(s.attribute, s.d.pattern()))
		}
		if len(s.taken) > 0 {
			r.Unless = append(r.Unless, []importers.Cond{is(s.attribute, s.taken...)})
		}
		if s.d.free() {
			r.Key = append(r.Key, s.attribute)
		}
	}
	r.Match = [][]importers.Cond{match}
	c.limit(&r, last.limit)
	c.differ(&r, last)
	c.file.Rules = append(c.file.Rules, r)
}

// inList writes a key as descriptor.keys has it.
var inList = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// is says what an attribute must be.
func is(attribute string, values ...string) importers.Cond {
	return importers.Cond{Attribute: attribute, Values: values}
}

// limit writes a limit as text.
func (c *converter) limit(r *importers.Rule, l *limit) {
	switch {
	case l.unlimited:
		r.Unlimited = true
	case l.count == 0 && !c.o.Compatible:
		r.Block = true
	default:
		if l.count == 0 { // each costs 2 of 1: a block would end the decision before the other limits count it
			r.Cost, r.Key = 2, nil
		}
		limit := l.text()
		if c.o.Compatible {
			limit += compatible
		}
		r.Limits = []string{limit}
	}
}

// differ notes what the rule does not do as the descriptor did.
func (c *converter) differ(r *importers.Rule, d *descriptor) {
	note := func(format string, args ...any) {
		c.notes.Say(d.at.String(), "rule %s: %s", r.Name, fmt.Sprintf(format, args...))
	}
	if d.limit.name != "" {
		note("the name %q is not kept: current_limit has the rule's", d.limit.name)
	}
	for _, name := range d.limit.replaces {
		note("replaces %q is not kept: where one request meets both, both hold", name)
	}
	switch {
	case d.quota && d.shadow:
		note("quota_mode does nothing beside shadow_mode; there it would keep other quotas of a request from denying")
	case d.quota:
		note("quota_mode is kept: a request is denied if all its quotas are over. No metadata is sent")
	}
	if r.Shadow && !r.Quota {
		c.said["shadow"] = true
	}
	if r.Cost > 0 {
		note("0 requests are a limit of 1 of which each takes 2: the status has this limit")
	}
	if r.Block {
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
func (c *converter) leftOut(d *descriptor, beside *siblings, i int) {
	texts := map[string]string{
		"metadata":        "metadata is left out: answers have none",
		"detailed_metric": "detailed_metric is left out: metrics are by rule, never by what clients send",
		"value_to_metric": "value_to_metric is left out: metrics are by rule, never by what clients send",
	}
	for _, f := range d.dropped {
		c.notes.Say(f.at.String(), "%s", texts[f.field])
	}
	if d.limit == nil && (d.shadow || d.quota) {
		c.notes.Say(d.at.String(), "shadow_mode and quota_mode without a rate_limit do nothing, there neither")
	}
	if strings.Contains(d.key, "*") && d.key != d.value {
		c.notes.Lose(d.at.String(), "%s: a star in a key is a wildcard there; other keys than exactly this are NOT KEPT", d.text())
	}
	if !d.star() {
		return
	}
	for _, k := range beside.near(d) {
		if before := beside.level[k]; k < i && before.takes(d.value) {
			c.notes.Say(d.at.String(), "%s takes no value: %s takes them all before it", d.text(), before.text())
			return
		}
	}
}

// general notes what concerns all rules.
func (c *converter) general() {
	if !c.o.Compatible && slices.ContainsFunc(c.file.Rules, func(r importers.Rule) bool { return len(r.Limits) > 0 }) {
		c.said["buckets"] = true
	}
	texts := map[string]string{
		"buckets": "limits are buckets that fill evenly: a client that has used 60 per minute has one more after a second, not 60 more with the next minute, and around the end of a window no more than the limit passes. A denied request takes nothing, neither from the limit that denied nor from others that it meets. --compatible keeps windows and counts what is denied",
		"shadow":  "the status of a descriptor whose limit is in shadow is OK without a current_limit",
	}
	for _, what := range slices.Sorted(maps.Keys(texts)) {
		if c.said[what] {
			c.notes.Say("", "%s", texts[what])
		}
	}
}

// attributes returns what the rules look at, which Envoy gives.
func (c *converter) attributes() []string {
	names := make(map[string]bool)
	for _, r := range c.file.Rules {
		for _, m := range r.Match[0] {
			names[m.Attribute] = true
		}
		for _, name := range r.Key {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
