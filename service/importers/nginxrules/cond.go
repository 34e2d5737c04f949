package nginxrules

import (
	"net/netip"
	"slices"
	"strings"
)

// A cond is what an attribute of a request must be.
type cond struct {
	attribute string
	values    []string // any of these patterns
	set       bool     // without values: present, or else missing
}

// text is the cond in a rule.
func (c *cond) text() string {
	switch {
	case c.values != nil:
		return c.attribute + ": [" + list(c.values) + "]"
	case c.set:
		return c.attribute + ": true"
	}
	return c.attribute + ": false"
}

// exact reports whether the values are no patterns.
func (c *cond) exact() bool {
	return c.attribute != "path" && !slices.ContainsFunc(c.values, func(v string) bool { return strings.ContainsAny(v, `*\`) })
}

// apart reports whether no request holds to both.
func (c *cond) apart(o *cond) bool {
	switch {
	case c.attribute != o.attribute:
		return false
	case c.values == nil && o.values == nil:
		return c.set != o.set
	case c.values == nil || o.values == nil:
		return !c.set && !o.set
	case c.attribute == "path":
		return !meet(c.values, o.values)
	case !c.exact() || !o.exact():
		return false
	}
	return !slices.ContainsFunc(c.values, func(v string) bool {
		return slices.ContainsFunc(o.values, func(w string) bool { return sameValue(c.attribute, v, w) })
	})
}

// sameValue reports whether two values of an attribute have a request in common.
func sameValue(attribute, v, w string) bool {
	if attribute == "ip" {
		a, errA := prefixOf(v)
		b, errB := prefixOf(w)
		return errA != nil || errB != nil || a.Overlaps(b)
	}
	return v == w || attribute == "method" && v+w == "GETHEAD" || attribute == "method" && v+w == "HEADGET" // rules take HEAD for GET
}

// prefixOf reads an address, or a range of them whatever its last bits.
func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// allApart reports whether no request holds to all of both.
func allApart(a, b []cond) bool {
	return slices.ContainsFunc(a, func(x cond) bool {
		return slices.ContainsFunc(b, func(y cond) bool { return x.apart(&y) })
	})
}

// both returns the conditions of two lists. ok is false if a rule cannot have both.
func both(a, b []cond) (all []cond, ok bool) {
	all = slices.Clone(a)
	for _, y := range b {
		i := slices.IndexFunc(all, func(x cond) bool { return x.attribute == y.attribute })
		switch {
		case i < 0:
			all = append(all, y)
		case all[i].text() == y.text():
		case y.values == nil && y.set && all[i].values != nil: // a value is present
		case all[i].values == nil && all[i].set && y.values != nil:
			all[i] = y
		case !all[i].exact() || !y.exact() || all[i].values == nil || y.values == nil || y.attribute == "ip":
			return nil, false
		default:
			all[i].values = slices.DeleteFunc(slices.Clone(all[i].values), func(v string) bool { return !slices.Contains(y.values, v) })
			if len(all[i].values) == 0 {
				return nil, false
			}
		}
	}
	return all, true
}

// takesHead reports whether conditions name GET and not HEAD, which rules take for GET.
func takesHead(when []cond) bool {
	return slices.ContainsFunc(when, func(c cond) bool {
		return c.attribute == "method" && slices.Contains(c.values, "GET") && !slices.Contains(c.values, "HEAD")
	})
}
