package nginxrules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A server is one, with the names for which requests come to it.
type server struct {
	at       *Directive
	hosts    []string // none is all that no other server takes
	lost     string   // a name that rules cannot have
	ports    []string
	listens  []string // with their addresses
	root     *location
	flagged  []string // ports of which it says to be the default
	fallback bool     // it takes what no other does
}

// host is a name of a server, with stars or not. nginx takes the dot at the end off
// the host of a request and not off this, so that a name with one has no requests.
var host = regexp.MustCompile(`^\.?[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// mostHost is how long such a name may be, in bytes, so that rules take it.
const mostHost = 250

// server reads the names and ports of a server.
func (c *converter) server(d *Directive) *server {
	s := &server{at: d}
	for i := range d.Block {
		one := &d.Block[i]
		switch {
		case one.Name == "listen" && len(one.Args) > 0:
			port := one.Args[0][strings.LastIndexByte(one.Args[0], ':')+1:]
			if _, err := importers.PrefixOf(port); err == nil || strings.HasSuffix(port, "]") { // an address without a port
				port = "80"
			}
			s.ports = append(s.ports, port)
			address := strings.TrimSuffix(one.Args[0], ":"+port)
			if address == port || address == "*" || address == "0.0.0.0" {
				address = ""
			}
			s.listens = append(s.listens, address+":"+port)
			if slices.Contains(one.Args, "default_server") || slices.Contains(one.Args, "default") {
				s.flagged = append(s.flagged, port)
			}
		case one.Name == "server_name":
			for _, name := range one.Args {
				some := c.names(one, name)
				if s.hosts = append(s.hosts, some...); some == nil && strings.HasPrefix(name, "~") {
					s.lost = name
				}
			}
		}
	}
	if len(s.ports) == 0 {
		s.ports, s.listens = []string{"80"}, []string{":80"}
	}
	return s
}

// conflicts takes from a server the names that servers before it have, wherever it
// listens: nginx ignores them.
func (c *converter) conflicts(s *server, before []*server) {
	s.hosts = slices.DeleteFunc(s.hosts, func(name string) bool {
		var first *server
		taken := !slices.ContainsFunc(s.listens, func(listen string) bool {
			i := slices.IndexFunc(before, func(o *server) bool {
				return slices.Contains(o.listens, listen) && slices.ContainsFunc(o.hosts, func(h string) bool { return strings.EqualFold(h, name) })
			})
			if i >= 0 {
				first = before[i]
			}
			return i < 0
		})
		if taken {
			c.note(s.at, "server_name %s is left out: the server at %s has it before, so that nginx ignores it here", name, first.at.where())
		}
		return taken
	})
}

// names are those of a server_name that rules have.
func (c *converter) names(d *Directive, name string) []string {
	if expr, ok := strings.CutPrefix(name, "~"); ok {
		values := expressed("host", expr, false)
		if len(values) == 1 && values[0].Exact() {
			return values[0].Values
		}
		return nil
	}
	switch {
	case name == "_" || name == "": // such a host comes to the default server
	case len(name) > mostHost || !host.MatchString(name):
		c.note(d, "server_name %s is left out: it is no name that requests have", name)
	default:
		return namesOf(name)
	}
	return nil
}

// namesOf are the patterns of a name: .example.com is example.com and what is below.
func namesOf(name string) []string {
	if below, ok := strings.CutPrefix(name, "."); ok {
		return []string{below, "*" + name}
	}
	return []string{name}
}

// defaults finds the servers that take what no other does: the one that says so, or the
// first of a port.
func defaults(all []*server) {
	first := make(map[string]*server)
	for _, s := range all {
		for _, port := range s.ports {
			if first[port] == nil || slices.Contains(s.flagged, port) && !slices.Contains(first[port].flagged, port) {
				first[port] = s
			}
		}
	}
	for _, s := range first {
		s.fallback = true
	}
}

// named are the names that conditions have: none for a default server.
func (s *server) named() []string {
	if s.fallback {
		return nil
	}
	return s.hosts
}

// beats reports whether nginx takes s where the names of both fit a request.
func (s *server) beats(o *server) bool {
	if s.fallback || !slices.ContainsFunc(s.ports, func(p string) bool { return slices.Contains(o.ports, p) }) {
		return false
	}
	return o.fallback || slices.ContainsFunc(s.hosts, func(name string) bool {
		return slices.ContainsFunc(o.hosts, func(wide string) bool {
			return name != wide && strings.Contains(wide, "*") && len(name) > len(wide)-1 &&
				importers.Common(strings.Split(name, ""), strings.Split(wide, ""), "*", strings.EqualFold)
		})
	})
}

// meets reports whether two servers take requests with the same host, at different ports.
func (s *server) meets(o *server) bool {
	return !slices.ContainsFunc(s.ports, func(p string) bool { return slices.Contains(o.ports, p) }) &&
		(s.fallback && o.fallback || slices.ContainsFunc(s.hosts, func(h string) bool { return slices.Contains(o.hosts, h) }))
}

// answers reports whether a server does more than send requests elsewhere.
func (s *server) answers() bool {
	return uses(s.root) || within(s.at.Block, "proxy_pass") || within(s.at.Block, "fastcgi_pass") || within(s.at.Block, "uwsgi_pass") || within(s.at.Block, "grpc_pass")
}
