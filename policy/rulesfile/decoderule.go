package rulesfile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/internal/wording"
)

// rule reads one rule. If it is wrong, the error is in d.errs, and the rule is of no use.
func (d *decoder) rule(n *Node, t *trail) *Rule {
	r := &Rule{
		Line: n.Line, Column: n.Column, IPv4Prefix: 32, IPv6Prefix: 64,
		OnMissing: "shared", OnStoreFailure: "local", Mode: "strict", Cost: Cost{Fixed: 1}, Reply: d.reply,
	}
	fs := d.fields(n, t, "a rule is a map", ruleFields...)
	if n.Kind != MapKind {
		return r
	}
	d.first(r, fs, t)
	d.overrides = make(map[string]bool)
	var base planNodes
	var tag *Node
	var tagAt *trail
	var running, waits []Field // fields that need a limit in flight, and any limit
	for _, f := range fs {
		switch at := t.in(f.Name); f.Name {
		case "description":
			d.text(f.Value, at, "")
		case "match":
			r.Match = d.conjunctions(f.Value, at)
		case "unless":
			r.Unless = d.conjunctions(f.Value, at)
		case "key":
			d.key(r, f.Value, at)
		case "tag":
			tag, tagAt = f.Value, at
		case "limits", "unlimited", "block":
			base.add(f)
		case "cost", "count":
			d.charge(r, f, at)
		case "on_missing":
			r.OnMissing = d.word(f.Value, at, "deny", "shared", "skip")
		case "on_store_failure":
			r.OnStoreFailure = d.word(f.Value, at, "closed", "local", "open")
		case "mode":
			r.Mode = d.word(f.Value, at, "async", "lease", "share", "strict")
		case "wait":
			r.Wait, waits = d.duration(f.Value, at), append(waits, f)
		case "finish":
			r.Finish, running = d.duration(f.Value, at), append(running, f)
		case "final":
			r.Final = d.boolean(f.Value, at)
		case "hash_key":
			r.HashKey = d.boolean(f.Value, at)
		case "ipv4_prefix":
			r.IPv4Prefix = int(d.number(f.Value, at, 1, 32))
		case "ipv6_prefix":
			r.IPv6Prefix = int(d.number(f.Value, at, 1, 128))
		default:
			d.replies(&r.Reply, f, at)
		}
	}
	if r.Name == "" {
		if !has(fs, "name") {
			d.fail(n, t, "metrics, answers and what keys have used go by it", "a rule without a name")
		}
		r.Name = "?"
	}
	d.tag(r, tag, tagAt)
	d.plansOf(r, n, t, fs, base)
	d.checkKey(r, n, t, has(fs, "key"))
	d.needs(r, running, t, (*Plan).inFlight, `a limit in flight`, `it is for a limit such as "20 in flight"`)
	d.needs(r, waits, t, func(p *Plan) bool { return len(p.Limits) > 0 }, "a limit", "it is how long a request waits for room under one")
	return r
}

// first reads the fields that other fields are read by.
func (d *decoder) first(r *Rule, fs []Field, t *trail) {
	for _, f := range fs {
		switch at := t.in(f.Name); f.Name {
		case "name":
			d.ruleName(r, f.Value, at)
		case "shadow":
			r.Quota = f.Value.Kind == String && f.Value.Value == "quota"
			r.Shadow = r.Quota || d.want(f.Value, at, Bool, "or quota; without quotes") && f.Value.True()
		}
	}
}

func has(fs []Field, name string) bool {
	return slices.ContainsFunc(fs, func(f Field) bool { return f.Name == name })
}

func (d *decoder) ruleName(r *Rule, n *Node, t *trail) {
	r.Name = d.name(n, t)
	if first := d.names[r.Name]; first != nil && r.Name != "" {
		d.fail(n, t, "what keys have used belongs to the name", "a second rule %q: the first is in line %d", r.Name, first.Line)
	}
	d.names[r.Name] = n
}

func (d *decoder) plansOf(r *Rule, n *Node, t *trail, fs []Field, base planNodes) {
	if base.any() {
		r.Own = d.plan(t, base)
	}
	for _, f := range fs {
		switch at := t.in(f.Name); f.Name {
		case "tiers":
			r.Tiers = d.tiers(r, f.Value, at)
			if r.Tiers != nil && r.Tiers.Default == nil && r.Own == nil {
				d.fail(f.Value, at, "say default: NAME, or give the rule limits of its own", "no limits for requests of no tier")
			}
			if r.Tiers != nil && r.Tiers.Default != nil && r.Own != nil {
				d.fail(f.Value, at, "drop one of them", "the rule has limits of its own and tiers a default")
			}
		case "overrides":
			if d.want(f.Value, at, List, "each override is an item of the list") {
				d.each(f.Value, at, func(n *Node, t *trail) { d.override(r, n, t) })
			}
		}
	}
	unread := len(fs) < len(n.Fields) // one of them, reported as wrong, may have been meant as limits
	if !base.any() && !has(fs, "tiers") && !unread {
		d.fail(n, t, `such as limits: ["100 per minute"]; or unlimited: true, or block: true`, "a rule without limits")
	}
}

// needs refuses fields that mean something only in a rule with a plan of some kind.
func (d *decoder) needs(r *Rule, fields []Field, t *trail, kind func(*Plan) bool, what, hint string) {
	for _, f := range fields {
		if !slices.ContainsFunc(r.plans(), kind) {
			d.fail(f.Value, t.in(f.Name), hint, "%s without %s", f.Name, what)
		}
	}
}

func (d *decoder) checkKey(r *Rule, n *Node, t *trail, hasKey bool) {
	if r.limits() && !hasKey {
		d.fail(n, t, "such as key: [ip]; key: [] is one key for all requests of the rule", "limits without a key")
	}
}

func (d *decoder) key(r *Rule, n *Node, t *trail) {
	d.each(n, t, func(n *Node, t *trail) {
		name, ok := d.text(n, t, "the name of an attribute, such as ip or header.x-api-key")
		if !ok {
			return
		}
		a, ok := d.attribute(n.Line, n.Column, t, name)
		if !ok {
			return
		}
		for _, b := range r.Key {
			if a == b {
				d.fail(n, t, "", "attribute %q twice", a.Name)
			}
		}
		r.Key = append(r.Key, a)
	})
	if len(r.Key) > maxKey {
		d.fail(n, t, "", "a key of %d attributes: at most %d", len(r.Key), maxKey)
	}
}

// tag puts an attribute of the key first, if there is a tag.
func (d *decoder) tag(r *Rule, n *Node, t *trail) {
	if n == nil {
		return
	}
	name, ok := d.text(n, t, "an attribute of the rule's key, such as ip")
	if !ok {
		return
	}
	a, ok := d.attribute(n.Line, n.Column, t, name)
	if !ok {
		return
	}
	i := slices.Index(r.Key, a)
	if i < 0 {
		d.fail(n, t, "it says which attribute of the key decides where a cluster keeps it", "the key has no attribute %q", a.Name)
		return
	}
	copy(r.Key[1:], r.Key[:i])
	r.Key[0] = a
}

func (d *decoder) attribute(line, column int, t *trail, name string) (request.Attribute, bool) {
	a, reason, hint := request.Parse(name)
	if reason != "" {
		d.failAt(line, column, t, hint, "%s", reason)
		return a, false
	}
	if a.Name = d.intern(a.Name); t != nil {
		d.used(line, column, t, a)
	}
	return a, true
}

type planNodes struct{ limits, unlimited, block *Field }

func (p *planNodes) add(f Field) {
	switch f.Name {
	case "limits":
		p.limits = &f
	case "unlimited":
		p.unlimited = &f
	case "block":
		p.block = &f
	}
}

func (p *planNodes) any() bool { return p.limits != nil || p.unlimited != nil || p.block != nil }

func (d *decoder) plan(t *trail, nodes planNodes) *Plan {
	action := ""
	for _, f := range []*Field{nodes.unlimited, nodes.block} {
		switch {
		case f == nil:
		case !d.boolean(f.Value, t.in(f.Name)):
			if f.Value.Kind == Bool && nodes.limits == nil {
				d.fail(f.Value, t.in(f.Name), "drop the field, or say true", "%s: false says nothing", f.Name)
			}
		case action != "":
			d.failAt(f.Line, f.Column, t, "drop one of them", "both unlimited and block")
		default:
			action = f.Name
		}
	}
	if action != "" && nodes.limits != nil {
		d.failAt(nodes.limits.Line, nodes.limits.Column, t, "drop one of them", "both limits and %s", action)
		return nil
	}
	if action != "" {
		return &Plan{Action: action}
	}
	if nodes.limits == nil {
		return nil
	}
	limits := d.limits(nodes.limits.Value, t.in("limits"))
	if len(limits) == 0 {
		return nil
	}
	return &Plan{Limits: limits}
}

// limits reads a list of limits, each of which has an ID of its own.
func (d *decoder) limits(n *Node, t *trail) (limits []stint.Limit) {
	d.each(n, t, func(n *Node, t *trail) {
		text, name := n, ""
		if n.Kind == MapKind {
			text = nil
			for _, f := range d.fields(n, t, "", limitFields...) {
				switch f.Name {
				case "limit":
					text = f.Value
				case "name":
					name = d.name(f.Value, t.in("name"))
				}
			}
			if text == nil {
				d.fail(n, t, `such as {"limit": "10/s", "name": "burst"}`, "no field \"limit\"")
				return
			}
		}
		s, ok := d.text(text, t, `such as "100 per minute", "10/s burst 20" or "every 2s"`)
		if !ok {
			return
		}
		l, err := d.parse(s)
		if err != nil {
			d.fail(text, t, "", "%s", strings.TrimPrefix(err.Error(), "stint: "))
			return
		}
		l = l.WithName(name)
		for _, other := range limits {
			if other.WithName("") == l.WithName("") || name != "" && other.Label() == name {
				d.fail(text, t, "", "the same limit twice")
				return
			} else if other.ID() == l.ID() {
				d.fail(text, t, fmt.Sprintf(`name one of them, such as {"limit": %q, "name": "short"}`, s),
					"a second limit of the kind and period %s: what keys have used belongs to these", l.ID())
				return
			}
		}
		limits = append(limits, l)
	})
	switch {
	case n.Kind == List && len(n.Items) == 0:
		d.fail(n, t, `such as ["100 per minute"]; for none say unlimited: true`, "no limits")
	case len(limits) > maxLimits:
		d.fail(n, t, "", "%d limits: at most %d", len(limits), maxLimits)
	}
	return limits
}

// parse is [stint.Parse], which it calls once for a text that thousands of rules have.
func (d *decoder) parse(text string) (l stint.Limit, err error) {
	l, known := d.limitsOf[text]
	if known {
		return l, nil
	}
	if l, err = stint.Parse(text); err == nil && len(d.limitsOf) < 10_000 {
		if d.limitsOf == nil {
			d.limitsOf = make(map[string]stint.Limit)
		}
		d.limitsOf[text] = l
	}
	return l, err
}

func (d *decoder) tiers(r *Rule, n *Node, t *trail) *Tiers {
	ts := &Tiers{Plans: make(map[string]*Plan)}
	var def *Node
	fs := d.fields(n, t, `such as {"by": "jwt.plan", "default": "free", "plans": {"free": "1/s", "pro": "10/s"}}`, tiersFields...)
	if n.Kind != MapKind {
		return nil
	}
	for _, f := range fs {
		at := t.in(f.Name)
		switch f.Name {
		case "by":
			if name, ok := d.text(f.Value, at, "the name of an attribute"); ok {
				ts.By, _ = d.attribute(f.Value.Line, f.Value.Column, at, name)
			}
		case "default":
			if _, ok := d.text(f.Value, at, "the name of a plan"); ok {
				def = f.Value
			}
		case "plans":
			for _, p := range d.fields(f.Value, at, "limits by the value of the attribute") {
				d.tier(ts, p, at.in(p.Name))
			}
		}
	}
	for _, field := range []string{"by", "plans"} {
		if !has(fs, field) {
			d.fail(n, t, "", "tiers without %q", field)
		}
	}
	if def != nil {
		if ts.Default = ts.Plans[def.Value]; ts.Default == nil {
			d.fail(def, t.in("default"), suggest(def.Value, ts.Names), "no plan %q", wording.Shorten(def.Value))
			ts.Default = &Plan{}
		}
	}
	return ts
}

func (d *decoder) tier(ts *Tiers, f Field, t *trail) {
	if !goodName(f.Name) {
		d.failAt(f.Line, f.Column, t, "letters, digits, dots, underscores and hyphens, at most 64", "%q is no name", wording.Shorten(f.Name))
		return
	}
	nodes := planNodes{limits: &f}
	if f.Value.Kind == MapKind {
		nodes = planNodes{}
		for _, sub := range d.fields(f.Value, t, "", planFields...) {
			nodes.add(sub)
		}
		if !nodes.any() {
			d.fail(f.Value, t, "", "a plan needs one of %s", strings.Join(planFields, ", "))
		}
	}
	ts.Names = append(ts.Names, f.Name)
	if p := d.plan(t, nodes); p != nil {
		ts.Plans[f.Name] = p
	} else {
		ts.Plans[f.Name] = &Plan{} // an error has been reported
	}
}

func (d *decoder) override(r *Rule, n *Node, t *trail) {
	o := Override{Line: n.Line, Column: n.Column}
	var nodes planNodes
	var when *Field
	fs := d.fields(n, t, `such as {"when": {"header.x-api-key": "partner-1"}, "limits": ["100/s"]}`, overrideFields...)
	if n.Kind != MapKind {
		return
	}
	for _, f := range fs {
		switch f.Name {
		case "name":
			o.Name = d.name(f.Value, t.in("name"))
		case "when":
			when = &f
		default:
			nodes.add(f)
		}
	}
	if when == nil {
		d.fail(n, t, "the attributes it is for", "an override without %q", "when")
		return
	}
	o.When = d.conjunction(when.Value, t.in("when"))
	if !nodes.any() {
		d.fail(n, t, "", "an override needs one of limits, unlimited, block")
		return
	}
	if o.Name != "" && d.overrides[o.Name] {
		d.fail(n, t, "what keys have used belongs to the name", "a second override %q", o.Name)
		return
	}
	if o.Plan = d.plan(t, nodes); o.Plan != nil {
		d.overrides[o.Name] = true
		r.Overrides = append(r.Overrides, o)
	}
}

// conjunctions reads a map of conditions, or a list of such maps, of which any may hold.
func (d *decoder) conjunctions(n *Node, t *trail) []match.Conjunction {
	var all []match.Conjunction
	d.each(n, t, func(n *Node, t *trail) { all = append(all, d.conjunction(n, t)) })
	if len(all) == 0 {
		d.fail(n, t, "drop the field to match every request", "no conditions")
	}
	return all
}

func (d *decoder) conjunction(n *Node, t *trail) match.Conjunction {
	fs := d.fields(n, t, `attributes and what they must be, such as {"method": "POST", "path": "/login"}`)
	if n.Kind == MapKind && len(n.Fields) == 0 {
		d.fail(n, t, "drop the field to match every request", "no conditions")
	}
	conj := make(match.Conjunction, 0, len(fs))
	for _, f := range fs {
		a, ok := d.attribute(f.Line, f.Column, t, f.Name)
		if !ok {
			continue
		}
		if slices.ContainsFunc(conj, func(c match.Condition) bool { return c.Name == a.Name }) {
			d.failAt(f.Line, f.Column, t, "names of headers are the same in any case", "attribute %q twice", a.Name)
			continue
		}
		conj = append(conj, d.condition(a, f.Value, t.in(f.Name)))
	}
	return conj
}

// condition reads what one attribute must be. A list of values that stands in many places, by
// an alias, is read once.
func (d *decoder) condition(a request.Attribute, n *Node, t *trail) match.Condition {
	if n.Kind != List {
		return d.values(a, n, t)
	}
	at := listFor{n, a.Name}
	c, read := d.lists[at]
	if !read {
		c = d.values(a, n, t)
		d.lists[at] = c
	}
	return c
}

// values reads the value that an attribute must have, or a list of values.
func (d *decoder) values(a request.Attribute, n *Node, t *trail) match.Condition {
	c := match.Condition{Attribute: a}
	if n.Kind == Bool && d.visit(n, t) {
		c.Present, c.Absent = n.True(), !n.True()
		return c
	}
	if n.Kind == List && len(n.Items) == 0 {
		d.fail(n, t, "true is any value, false none", "no values")
	}
	d.each(n, t, func(n *Node, t *trail) {
		if n.Kind != Number {
			d.want(n, t, String, "a value, a list of values, or true for any and false for none")
		} else {
			d.visit(n, t)
		}
		if n.Kind != Number && n.Kind != String {
			return
		}
		value := n.Value
		if d.foldPath && a.Kind == request.Path {
			var reason string
			if value, reason = match.FoldPath(value); reason != "" {
				d.fail(n, t, "no request with it is decided about", "%q: %s", wording.Shorten(n.Value), reason)
				return
			}
		}
		if n.Kind == Number && a.Kind == request.Body {
			switch plain, ok := usage.PlainNumber(value); {
			case !ok:
				d.fail(n, t, "write quotes if it is a text", "%s: in a body, servers read a number beyond 2^53 in different ways", wording.Shorten(value))
				return
			case plain != value:
				d.fail(n, t, "write that, or quotes if it is a text", "%s: rules read this number in a body as %s", wording.Shorten(value), wording.Shorten(plain))
				return
			}
		}
		if reason, hint := c.Add(d.intern(value)); reason != "" {
			d.fail(n, t, hint, "%q: %s", wording.Shorten(n.Value), reason)
		}
		if len(c.Texts) < 8 {
			c.Texts = append(c.Texts, n.Value)
		} else if len(c.Texts) == 8 {
			c.Texts = append(c.Texts, "…")
		}
	})
	return c
}

// ParseDigits returns the number that s writes in decimal digits alone. A number above the
// greatest int64 is returned as that.
func ParseDigits(s string) (int64, bool) {
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return v, true
}
