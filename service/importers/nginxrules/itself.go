package nginxrules

import (
	"cmp"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// An address is where requests are handed on to. The path of a unix socket stands as its port, too.
type address struct{ host, port string }

var (
	// settled matches the address at the beginning of a text, which no variable behind it can change.
	settled = regexp.MustCompile(`^(?:(\w+)://)?(?:unix:([^:$]+)(?::|$)|(\[[^\]$]*\]|[^][/?$:]+)(?::0*(\d+))?(?:[/?]|$))`)
	// refused matches what is then no address, whatever follows: it lacks a scheme, host or port.
	refused = regexp.MustCompile(`^\w*://[^][/?$:]*(?::\d*)?[/?]`)
	// slashed matches what directives may make of $uri so that it begins with a slash, or that does not become it.
	slashed  = regexp.MustCompile(`^(/|@|=|https?:|\$\{?(scheme|request_uri|uri|document_uri)\b)`)
	captured = regexp.MustCompile(`\(\?P?[<'](\w+)`)
	// foreign matches the variables that clients and servers write, whatever directives do.
	foreign = regexp.MustCompile(`^(args|limit_rate|((arg|http|cookie|sent|proxy_protocol)_|upstream_(http|trailer|cookie)_).*)$`)
	// numbers matches what may be an address of this machine in another spelling.
	numbers = regexp.MustCompile(`^(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+))*$`)
)

// A telling is what a configuration says of where passes lead.
type telling struct {
	values map[string][]string  // of variables, with braces; one that others may write has the value $
	named  map[string][]address // the servers of upstreams
	bare   bool                 // $uri may begin without a slash
}

// braced returns a text in lower case, with braces around its variables: none takes in what follows it.
func braced(text string) string { return strings.ToLower(variable.ReplaceAllString(text, "$${${1}}")) }

func told(all []Directive) *telling {
	t := &telling{values: map[string][]string{"scheme": {"http", "https"}}, named: make(map[string][]address)}
	value := func(name, text string) {
		name = strings.ToLower(strings.TrimPrefix(name, "$"))
		t.values[name] = append(t.values[name], braced(text))
	}
	each(all, func(d *Directive) {
		first, texts := slices.Concat(d.Args, []string{""})[0], slices.Clone(d.Args)
		for _, in := range d.Block {
			switch {
			case d.Name == "map" || d.Name == "geo" || d.Name == "split_clients":
				value(d.last(), in.last())
				texts = append(texts, in.Name)
			case d.Name == "upstream" && in.Name == "server" && len(in.Args) > 0:
				to, _ := t.addresses(braced(in.Args[0]), 0)
				t.named[strings.ToLower(d.last())] = append(t.named[strings.ToLower(d.last())], to...)
			}
		}
		switch {
		case d.Name == "set":
			value(first, d.last())
		case strings.HasPrefix(first, "$") && (strings.HasPrefix(d.Name, "set_") || strings.HasSuffix(d.Name, "_set") || d.Name == "js_var"):
			value(first, "$")
		case d.Name == "rewrite" && len(d.Args) > 1:
			t.bare = t.bare || !slashed.MatchString(d.Args[1])
		case importers.OneOf(d.Name, "try_files auth_request mirror"):
			t.bare = t.bare || slices.ContainsFunc(d.Args, func(to string) bool { return to != "off" && !slashed.MatchString(to) })
		}
		for _, m := range captured.FindAllStringSubmatch(strings.Join(texts, " "), -1) {
			value(m[1], "$")
		}
	})
	return t
}

// addresses returns the addresses that a text with braces may stand for, by the values that the configuration gives
// its variables, or by none. ok is false if others may choose a part of them.
func (t *telling) addresses(text string, deep int) (all []address, ok bool) {
	if part := settled.FindStringSubmatch(text); part != nil {
		return t.at(part[1], part[2], part[3], part[4]), true
	}
	m := variable.FindStringSubmatchIndex(text)
	if m == nil || refused.MatchString(text) && !strings.Contains(text, "://unix:") {
		return nil, true
	}
	name := text[m[2]:m[3]]
	if name == "request_uri" || !t.bare && importers.OneOf(name, "uri document_uri") { // a slash, and what a client writes
		return t.addresses(text[:m[0]]+"/${1}"+text[m[1]:], deep+1)
	}
	values := t.values[name]
	if deep > deepest || len(values) == 0 || slices.Contains(values, "$") || foreign.MatchString(name) {
		return nil, false
	}
	for _, value := range append(values, "") { // where no directive has set it
		more, sure := t.addresses(text[:m[0]]+value+text[m[1]:], deep+1)
		if all = append(all, more...); !sure || len(all) > mostChoices {
			return nil, false
		}
	}
	return all, true
}

// at returns the addresses for one as it is written: those of an upstream, whose name has no port.
func (t *telling) at(scheme, socket, host, port string) []address {
	switch {
	case socket != "":
		return []address{{"unix", socket}}
	case port == "" && t.named[host] != nil:
		return t.named[host]
	}
	return []address{{strings.TrimSuffix(host, "."), cmp.Or(port, map[string]string{"https": "443", "grpcs": "443"}[scheme], "80")}}
}

// itself notes where requests are handed on to a server of the same configuration that has limits: they come in
// again, with the path, host, headers and address that this gives them.
func (c *converter) itself(all []Directive, servers []*server) {
	t := told(all)
	each(all, func(d *Directive) {
		if !strings.HasSuffix(d.Name, "_pass") {
			return
		}
		ways, sure := t.addresses(braced(d.last()), 0)
		for _, s := range servers {
			into := func(a address) bool {
				return a.here(servers) && (s.hears(a.port) || slices.ContainsFunc(c.streams, func(o *server) bool { return o.hears(a.port) }))
			}
			if uses(s.root) && (!sure || slices.ContainsFunc(ways, into)) {
				c.lose(d, "the limits at %s are NOT KEPT for what %s %s may hand on to this nginx: rules count a request once, as it comes in", s.at.where(), d.Name, d.last())
				return
			}
		}
		for _, s := range servers {
			if uses(s.root) && slices.ContainsFunc(ways, func(a address) bool { return s.maybe(a) }) {
				c.note(d, "if the address of %s %s is of this machine, the limits at %s do not hold for what comes in again by it", d.Name, d.last(), s.at.where())
				return
			}
		}
	})
}

// maybe reports whether an address may come to a server that listens at all addresses, of which the file does not say
// these are.
func (s *server) maybe(a address) bool {
	all := &server{ports: slices.DeleteFunc(slices.Clone(s.ports), func(own string) bool { return !strings.HasPrefix(own, ":") && !strings.HasPrefix(own, "[::]:") })}
	return ipOf(a.host).IsValid() && all.hears(a.port)
}

// listens reports whether a server listens at an address that the file has.
func (s *server) listens(ip netip.Addr) bool {
	return slices.ContainsFunc(s.ports, func(own string) bool { return ipOf(own[:strings.LastIndexByte(own, ':')]) == ip })
}

// ipOf returns the address in a text, in its one spelling; the zero Addr for a name.
func ipOf(text string) netip.Addr {
	ip, _ := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap()
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
		return port != "" && path.Clean(own) == path.Clean(port) || cmp.Or(err, err2, err3) == nil && from <= at && at <= to
	})
}

// here reports whether a host may be this nginx. One that is not of this machine, and no name or address of a server,
// is taken for another.
func (a address) here(servers []*server) bool {
	if ip := ipOf(a.host); ip.IsValid() {
		return ip.IsLoopback() || ip.IsUnspecified() || slices.ContainsFunc(servers, func(s *server) bool { return s.listens(ip) })
	}
	return importers.OneOf(a.host, "unix localhost* ip6-localhost ip6-loopback") || strings.HasSuffix(a.host, ".localhost") || numbers.MatchString(a.host) ||
		slices.ContainsFunc(servers, func(s *server) bool {
			return s.lost != "" ||
				slices.ContainsFunc(s.ports, func(own string) bool { return strings.HasPrefix(own, a.host+":") }) ||
				slices.ContainsFunc(s.hosts, func(name string) bool {
					return name != "*" && importers.Common(strings.Split(name, ""), strings.Split(a.host, ""), "*", strings.EqualFold)
				})
		})
}

// again reports whether a pass may lead to ingress-nginx: a name of a service of Kubernetes is none of its hosts.
func again(pass string) bool {
	ways, sure := told(nil).addresses(braced(pass), 0)
	return !sure || slices.ContainsFunc(ways, func(a address) bool {
		return importers.OneOf(a.port, "80 443") && (strings.Contains(a.host, ".") && !strings.Contains(a.host, ".svc") || strings.Contains(a.host, "ingress") || a.here(nil))
	})
}
