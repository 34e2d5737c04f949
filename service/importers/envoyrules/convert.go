package envoyrules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/service/importers"
)

// Options say how configurations become rules.
type Options struct {
	// Compatible makes limits windows that begin at whole units since the epoch
	// and count denied hits, as that service does. The default value is false:
	// limits are buckets that fill evenly, and a denial takes nothing.
	Compatible bool
}

// keysAttribute is the attribute with the keys of a descriptor's entries, in order. A
// limit applies only to descriptors with exactly its keys.
const keysAttribute = "descriptor.keys"

// A step is a descriptor on the way to a limit.
type step struct {
	d         *descriptor
	attribute string
	taken     []string // values that siblings take before it, as patterns
}

// converter makes rules of domains.
type converter struct {
	o     Options
	take  func(*importers.Rule) bool // receives a rule, and reports whether it wants more
	notes importers.Notes
	said  map[string]bool // the general notes to make, by name
	err   error

	replaced map[string]bool // names of limits that others replace
	values   int             // how many values the descriptors with stars of a domain leave to others
	bytes    int             // how long these are
}

// mostValues and mostBytes bound converter.values and converter.bytes. With many stars on a level,
// each descriptor may name all others: an eighth of the values that a rules file may have, and a
// quarter of its bytes, so that one domain leaves room for more.
const (
	mostValues = 1 << 17
	mostBytes  = 8 << 20
)

// Convert returns the rules of domains as YAML, and notes of what differs. The error is the
// context's, or says that the domains are too large.
func Convert(ctx context.Context, domains []*Domain, o Options) (yaml []byte, notes importers.Notes, err error) {
	file, end := Begin(ctx, domains, o)
	yaml = file.YAML()
	notes, err = end()
	return yaml, notes, err
}

// Begin is Convert for a file whose rules are made one by one, as they are read. Call end
// after the last one: it returns the notes and the error.
func Begin(ctx context.Context, domains []*Domain, o Options) (file *importers.File, end func() (importers.Notes, error)) {
	c := &converter{o: o, said: map[string]bool{}, replaced: map[string]bool{}}
	names := map[string]bool{}
	for _, d := range domains {
		c.look(d.descriptors, nil, names)
	}
	if len(names) > 0 {
		names["domain"], names[keysAttribute] = true, true
	}
	made := func(yield func(*importers.Rule) bool) {
		c.take = yield
		for _, d := range domains {
			if c.values, c.bytes = 0, 0; !c.walk(ctx, d, d.descriptors, nil) {
				return
			}
		}
	}
	return &importers.File{Attributes: slices.Sorted(maps.Keys(names)), Made: made}, func() (importers.Notes, error) {
		c.general()
		return c.notes.Once(), cmp.Or(c.err, ctx.Err())
	}
}

// look collects the names of replaced limits, and the attributes on the paths to limits. It
// reports whether there are limits.
func (c *converter) look(level []*descriptor, path []step, names map[string]bool) (limits bool) {
	for _, d := range level {
		s := step{d: d, attribute: attributeOf(d.key, path)}
		if d.limit != nil {
			for _, name := range d.limit.replaces {
				c.replaced[name] = true
			}
		}
		if c.look(d.below, append(path, s), names) || d.limit != nil {
			names[s.attribute], limits = true, true
		}
	}
	return limits
}

// walk makes rules of the limits below a path. It reports whether it made all of them.
func (c *converter) walk(ctx context.Context, domain *Domain, level []*descriptor, path []step) bool {
	beside := siblingsOf(level)
	c.joins(level, slices.Sorted(maps.Keys(beside)))
	for i, d := range level {
		if c.err = ctx.Err(); c.err != nil {
			return false
		}
		s := step{d: d, attribute: attributeOf(d.key, path)}
		s.taken = beside[d.key].taken(i, d)
		if c.err = c.names(domain, s); c.err != nil {
			return false
		}
		next := append(path, s)
		if d.limit != nil {
			r := c.rule(domain, next)
			if !c.take(r) || d.quota && d.shadow && !c.take(room(r)) {
				return false
			}
		}
		c.leftOut(d, beside[d.key], i)
		if !c.walk(ctx, domain, d.below, next) {
			return false
		}
	}
	return true
}

// joins notes the descriptors of a level that are found for other of its keys, too: that service looks for key_value, so
// that user=* takes user_id, too, which has no such value.
func (c *converter) joins(level []*descriptor, keys []string) {
	var loose []string // keys of other values than the key itself, which gateways write for conditions
	for _, d := range level {
		if d.value != d.key {
			loose = append(loose, d.key)
		}
	}
	slices.Sort(loose)
	loose = slices.Compact(loose)
	for _, d := range level {
		keys := keys
		if d.value == d.key {
			keys = loose
		}
		first, _, star := strings.Cut(d.key+"_"+d.value, "*")
		other := ""
		for i := sort.SearchStrings(keys, first); star && other == "" && i < len(keys) && strings.HasPrefix(keys[i], first); i++ {
			if keys[i] != d.key { // which is found if it has a star itself
				other = keys[i]
			}
		}
		for j := len(d.key) + 1; j < len(first); j++ {
			if _, is := slices.BinarySearch(keys, first[:j]); is && first[j] == '_' {
				other = first[:j]
			}
		}
		if other != "" && d.value != "" {
			c.notes.Lose(d.at.String(), "%s is NOT KEPT for %s: that service looks for KEY_VALUE, and may find it there, too", d.text(), other)
		}
	}
}

// names counts the values that a step with stars leaves to others. The error says that its domain
// has too many.
func (c *converter) names(domain *Domain, s step) error {
	if !s.d.star() {
		return nil // there is one for each key of a level, of no more values than are written
	}
	c.values += len(s.taken)
	for _, value := range s.taken {
		c.bytes += len(value)
	}
	if c.values <= mostValues && c.bytes <= mostBytes {
		return nil
	}
	return fmt.Errorf("%s: where one value can meet several with stars, each of these names those before it, which is more than %d names or %d bytes in this domain: write fewer such values", domain.Name, mostValues, mostBytes)
}

// plainKey reports whether a key can be the name of an attribute.
func plainKey(key string) bool {
	for i := range len(key) {
		c := key[i]
		first := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '/'
		if !first && c != '-' && (i == 0 || c != '|' && c != ':' && c != '@' && c != '.') {
			return false
		}
	}
	return key != "" && len(key) <= 128
}

// attributeOf returns the attribute of an entry after a path: its key, or descriptor.N, by
// its position, if the key means something else in rules, is in the path already, or is no
// valid name.
func attributeOf(key string, path []step) string {
	first, _, _ := strings.Cut(key, ".")
	plain := !request.Taken(key) && plainKey(key) && !slices.ContainsFunc(path, func(s step) bool { return s.d.key == key })
	switch strings.ToLower(first) {
	case "domain", "descriptor", "entry": // attributes that the gRPC interface gives
		plain = false
	}
	if plain {
		return key
	}
	return fmt.Sprintf("descriptor.%d", len(path)+1)
}

// rule makes a rule of the limit at the end of a path.
func (c *converter) rule(domain *Domain, path []step) *importers.Rule {
	last := path[len(path)-1].d
	var keys, told []string
	identity := []string{domain.Name}
	for _, s := range path {
		keys, told = append(keys, inList.Replace(s.d.key)), append(told, s.d.text())
		identity = append(identity, s.d.key, s.d.value)
	}
	r := &importers.Rule{Description: domain.Name + ": " + strings.Join(told, ", "), Shadow: last.shadow || last.quota, Quota: last.quota && !last.shadow}
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
	c.limit(r, last.limit)
	c.differ(r, last)
	return r
}

// room returns a quota that is never over, for the requests of a rule in shadow: one with room keeps
// the other quotas of a request from denying.
func room(r *importers.Rule) *importers.Rule {
	return &importers.Rule{Name: importers.NameOf(r.Name, "room"), Description: "room for quotas beside " + r.Name,
		Match: r.Match, Unless: r.Unless, Unlimited: true, Shadow: true, Quota: true}
}

// inList escapes a key for the list in descriptor.keys.
var inList = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// is returns the condition that an attribute has one of the values.
func is(attribute string, values ...string) importers.Cond {
	return importers.Cond{Attribute: attribute, Values: values}
}

// limit writes a limit as text.
func (c *converter) limit(r *importers.Rule, l *limit) {
	switch {
	case l.unlimited:
		r.Unlimited, r.Shadow, r.Quota = true, false, false
	case l.count == 0 && !c.o.Compatible:
		r.Block = true
	default:
		if l.count == 0 { // a cost of 2 never passes a limit of 1; a block would keep the other limits from counting
			r.Cost, r.Key = 2, nil
		}
		limit := l.written.windows
		if !c.o.Compatible {
			limit, c.said["buckets"] = l.written.text, true
		}
		r.Limits = []string{limit}
	}
}

// differ notes what the rule does differently from the descriptor.
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
		note("quota_mode beside shadow_mode is a second rule, %s: it has room, so that other quotas of a request do not deny", room(r).Name)
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

var withoutFields = map[string]string{
	"metadata":        "metadata is left out: answers have none",
	"detailed_metric": "detailed_metric is left out: metrics are by rule, never by what clients send",
	"value_to_metric": "value_to_metric is left out: metrics are by rule, never by what clients send",
}

// leftOut notes the fields of level[i] that no rule has, and that level[i] takes no value
// because a wildcard before it takes them all.
func (c *converter) leftOut(d *descriptor, beside *siblings, i int) {
	for _, f := range d.dropped {
		c.notes.Say(f.at.String(), "%s", withoutFields[f.field])
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
	for _, k := range beside.before(i) {
		if before := beside.level[k]; before.takes(d.value) {
			c.notes.Say(d.at.String(), "%s takes no value: %s takes them all before it", d.text(), before.text())
			return
		}
	}
}

// general makes the notes that concern all rules.
func (c *converter) general() {
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
