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
	from   []string
	header string
	at     *Directive
}

// realIP reads the real_ip directives of a block. Where it has none, outer counts.
func (c *converter) realIP(block []Directive, outer realIP) realIP {
	now := outer
	var own []string
	recursive := false
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
			if now.header == "proxy_protocol" || !plainHeader.MatchString(now.header) {
				c.lose(d, "real_ip_header %s is NOT KEPT: stint reads addresses in headers, so that all clients of a proxy count as one", now.header)
				now.header = ""
			}
		case "real_ip_recursive":
			recursive = d.Args[0] == "on"
		}
	}
	if own != nil {
		now.from = own
		if !recursive && strings.EqualFold(now.header, "X-Forwarded-For") {
			c.note(now.at, "real_ip_recursive off: the address is the last of the list there; here the last that is of no trusted proxy")
		}
	}
	return now
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
		same := slices.Equal(one.from, c.real.from) && strings.EqualFold(one.header, c.real.header)
		switch {
		case first:
			c.real, first = one, false
		case !same:
			c.lose(s.at, "the addresses of clients come from other proxies or another header here: NOT KEPT, the rules have one for all")
		}
		for _, l := range s.root.below {
			if l.at.has("set_real_ip_from", "real_ip_header") {
				c.lose(l.at, "set_real_ip_from and real_ip_header of a location are NOT KEPT: the rules have one for all")
			}
		}
	}
}
