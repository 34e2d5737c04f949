package plan

import (
	"net/netip"
	"strings"
)

// A leave is a client, or a range of addresses, that stands outside of what is
// asked: an exempt one is let through by the proposed rule, an ignored one has
// no say in the choice.
type leave struct {
	text   string
	prefix netip.Prefix // zero for a name
	exempt bool
	met    int // clients
}

// leaves are all that were named.
type leaves []leave

// newLeaves reads the names. A range of addresses is one if the key is an
// address.
func newLeaves(o *Options) (all leaves) {
	for _, list := range []struct {
		keys   []string
		exempt bool
	}{{o.Exempt, true}, {o.IgnoreKeys, false}} {
		for _, text := range list.keys {
			one := leave{text: text, exempt: list.exempt}
			if o.keyText() == "ip" || o.routed {
				one.prefix = prefixOf(text)
			}
			all = append(all, one)
		}
	}
	return all
}

// prefixOf returns the range that a text is, an address being one of itself;
// zero if it is none.
func prefixOf(text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked()
	}
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		if a.Is6() {
			return netip.PrefixFrom(a.WithZone(""), 64).Masked()
		}
		return netip.PrefixFrom(a, a.BitLen())
	}
	return netip.Prefix{}
}

// find returns the leave that a client is in, or nil.
func (all leaves) find(q *extraction, key string) *leave {
	if len(all) == 0 {
		return nil
	}
	name := q.name(key)
	if q.routed >= 0 { // its address
		name = q.parts(key)[0]
	}
	own := prefixOf(name)
	for i := range all {
		l := &all[i]
		within := l.prefix.IsValid() && own.IsValid() && l.prefix.Bits() <= own.Bits() && l.prefix.Contains(own.Addr())
		if l.text == name || within {
			l.met++
			return l
		}
	}
	return nil
}

// unmet returns those whose clients sent nothing.
func (all leaves) unmet() (names []string) {
	for _, l := range all {
		if l.met == 0 {
			names = append(names, l.text)
		}
	}
	return names
}

// exempt returns the exempt whose clients sent something. A name that no client has
// may be misspelled, and would be a door that stands open.
func (all leaves) exempt() (names []string) {
	for _, l := range all {
		if l.exempt && l.met > 0 {
			names = append(names, l.text)
		}
	}
	return names
}

// overrides returns the overrides of a rule that let the exempt pass.
func (o *Options) overrides(exempt []string) string {
	var b strings.Builder
	for i, key := range exempt {
		if i == 0 {
			b.WriteString("    overrides:\n")
		}
		b.WriteString("      - {when: {" + o.meets(key) + "}, unlimited: true}\n")
	}
	return b.String()
}

// meets returns the condition that a client of this name meets.
func (o *Options) meets(key string) string {
	parts := []string{key}
	if len(o.Key) > 1 {
		parts = strings.SplitN(key, " ", len(o.Key))
	}
	var all []string
	for i, attribute := range o.Key[:min(len(o.Key), len(parts))] {
		want := quoteYAML(strings.NewReplacer(`\`, `\\`, "*", `\*`).Replace(parts[i]))
		if parts[i] == missing {
			want = "false"
		}
		all = append(all, attribute+": "+want)
	}
	return strings.Join(all, ", ")
}
