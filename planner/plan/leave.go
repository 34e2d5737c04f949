package plan

import (
	"net/netip"
	"strings"
)

// A leave is a client, or a range of addresses, that has no say in the choice. The proposed rule
// lets an exempt one through; an ignored one is held to the rule.
type leave struct {
	text   string
	prefix netip.Prefix // zero if the leave is a name
	exempt bool
	met    int // how many clients it applied to
}

// leaves are all leaves of the options.
type leaves []leave

// newLeaves reads the leaves. A text is read as a range of addresses only if the key is an address.
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

// prefixOf returns the range of addresses that a text names. A single address is a range of one. It
// returns the zero prefix for other text.
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

// find returns the leave that applies to a client, or nil.
func (all leaves) find(q *extraction, key string) *leave {
	if len(all) == 0 {
		return nil
	}
	name := q.name(key)
	if q.routed >= 0 { // the client's address
		name = q.values(key)[0]
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

// unmet returns the leaves that applied to no client.
func (all leaves) unmet() (names []string) {
	for _, l := range all {
		if l.met == 0 {
			names = append(names, l.text)
		}
	}
	return names
}

// exempt returns the exempt leaves that applied to a client. A name that no client has may be
// misspelled, and an override for it would let anybody through who sends it.
func (all leaves) exempt() (names []string) {
	for _, l := range all {
		if l.exempt && l.met > 0 {
			names = append(names, l.text)
		}
	}
	return names
}

// overrides writes the overrides of a rule that let exempt clients pass.
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

// meets writes the condition that matches the client with a name.
func (o *Options) meets(key string) string {
	values := []string{key}
	if len(o.Key) > 1 {
		values = strings.SplitN(key, " ", len(o.Key))
	}
	var all []string
	for i, attribute := range o.Key[:min(len(o.Key), len(values))] {
		want := quoteYAML(strings.NewReplacer(`\`, `\\`, "*", `\*`).Replace(values[i]))
		if values[i] == missing {
			want = "false"
		}
		all = append(all, attribute+": "+want)
	}
	return strings.Join(all, ", ")
}
