package nginxrules

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// An address is where requests are handed on to. The path of a unix socket stands as its port, too; a port that
// variables make is "".
type address struct{ host, port string }

// leading matches the address at the beginning of what a pass, an upstream's server or a variable names.
var leading = regexp.MustCompile(`(?i)^(?:(https|grpcs|[\w$]+)://)?(?:unix:([^:]*)|(\[[^\]]*\]|[^:/]*)(:?)(\d*))`)

// addressOf reads an address. A number alone may be the port of any.
func addressOf(text string) address {
	part := leading.FindStringSubmatch(strings.ToLower(variable.ReplaceAllString(text, "$$")))
	scheme, path, host, port := part[1], part[2], part[3], part[5]
	_, err := strconv.Atoi(host)
	switch own := strings.TrimRight(host, "$"); {
	case path != "":
		return address{"unix", path}
	case err == nil:
		return address{"$", host}
	case port != "" || part[4] != "" || own == "":
		return address{host, port}
	default: // variables that follow it are its path
		return address{own, cmp.Or(map[string]string{"https": "443", "grpcs": "443"}[scheme], "80")}
	}
}

// itself notes where requests are handed on to a server of the same configuration that has limits: they come in
// again, with the path, host, headers and address that this gives them.
func (c *converter) itself(all []Directive, servers []*server) {
	named := make(map[string][]address)
	var some []address
	each(all, func(d *Directive) {
		for _, in := range d.Block {
			if address := addressOf(in.last()); d.Name == "map" || d.Name == "geo" || d.Name == "split_clients" {
				some = append(some, address)
			} else if d.Name == "upstream" && in.Name == "server" && len(in.Args) > 0 {
				address = addressOf(in.Args[0])
				some, named[strings.ToLower(d.last())] = append(some, address), append(named[strings.ToLower(d.last())], address)
			}
		}
		if d.Name == "set" {
			some = append(some, addressOf(d.last()))
		}
	})
	each(all, func(d *Directive) {
		if !strings.HasSuffix(d.Name, "_pass") {
			return
		}
		to := addressOf(d.last())
		ways := append(named[to.host], to)
		if strings.Contains(d.last(), "$") && to.port == "" {
			ways = append(ways, some...)
		}
		for _, s := range servers {
			if uses(s.root) && slices.ContainsFunc(ways, func(a address) bool {
				return (s.hears(a.port) || a.port == "" && strings.Contains(d.last(), "server_port")) && a.here(servers)
			}) {
				c.lose(d, "the limits at %s are NOT KEPT for what %s %s hands on to this nginx: rules count a request once, as it comes in", s.at.where(), d.Name, d.last())
				return
			}
		}
	})
}

// each calls do for all directives, and those in their blocks.
func each(all []Directive, do func(*Directive)) {
	for i := range all {
		do(&all[i])
		each(all[i].Block, do)
	}
}

// hears reports whether a server listens on a port, or on a range with it.
func (s *server) hears(port string) bool {
	return slices.ContainsFunc(s.ports, func(own string) bool {
		own = strings.TrimSuffix(own[strings.LastIndexByte(own, ':')+1:], " quic")
		low, high, _ := strings.Cut(own, "-")
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		at, err3 := strconv.Atoi(port)
		return port != "" && own == port || cmp.Or(err, err2, err3) == nil && from <= at && at <= to
	})
}

// here reports whether a host may be this nginx. One that is not of this machine, and no name or address of a server,
// is taken for another.
func (a address) here(servers []*server) bool {
	ip, err := netip.ParseAddr(strings.Trim(a.host, "[]"))
	return importers.OneOf(a.host, "unix localhost") || strings.Contains(a.host, "$") || err == nil && (ip.IsLoopback() || ip.IsUnspecified()) ||
		slices.ContainsFunc(servers, func(s *server) bool {
			return slices.ContainsFunc(s.ports, func(own string) bool { return strings.HasPrefix(own, a.host+":") }) ||
				slices.ContainsFunc(s.hosts, func(name string) bool {
					return name != "*" && importers.Common(strings.Split(name, ""), strings.Split(a.host, ""), "*", strings.EqualFold)
				})
		})
}

// again reports whether an address may be that of ingress-nginx: a name of a service of Kubernetes is none of its hosts.
func (a address) again() bool {
	return importers.OneOf(a.port, "80 443") && (strings.Contains(a.host, ".") && !strings.Contains(a.host, ".svc") || strings.Contains(a.host, "ingress")) ||
		(importers.OneOf(a.port, "80 443") || a.port == "") && a.here(nil)
}
