package policy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// A field is how an attribute is read: some are brought to one form first.
type field uint8

const (
	plainField field = iota
	methodField
	hostField
	pathField
	ipField
)

// An attribute is the name of one, and how it is read.
type attribute struct {
	name  string
	field field
}

func attributeOf(name string) attribute {
	switch name {
	case "method":
		return attribute{"method", methodField}
	case "host":
		return attribute{"host", hostField}
	case "path":
		return attribute{"path", pathField}
	case "ip":
		return attribute{"ip", ipField}
	}
	return attribute{name, plainField}
}

// A request is attributes on their way through the rules; what must be brought
// to one form is, once.
type request struct {
	attrs Attributes
	path  string     // clean
	host  string     // clean
	ip    netip.Addr // unmapped, without a zone
	ipRaw string

	ipKnown          bool
	hasPath, hasHost bool
}

// value returns an attribute in its one form, and whether the request has it.
// An address that cannot be read is none.
func (q *request) value(a attribute) (string, bool) {
	switch a.field {
	case plainField:
		return q.attrs.Attribute(a.name)
	case pathField:
		return q.path, q.hasPath
	case hostField:
		return q.host, q.hasHost
	case methodField:
		v, ok := q.attrs.Attribute(a.name)
		return strings.ToUpper(v), ok
	}
	addr, ok := q.addr()
	if ok && addr.Is4() && len(q.ipRaw) <= len("255.255.255.255") {
		return q.ipRaw, true // there is but one way to write it
	}
	if !ok {
		return "", false
	}
	return addr.String(), true
}

// addr returns the client's address.
func (q *request) addr() (netip.Addr, bool) {
	if !q.ipKnown {
		q.ipKnown = true
		q.ipRaw, _ = q.attrs.Attribute("ip")
		if addr, err := netip.ParseAddr(q.ipRaw); err == nil {
			if q.ip = addr.WithZone("").Unmap(); q.ip != addr {
				q.ipRaw = q.ip.String()
			}
		}
	}
	return q.ip, q.ip.IsValid()
}

// A condition is what one attribute must be: any of its values.
//
// It is kept small: a request that meets one of thousands of rules finds none of
// it in the processor's cache.
type condition struct {
	attribute
	present bool     // must be there and not empty, whatever it is
	absent  bool     // must not be there, or be empty
	few     []string // whole values, if there are few
	many    map[string]struct{}
	globs   []glob
	paths   []pathPattern
	nets    *netSet
	text    string // as written
}

// fewValues is up to how many values are compared one by one.
const fewValues = 8

// addExact adds a whole value.
func (c *condition) addExact(v string) {
	if c.many != nil {
		c.many[v] = struct{}{}
		return
	}
	if slices.Contains(c.few, v) {
		return
	}
	if c.few = append(c.few, v); len(c.few) > fewValues {
		c.many = make(map[string]struct{})
		for _, v := range c.few {
			c.many[v] = struct{}{}
		}
		c.few = nil
	}
}

// isExact reports whether v is one of the whole values.
func (c *condition) isExact(v string) bool {
	if c.many != nil {
		_, ok := c.many[v]
		return ok
	}
	return slices.Contains(c.few, v)
}

// exact returns the whole values.
func (c *condition) exact() iter.Seq[string] {
	if c.many != nil {
		return maps.Keys(c.many)
	}
	return slices.Values(c.few)
}

// exacts returns how many whole values there are.
func (c *condition) exacts() int { return max(len(c.few), len(c.many)) }

func (c *condition) match(q *request) bool {
	if c.field == ipField && !c.present && !c.absent {
		addr, ok := q.addr()
		return ok && c.nets != nil && c.nets.has(addr)
	}
	v, ok := q.value(c.attribute)
	switch {
	case c.present:
		return ok && v != ""
	case c.absent:
		return !ok || v == ""
	case !ok:
		return false
	}
	if c.field == pathField {
		for i := range c.paths {
			if c.paths[i].match(v) {
				return true
			}
		}
		return false
	}
	if c.isExact(v) {
		return true
	}
	for _, g := range c.globs {
		if g.match(v) {
			return true
		}
	}
	return false
}

// A conjunction is conditions that must all hold.
type conjunction []condition

// miss returns the first condition that does not hold, or nil.
func (c conjunction) miss(q *request) *condition {
	for i := range c {
		if !c[i].match(q) {
			return &c[i]
		}
	}
	return nil
}

// anyOf reports whether one of the conjunctions holds.
func anyOf(all []conjunction, q *request) bool {
	for _, c := range all {
		if c.miss(q) == nil {
			return true
		}
	}
	return false
}

// A netSet is address ranges, found by their lengths.
type netSet struct {
	bits [2][]int // lengths there are, of IPv4 and IPv6
	nets map[netip.Prefix]struct{}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (s *netSet) add(p netip.Prefix) {
	if s.nets == nil {
		s.nets = make(map[netip.Prefix]struct{})
	}
	s.nets[p] = struct{}{}
	s.bits[family(p.Addr())] = insertSorted(s.bits[family(p.Addr())], p.Bits())
}

func (s *netSet) has(a netip.Addr) bool {
	for _, n := range s.bits[family(a)] {
		if p, err := a.Prefix(n); err == nil {
			if _, ok := s.nets[p]; ok {
				return true
			}
		}
	}
	return false
}

// parseNet reads an address or a range; the bits behind its length must be 0.
func parseNet(text string) (p netip.Prefix, reason, hint string) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return p, "no address", "such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), "", ""
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, "no address range", "such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
	case p.Addr().Is4In6():
		return p, "an IPv4 range written as IPv6", "addresses are unmapped first: write it as IPv4"
	case p != p.Masked():
		return p, "the address has bits behind the length of the range", "did you mean " + p.Masked().String() + "?"
	}
	return p, "", ""
}
