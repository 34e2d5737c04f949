package importers

import (
	"net/netip"
	"slices"
	"strings"
)

// A Cond is what an attribute of a request must be.
type Cond struct {
	Attribute string
	Values    []string // any of these patterns
	Set       bool     // without values: present, or else missing
	Wide      bool     // it takes more than what it was made of
	Spelled   bool     // it takes the values as written alone: there upper and lower case are one
	NotZero   bool     // of those that are present, "0" is none; a rule says that with [Zeros]
}

// Zeros are the conditions of the requests that some conditions take as they stand in a
// rule, though a value of these is "0".
func Zeros(when []Cond) (all [][]Cond) {
	for i := range when {
		if when[i].NotZero {
			zero := slices.Clone(when)
			zero[i] = Cond{Attribute: when[i].Attribute, Values: []string{"0"}}
			all = append(all, zero)
		}
	}
	return all
}

// Exact reports whether the values are no patterns.
func (c *Cond) Exact() bool {
	return c.Attribute != "path" && !slices.ContainsFunc(c.Values, func(v string) bool { return strings.ContainsAny(v, `*\`) })
}

// literal reports whether each value is one path, as it stands.
func (c *Cond) literal() bool {
	return c.Attribute == "path" && c.Values != nil && !slices.ContainsFunc(c.Values, func(v string) bool { return strings.ContainsAny(v, `*\\`) })
}

// Apart reports whether no request holds to both.
func (c *Cond) Apart(o *Cond) bool {
	switch {
	case c.Attribute != o.Attribute:
		return false
	case c.Values == nil && o.Values == nil:
		return c.Set != o.Set
	case c.Values == nil || o.Values == nil:
		return !c.Set && !o.Set
	case c.Attribute == "path":
		return !Meet(c.Values, o.Values)
	}
	return !slices.ContainsFunc(c.Values, func(v string) bool {
		return slices.ContainsFunc(o.Values, func(w string) bool {
			return sameValue(c.Attribute, v, w) || (c.Spelled || o.Spelled) && strings.EqualFold(v, w)
		})
	})
}

// sameValue reports whether two values of an attribute have a request in common.
func sameValue(attribute, v, w string) bool {
	if attribute == "ip" {
		a, errA := PrefixOf(v)
		b, errB := PrefixOf(w)
		return errA != nil || errB != nil || a.Overlaps(b)
	}
	if strings.Contains(v+w, `\`) {
		return true // perhaps
	}
	if strings.Contains(v+w, "*") {
		return Common(strings.Split(v, ""), strings.Split(w, ""), "*", strings.EqualFold)
	}
	return v == w || attribute == "method" && v+w == "GETHEAD" || attribute == "method" && v+w == "HEADGET" // rules take HEAD for GET
}

// PrefixOf reads an address, or a range of them whatever its last bits.
func PrefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// AllApart reports whether no request holds to all of both.
func AllApart(a, b []Cond) bool {
	return slices.ContainsFunc(a, func(x Cond) bool {
		return slices.ContainsFunc(b, func(y Cond) bool { return x.Apart(&y) })
	})
}

// Both returns the conditions of two lists. ok is false if a rule cannot have both.
func Both(a, b []Cond) (all []Cond, ok bool) {
	all = slices.Clone(a)
	for _, y := range b {
		i := slices.IndexFunc(all, func(x Cond) bool { return x.Attribute == y.Attribute })
		if i >= 0 {
			y.Spelled, y.NotZero = y.Spelled || all[i].Spelled, y.NotZero || all[i].NotZero
			all[i].Spelled, all[i].NotZero = y.Spelled, y.NotZero
		}
		switch {
		case i < 0:
			all = append(all, y)
		case all[i].Text() == y.Text():
		case y.Values == nil && y.Set && all[i].Values != nil: // a value is present
		case all[i].Values == nil && all[i].Set && y.Values != nil:
			all[i] = y
		case y.literal() || all[i].literal():
			x := all[i]
			if !y.literal() {
				x, y = y, x
			}
			y.Wide, y.Values = x.Wide || y.Wide, slices.DeleteFunc(slices.Clone(y.Values), func(v string) bool {
				return x.Apart(&Cond{Attribute: y.Attribute, Values: []string{v}})
			})
			if all[i] = y; len(y.Values) == 0 {
				return nil, false
			}
		case !all[i].Exact() || !y.Exact() || all[i].Values == nil || y.Values == nil || y.Attribute == "ip":
			return nil, false
		default:
			all[i].Values = slices.DeleteFunc(slices.Clone(all[i].Values), func(v string) bool { return !slices.Contains(y.Values, v) })
			if len(all[i].Values) == 0 {
				return nil, false
			}
		}
	}
	return all, true
}

// TakesHead reports whether conditions name GET and not HEAD, which rules take for GET.
func TakesHead(when []Cond) bool {
	return slices.ContainsFunc(when, func(c Cond) bool {
		return c.Attribute == "method" && slices.Contains(c.Values, "GET") && !slices.Contains(c.Values, "HEAD")
	})
}

// General leaves out the conditions that others of them take in.
func General(all [][]Cond) (kept [][]Cond) {
	for i, u := range all {
		if !slices.ContainsFunc(slices.Concat(all[:i], all[i+1:]), func(o []Cond) bool {
			return len(o) < len(u) && !slices.ContainsFunc(o, func(x Cond) bool {
				return !slices.ContainsFunc(u, func(y Cond) bool { return x.Text() == y.Text() })
			})
		}) {
			kept = append(kept, u)
		}
	}
	return kept
}
