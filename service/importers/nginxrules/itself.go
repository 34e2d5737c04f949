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
// variables make is "", and one that clients choose is *.
type address struct{ host, port string }

// leading matches the address at the beginning of what a pass, an upstream's server or a variable names.
var leading = regexp.MustCompile(`(?i)^(?:(https|grpcs|[\w$]+)://)?(?:unix:([^:]*)|(\[[^\]]*\]|[^:/]*)(:?)(\d*))`)

// What the words of clients are: variables, and captures by name. A part of a text that may be an address of this
// machine in other spellings has only numbers.
var (
	authority = regexp.MustCompile(`(?i)^(?:(\$?\w+)://)?(\[[^\]]*\]|[^:/]*)(:?)(.*)`)
	ofClients = regexp.MustCompile(`^(\d|host$|args$|(http|arg|cookie)_)`)
	captured  = regexp.MustCompile(`\(\?P?[<'](\w+)`)
	numbers   = regexp.MustCompile(`^(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+))*$`)
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

// words are the values that a configuration gives variables, and the names of its captures: false are those of
// server_name, which have no port.
type words struct {
	values   map[string][]string
	captures map[string]bool
}

// chosen returns the addresses that a text may stand for by the words of a client. One whose port these are has the port *.
func (w *words) chosen(text, scheme string, deep int) (all []address) {
	part := authority.FindStringSubmatch(text)
	scheme = strings.ToLower(cmp.Or(part[1], scheme))
	host, of := strings.ToLower(part[2]), part[2]
	if part[3] != "" {
		of = part[4]
	}
	m := variable.FindStringSubmatchIndex(of)
	if m == nil || m[0] > 0 || deep > deepest || part[3] == "" && m[1] < len(of) && of[m[1]] != '$' {
		return nil
	}
	name := strings.ToLower(of[m[2]:m[3]])
	values, known := w.values[name]
	w.values[name] = nil // while they are read: they may name one another
	for _, value := range values {
		all = append(all, w.chosen(value, scheme, deep+1)...)
	}
	if delete(w.values, name); known {
		w.values[name] = values
	}
	port, is := w.captures[name]
	switch {
	case part[3] != "" && (!known || len(all) > 0):
		return []address{{host, "*"}}
	case known || !is && !ofClients.MatchString(name):
		return all
	case port || !is && name != "host":
		return []address{{"$", "*"}}
	}
	return []address{{"$", cmp.Or(map[string]string{"https": "443", "grpcs": "443"}[scheme], "80")}}
}

// told reads what a configuration says of variables, and the servers of its upstreams.
func told(all []Directive) (w *words, named map[string][]address) {
	w, named = &words{make(map[string][]string), make(map[string]bool)}, make(map[string][]address)
	value := func(name, text string) {
		name = strings.ToLower(strings.TrimPrefix(name, "$"))
		w.values[name] = append(w.values[name], text)
	}
	each(all, func(d *Directive) {
		texts := d.Args
		for _, in := range d.Block {
			if d.Name == "map" || d.Name == "geo" || d.Name == "split_clients" {
				value(d.last(), in.last())
				texts = append(texts[:len(texts):len(texts)], in.Name)
			} else if d.Name == "upstream" && in.Name == "server" && len(in.Args) > 0 {
				named[strings.ToLower(d.last())] = append(named[strings.ToLower(d.last())], addressOf(in.Args[0]))
			}
		}
		if d.Name == "set" && len(d.Args) > 0 {
			value(d.Args[0], d.last())
		}
		for _, m := range captured.FindAllStringSubmatch(strings.Join(texts, " "), -1) {
			w.captures[strings.ToLower(m[1])] = w.captures[strings.ToLower(m[1])] || d.Name != "server_name"
		}
	})
	return w, named
}

// itself notes where requests are handed on to a server of the same configuration that has limits: they come in
// again, with the path, host, headers and address that this gives them.
func (c *converter) itself(all []Directive, servers []*server) {
	w, named := told(all)
	var some []address
	for _, texts := range w.values {
		for _, text := range texts {
			if a := addressOf(text); named[a.host] == nil {
				some = append(some, a)
			}
		}
	}
	for _, of := range named {
		some = append(some, of...)
	}
	each(all, func(d *Directive) {
		if !strings.HasSuffix(d.Name, "_pass") {
			return
		}
		to := addressOf(d.last())
		ways := slices.Clone(named[to.host])
		if ways == nil { // the name of an upstream is none of a server
			ways = []address{to}
		}
		if strings.Contains(d.last(), "$") && to.port == "" {
			ways = append(ways, some...)
		}
		ways = append(ways, w.chosen(d.last(), "", 0)...)
		for _, s := range servers {
			if uses(s.root) && slices.ContainsFunc(ways, func(a address) bool {
				return (s.hears(a.port) || a.port == "" && strings.Contains(d.last(), "server_port")) && a.here(servers)
			}) {
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
		return port == "*" || port != "" && path.Clean(own) == path.Clean(port) || cmp.Or(err, err2, err3) == nil && from <= at && at <= to
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

// again reports whether an address may be that of ingress-nginx: a name of a service of Kubernetes is none of its hosts.
func (a address) again() bool {
	return importers.OneOf(a.port, "80 443") && (strings.Contains(a.host, ".") && !strings.Contains(a.host, ".svc") || strings.Contains(a.host, "ingress")) ||
		(importers.OneOf(a.port, "80 443") || a.port == "") && a.here(nil)
}
