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

// An address is where requests are handed on to. The path of a unix socket stands as its port, too; a port that
// variables make is "".
type address struct{ host, port string }

// leading matches the address at the beginning of what a pass, an upstream's server or a variable names.
var leading = regexp.MustCompile(`(?i)^(?:(https|grpcs|[\w$]+)://)?(?:unix:([^:]*)|(\[[^\]]*\]|[^:/]*)(:?)(\d*))`)

var (
	untilPath = regexp.MustCompile(`^(?:[^/]*://)?(?:unix:.*|[^/?]*)`)
	captured  = regexp.MustCompile(`\(\?P?[<'](\w+)`)
	// numbers matches what may be an address of this machine in another spelling.
	numbers = regexp.MustCompile(`^(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+))*$`)
)

// addressOf reads an address. A number alone may be the port of any.
func addressOf(text string) address {
	part := leading.FindStringSubmatch(strings.ToLower(variable.ReplaceAllString(text, "$$")))
	scheme, socket, host, port := part[1], part[2], part[3], strings.TrimLeft(part[5], "0")
	_, err := strconv.Atoi(host)
	switch own := strings.TrimRight(host, "$"); {
	case socket != "":
		return address{"unix", socket}
	case err == nil && port == "":
		return address{"$", host}
	case port != "" || part[4] != "" || own == "":
		return address{host, port}
	default: // variables that follow it are its path
		return address{own, cmp.Or(map[string]string{"https": "443", "grpcs": "443"}[scheme], "80")}
	}
}

// A telling is what a configuration says of where passes lead.
type telling struct {
	values map[string][]string  // of variables; one that others may write has the value $
	named  map[string][]address // the servers of upstreams
	inPath []string             // the variables that begin with a slash
}

func told(all []Directive) *telling {
	t := &telling{map[string][]string{"scheme": {"http", "https"}}, make(map[string][]address), []string{"request_uri", "uri", "document_uri"}}
	value := func(name, text string) {
		name = strings.ToLower(strings.TrimPrefix(name, "$"))
		t.values[name] = append(t.values[name], text)
	}
	each(all, func(d *Directive) {
		texts := slices.Clone(d.Args)
		for _, in := range d.Block {
			switch {
			case d.Name == "map" || d.Name == "geo" || d.Name == "split_clients":
				value(d.last(), in.last())
				texts = append(texts, in.Name)
			case d.Name == "upstream" && in.Name == "server" && len(in.Args) > 0:
				t.named[strings.ToLower(d.last())] = append(t.named[strings.ToLower(d.last())], addressOf(in.Args[0]))
			}
		}
		switch {
		case d.Name == "set" && len(d.Args) > 0:
			value(d.Args[0], d.last())
		case strings.HasSuffix(d.Name, "_set") && len(d.Args) > 0:
			value(d.Args[0], "$")
		case d.Name == "rewrite" && len(d.Args) > 1 && !strings.HasPrefix(d.Args[1], "/"):
			t.inPath = t.inPath[:1]
		}
		for _, m := range captured.FindAllStringSubmatch(strings.Join(texts, " "), -1) {
			value(m[1], "$")
		}
	})
	return t
}

// addresses returns the addresses that a text may stand for, by the values that the configuration gives its variables.
// ok is false if others may choose a part of them.
func (t *telling) addresses(text string, deep int) (all []address, ok bool) {
	text = untilPath.FindString(text)
	m := variable.FindStringSubmatchIndex(text)
	if m == nil {
		a := addressOf(text)
		if of := t.named[a.host]; of != nil { // an upstream's name is none of a server
			return of, !strings.Contains(text, "$")
		}
		return []address{a}, !strings.Contains(text, "$")
	}
	name := strings.ToLower(text[m[2]:m[3]])
	if slices.Contains(t.inPath, name) && m[0] > 0 {
		return t.addresses(text[:m[0]], deep+1)
	}
	if deep > deepest || t.values[name] == nil {
		return nil, false
	}
	ok = true
	for _, value := range t.values[name] {
		more, sure := t.addresses(text[:m[0]]+value+text[m[1]:], deep+1)
		if all, ok = append(all, more...), ok && sure; !ok || len(all) > mostChoices {
			return nil, false
		}
	}
	return all, true
}

// itself notes where requests are handed on to a server of the same configuration that has limits: they come in
// again, with the path, host, headers and address that this gives them.
func (c *converter) itself(all []Directive, servers []*server) {
	t := told(all)
	each(all, func(d *Directive) {
		if !strings.HasSuffix(d.Name, "_pass") {
			return
		}
		ways, sure := t.addresses(d.last(), 0)
		for _, s := range servers {
			if uses(s.root) && (!sure || slices.ContainsFunc(ways, func(a address) bool { return s.hears(a.port) && a.here(servers) })) {
				c.lose(d, "the limits at %s are NOT KEPT for what %s %s hands on to this nginx: rules count a request once, as it comes in", s.at.where(), d.Name, d.last())
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
	_, err := netip.ParseAddr(strings.Trim(a.host, "[]"))
	all := &server{ports: slices.DeleteFunc(slices.Clone(s.ports), func(own string) bool { return !strings.HasPrefix(own, ":") && !strings.HasPrefix(own, "[::]:") })}
	return err == nil && all.hears(a.port)
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
	ip, err := netip.ParseAddr(strings.Trim(a.host, "[]"))
	return importers.OneOf(a.host, "unix localhost") || strings.Contains(a.host, "$") || err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified()) ||
		err != nil && numbers.MatchString(a.host) ||
		slices.ContainsFunc(servers, func(s *server) bool {
			return slices.ContainsFunc(s.ports, func(own string) bool { return strings.HasPrefix(own, a.host+":") }) ||
				slices.ContainsFunc(s.hosts, func(name string) bool {
					return name != "*" && importers.Common(strings.Split(name, ""), strings.Split(a.host, ""), "*", strings.EqualFold)
				})
		})
}

// again reports whether a pass may lead to ingress-nginx: a name of a service of Kubernetes is none of its hosts.
func again(pass string) bool {
	a := addressOf(pass)
	return strings.Contains(untilPath.FindString(strings.ReplaceAll(pass, "$request_uri", "/")), "$") || importers.OneOf(a.port, "80 443") && (strings.Contains(a.host, ".") && !strings.Contains(a.host, ".svc") || strings.Contains(a.host, "ingress")) ||
		(importers.OneOf(a.port, "80 443") || a.port == "") && a.here(nil)
}
