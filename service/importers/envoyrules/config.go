package envoyrules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// A Domain is the descriptors of one name, of one file or of several.
type Domain struct {
	Name        string
	descriptors []*descriptor
}

// A descriptor is a node of the configuration's tree: an entry of a request's
// descriptor that it matches, and what holds when it is the last.
type descriptor struct {
	key, value string // no value: any that no other takes
	limit      *limit
	below      []*descriptor
	shadow     bool
	quota      bool
	share      bool // all values under a star share one counter
	dropped    []dropped
	at         place
}

// A place is where something is written.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// A dropped field is one that has no counterpart in a rule.
type dropped struct {
	field string
	at    place
}

// star reports whether the value has stars, each of which stands for any text.
func (d *descriptor) star() bool { return strings.Contains(d.value, "*") }

// pattern returns the value as a rule's condition.
func (d *descriptor) pattern() string {
	parts := strings.Split(d.value, "*")
	for i := range parts {
		parts[i] = importers.Escape(parts[i])
	}
	return strings.Join(parts, "*")
}

// takes reports whether a descriptor with stars takes a value.
func (d *descriptor) takes(value string) bool {
	parts := strings.Split(d.value, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(value) < len(first)+len(last) || !strings.HasPrefix(value, first) || !strings.HasSuffix(value, last) {
		return false
	}
	value = value[len(first) : len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, ok := strings.Cut(value, part)
		if !ok {
			return false
		}
		value = rest
	}
	return true
}

// A limit is the rate_limit of a descriptor.
type limit struct {
	name      string
	replaces  []string
	unlimited bool
	count     int64
	unit      string
	times     int64 // units
}

// unitSeconds are the lengths of units, as that service has them.
var unitSeconds = map[string]int64{
	"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400,
}

// The fields of a configuration.
var (
	domainFields     = []string{"domain", "descriptors"}
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	limitFields      = []string{"name", "replaces", "unit", "requests_per_unit", "unlimited", "unit_multiplier"}
)

// Decode reads one file from its tree. The error is [rulesfile.Errors].
func Decode(file string, root *rulesfile.Node) (*Domain, error) {
	c := &checker{file: file}
	d := &Domain{}
	c.fields(root, "", domainFields, func(name string, n *rulesfile.Node) {
		switch name {
		case "domain":
			d.Name = c.text(n, name)
		case "descriptors":
			d.descriptors = c.descriptors(n, name)
		}
	})
	if d.Name == "" && len(c.errs) == 0 {
		c.fail(root, "", "no domain", "write domain: and its name")
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return d, nil
}

// Merge adds what another file says of the domain. Of wildcards the first that
// takes a value has it, so the order of files counts. The error says what both
// files have.
func (d *Domain) Merge(more *Domain) error {
	for _, other := range more.descriptors {
		for _, one := range d.descriptors {
			if one.key == other.key && one.value == other.value {
				return fmt.Errorf("%v: the descriptor %s of domain %q is at %v already", other.at, other.text(), d.Name, one.at)
			}
		}
	}
	d.descriptors = append(d.descriptors, more.descriptors...)
	return nil
}

// A checker reads nodes and collects what is wrong.
type checker struct {
	file string
	errs rulesfile.Errors
}

func (c *checker) fail(n *rulesfile.Node, path, reason, hint string) {
	c.errs = append(c.errs, &rulesfile.Error{Line: n.Line, Column: n.Column, Path: path, Reason: reason, Hint: hint})
}

// fields calls do with each field of a map. What is not known is an error, as
// it is for that service.
func (c *checker) fields(n *rulesfile.Node, path string, known []string, do func(name string, n *rulesfile.Node)) {
	if n.Kind != rulesfile.MapKind {
		c.fail(n, path, fmt.Sprintf("want a map, not %v", n.Kind), "")
		return
	}
	seen := map[string]bool{}
	for _, f := range n.Fields {
		at := &rulesfile.Node{Line: f.Line, Column: f.Column}
		switch {
		case !slices.Contains(known, f.Name):
			c.fail(at, path, fmt.Sprintf("unknown field %q", f.Name), "known are "+strings.Join(known, ", "))
		case seen[f.Name]:
			c.fail(at, path, fmt.Sprintf("field %q twice", f.Name), "")
		case f.Value != nil && f.Value.Kind != rulesfile.Null:
			do(f.Name, f.Value)
		}
		seen[f.Name] = true
	}
}

func under(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// text returns a scalar as written: numbers and booleans are text here.
func (c *checker) text(n *rulesfile.Node, path string) string {
	switch n.Kind {
	case rulesfile.String, rulesfile.Number, rulesfile.Bool:
		return n.Value
	}
	c.fail(n, path, fmt.Sprintf("want text, not %v", n.Kind), "")
	return ""
}

func (c *checker) flag(n *rulesfile.Node, path string) bool {
	if n.Kind != rulesfile.Bool {
		c.fail(n, path, fmt.Sprintf("want true or false, not %v", n.Kind), "")
	}
	return n.Value == "true"
}

func (c *checker) number(n *rulesfile.Node, path string) int64 {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != rulesfile.Number || err != nil || v < 0 || v > math.MaxUint32 {
		c.fail(n, path, "want a whole number from 0 to 4294967295", "")
	}
	return v
}

func (c *checker) list(n *rulesfile.Node, path string, do func(n *rulesfile.Node, path string)) {
	if n.Kind != rulesfile.List {
		c.fail(n, path, fmt.Sprintf("want a list, not %v", n.Kind), "")
		return
	}
	for i, item := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item == nil || item.Kind == rulesfile.Null {
			c.fail(n, at, "nothing there", "")
			continue
		}
		do(item, at)
	}
}

func (c *checker) descriptors(n *rulesfile.Node, path string) (all []*descriptor) {
	seen := map[[2]string]bool{}
	c.list(n, path, func(n *rulesfile.Node, path string) {
		d := c.descriptor(n, path)
		if d.key == "" {
			c.fail(n, path, "no key", "a descriptor without a key matches nothing")
		}
		if id := [2]string{d.key, d.value}; seen[id] {
			c.fail(n, path, fmt.Sprintf("the descriptor %s twice", d.text()), "one limit for each: rules here may have several")
		} else {
			seen[id] = true
		}
		all = append(all, d)
	})
	return all
}

// text is a descriptor as people write it.
func (d *descriptor) text() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "=" + d.value
}

func (c *checker) descriptor(n *rulesfile.Node, path string) *descriptor {
	d := &descriptor{at: place{c.file, n.Line}}
	c.fields(n, path, descriptorFields, func(name string, n *rulesfile.Node) {
		at := under(path, name)
		switch name {
		case "key":
			d.key = c.text(n, at)
		case "value":
			d.value = c.text(n, at)
		case "rate_limit":
			d.limit = c.limit(n, at)
		case "descriptors":
			d.below = c.descriptors(n, at)
		case "shadow_mode":
			d.shadow = c.flag(n, at)
		case "quota_mode":
			d.quota = c.flag(n, at)
		case "share_threshold":
			d.share = c.flag(n, at)
		case "metadata": // anything may stand in it
			d.dropped = append(d.dropped, dropped{name, place{c.file, n.Line}})
		default:
			if c.flag(n, at) {
				d.dropped = append(d.dropped, dropped{name, place{c.file, n.Line}})
			}
		}
	})
	switch {
	case strings.Contains(d.key, "*"):
		c.fail(n, path, fmt.Sprintf("a star in the key %q", d.key), "there it is a wildcard, which a rule cannot say of the name of an attribute: this would be without its limit")
	case d.share && !d.star():
		c.fail(n, path, "share_threshold without a star in the value", "")
	}
	return d
}

func (c *checker) limit(n *rulesfile.Node, path string) *limit {
	l := &limit{times: 1}
	has := map[string]bool{}
	c.fields(n, path, limitFields, func(name string, n *rulesfile.Node) {
		at := under(path, name)
		has[name] = true
		switch name {
		case "name":
			l.name = c.text(n, at)
		case "unit":
			l.unit = strings.ToLower(c.text(n, at))
			if unitSeconds[l.unit] == 0 {
				c.fail(n, at, fmt.Sprintf("unknown unit %q", l.unit), "known are second, minute, hour, day, week, month, year")
			}
		case "requests_per_unit":
			l.count = c.number(n, at)
		case "unit_multiplier":
			if l.times = c.number(n, at); l.times == 0 {
				c.fail(n, at, "want at least 1", "")
			}
		case "unlimited":
			l.unlimited = c.flag(n, at)
		case "replaces":
			l.replaces = c.replaced(n, at)
		}
	})
	switch {
	case l.unlimited && has["unit"]:
		c.fail(n, path, "unlimited beside a unit", "write one or the other")
	case !l.unlimited && !has["unit"]:
		c.fail(n, path, "no unit", "known are second, minute, hour, day, week, month, year")
	case l.name != "" && slices.Contains(l.replaces, l.name):
		c.fail(n, path, fmt.Sprintf("%q replaces itself", l.name), "")
	}
	return l
}

// replaced reads a list of names.
func (c *checker) replaced(n *rulesfile.Node, path string) (names []string) {
	c.list(n, path, func(n *rulesfile.Node, path string) {
		name := ""
		c.fields(n, path, []string{"name"}, func(_ string, n *rulesfile.Node) { name = c.text(n, under(path, "name")) })
		if name == "" {
			c.fail(n, path, "no name", "name the limit that is replaced")
		}
		names = append(names, name)
	})
	return names
}
