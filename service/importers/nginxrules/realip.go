package nginxrules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

var plainHeader = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// A realIP says which proxies nginx trusts to name their clients, and in which header.
type realIP struct {
	from      []string
	header    string
	recursive bool
	at        *Directive
}

// realIP reads the real_ip directives of a block. Where it has none, outer counts.
func (c *converter) realIP(block []Directive, outer realIP) realIP {
	now := outer
	var own []string
	for i := range block {
		d := &block[i]
		if len(d.Args) != 1 {
			continue
		}
		switch d.Name {
		case "set_real_ip_from":
			p, err := importers.PrefixOf(d.Args[0])
			switch {
			case d.Args[0] == "unix:":
				c.note(d, "set_real_ip_from unix: is left out: stint has no such peers")
			case err != nil || p.Addr().Is4In6():
				c.lose(d, "set_real_ip_from %s is NOT KEPT: trusted_proxies are addresses and ranges", d.Args[0])
			default:
				now.at = d
				own = append(own, p.String())
			}
		case "real_ip_header":
			now.header = d.Args[0]
			if now.header == "proxy_protocol" || strings.EqualFold(now.header, "Forwarded") || !plainHeader.MatchString(now.header) {
				c.lose(d, "real_ip_header %s is NOT KEPT: stint reads no address there, so that all clients of a proxy count as one", now.header)
				now.header = ""
			}
		case "real_ip_recursive":
			now.recursive = d.Args[0] == "on"
		}
	}
	if own != nil {
		now.from = own
	}
	return now
}

// last reports whether the last address of a list is the client, whoever has it.
func (r *realIP) last() bool {
	return r.from != nil && !r.recursive && strings.EqualFold(r.header, "X-Forwarded-For")
}

// realIPs takes the realIP of the first server with limits, and notes where others differ.
func (c *converter) realIPs(outer realIP, all []*server) {
	c.real = outer
	first := true
	for _, s := range all {
		if !uses(s.root) {
			continue
		}
		one := c.realIP(s.at.Block, outer)
		same := slices.Equal(one.from, c.real.from) && strings.EqualFold(one.header, c.real.header) && one.last() == c.real.last()
		switch {
		case first:
			c.real, first = one, false
		case !same:
			c.lose(s.at, "the addresses of clients come from other proxies or another header here: NOT KEPT, the rules have one for all")
		}
		for _, l := range s.root.below {
			if within(l.at.Block, "set_real_ip_from") || within(l.at.Block, "real_ip_header") {
				c.lose(l.at, "set_real_ip_from and real_ip_header of a location are NOT KEPT: the rules have one for all")
			}
		}
	}
	if c.real.last() {
		c.lose(c.real.at, "real_ip_recursive off is NOT KEPT: the client is the last address of X-Forwarded-For there, here the last that is of no trusted proxy. A client whose address is in trusted_proxies chooses its own: list your proxies alone")
		c.real.from = slices.DeleteFunc(slices.Clone(c.real.from), func(p string) bool { return strings.HasSuffix(p, "/0") })
	}
}
