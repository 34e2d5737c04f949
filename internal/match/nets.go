package match

import (
	"net/netip"
	"strings"
)

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

// ParseNet reads an address or a range; the bits behind its length must be 0. If
// it is none, the reason and a hint say why and what would be right.
func ParseNet(text string) (p netip.Prefix, reason, hint string) {
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

// holdsAll reports whether each range of o is in a range of the set.
func (s *netSet) holdsAll(o *netSet) bool {
	for p := range o.nets {
		if !s.holds(p) {
			return false
		}
	}
	return true
}

// holds reports whether one range of the set contains p.
func (s *netSet) holds(p netip.Prefix) bool {
	for _, n := range s.bits[family(p.Addr())] {
		if n > p.Bits() {
			break
		}
		wide, err := p.Addr().Prefix(n)
		if _, ok := s.nets[wide]; err == nil && ok {
			return true
		}
	}
	return false
}
