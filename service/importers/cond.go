package importers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
)

// A Cond is a condition on one attribute of a request.
type Cond struct {
	Attribute string
	Values    []string // any of these patterns
	Set       bool     // without values: whether the attribute must be present or missing
	Wide      bool     // it takes more requests than the condition that it was made of
	Less      []string // if it is wide: values that take no more requests; nil if there are none
	Spelled   bool     // the imported condition ignored case; this one takes Values as written
	NotZero   bool     // the value "0" counts as missing; a rule says that by [Zeros]
}

// Surely returns conditions that take no more requests than the imported ones. ok is false if
// rules cannot express them.
func Surely(all []Cond) (less []Cond, ok bool) {
	less = slices.Clone(all)
	for i := range less {
		if c := &less[i]; c.Wide {
			if c.Values, c.Wide = c.Less, false; len(c.Values) == 0 {
				return nil, false
			}
		}
	}
	return less, true
}

// Zeros returns what a rule must exclude, since a condition with NotZero takes the value "0"
// as it stands in a rule: one list of conditions for each.
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

// Exact reports whether the values stand for themselves, and are no patterns.
func (c *Cond) Exact() bool {
	return c.Attribute != "path" && !slices.ContainsFunc(c.Values, func(v string) bool { return strings.ContainsAny(v, `*\`) })
}

// literal reports whether each value is a path without wildcards.
func (c *Cond) literal() bool {
	return c.Attribute == "path" && c.Values != nil && !slices.ContainsFunc(c.Values, func(v string) bool { return strings.ContainsAny(v, `*\\`) })
}

// Apart reports whether no request meets both conditions.
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

// sameValue reports whether a request may match both of two values of an attribute.
func sameValue(attribute, v, w string) bool {
	if attribute == "ip" {
		a, errA := PrefixOf(v)
		b, errB := PrefixOf(w)
		return errA != nil || errB != nil || a.Overlaps(b)
	}
	if strings.Contains(v+w, `\`) {
		return true // escapes are not compared: they may match the same request
	}
	if strings.Contains(v+w, "*") {
		return Common(strings.Split(v, ""), strings.Split(w, ""), "*", strings.EqualFold)
	}
	return v == w || attribute == "method" && v+w == "GETHEAD" || attribute == "method" && v+w == "HEADGET" // rules take HEAD for GET
}

// PrefixOf reads an address or a range of addresses, and masks the range.
func PrefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// AllApart reports whether no request meets all conditions of both lists.
func AllApart(a, b []Cond) bool {
	return slices.ContainsFunc(a, func(x Cond) bool {
		return slices.ContainsFunc(b, func(y Cond) bool { return x.Apart(&y) })
	})
}

// Both returns the conditions of requests that meet both lists; ok is false if no rule has them.
func Both(a, b []Cond) (all []Cond, ok bool) {
	all = slices.Clone(a)
	for _, y := range b {
		i := slices.IndexFunc(all, func(x Cond) bool { return x.Attribute == y.Attribute })
		if i >= 0 {
			y.Spelled, y.NotZero = y.Spelled || all[i].Spelled, y.NotZero || all[i].NotZero
			all[i].Spelled, all[i].NotZero = y.Spelled, y.NotZero
			if y.Values != nil && all[i].Values != nil && (y.Wide || all[i].Wide) && !slices.Equal(y.Less, all[i].Less) {
				y.Wide, y.Less, all[i].Wide, all[i].Less = true, nil, true, nil
			}
		}
		switch {
		case i < 0:
			all = append(all, y)
		case all[i].Text() == y.Text():
		case y.Values == nil && y.Set && all[i].Values != nil: // an attribute with a value is present
		case all[i].Values == nil && all[i].Set && y.Values != nil:
			all[i] = y
		case y.literal() || all[i].literal():
			x := all[i]
			if !y.literal() {
				x, y = y, x
			}
			y.Values = slices.DeleteFunc(slices.Clone(y.Values), func(v string) bool {
				return x.Apart(&Cond{Attribute: y.Attribute, Values: []string{v}})
			})
			y.Wide = x.Wide || y.Wide || !Within([]string{anyOf(y.Values, pathExpr)}, anyOf(x.Values, pathExpr))
			y.Less = nil
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

// TakesHead reports whether conditions name GET without HEAD: rules let GET match HEAD too.
func TakesHead(when []Cond) bool {
	return slices.ContainsFunc(when, func(c Cond) bool {
		return c.Attribute == "method" && slices.Contains(c.Values, "GET") && !slices.Contains(c.Values, "HEAD")
	})
}

// General leaves out the lists of conditions that a more general list includes.
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

// NoLooser reports whether a limit lets no more pass than another does, at once and over time.
func NoLooser(limit, than string) bool {
	a, errA := stint.Parse(limit)
	b, errB := stint.Parse(than)
	if errA != nil || errB != nil || a.InFlight() != b.InFlight() || a.Capacity() > b.Capacity() {
		return false
	}
	const digits = "0123456789"
	return a.Count() <= b.Count() && strings.TrimLeft(limit, digits) == strings.TrimLeft(than, digits) ||
		a.Burst() > 0 && b.Burst() > 0 && float64(a.Count())*float64(b.Period()) <= float64(b.Count())*float64(a.Period())
}
