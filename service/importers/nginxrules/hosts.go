package nginxrules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A server is a server block, with the host names whose requests come to it.
type server struct {
	at       *Directive
	hosts    []string // none is all that no other server takes
	exprs    []string // those of hosts that an expression says
	dotted   []string // those of hosts that stand for what is below them, too
	lost     string   // a name that rules cannot have
	ports    []string
	listens  []string // with their addresses
	root     *location
	flagged  []string        // ports of which it says to be the default
	fallback bool            // it takes what no other does
	others   map[string]bool // hosts that come to other servers, wherever this one listens
}

// host is a name of a server, with stars or not. nginx takes the dot at the end off
// the host of a request and not off this, so that a name with one has no requests.
var host = regexp.MustCompile(`^\.?[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// mostHost is how long such a name may be, in bytes, so that rules take it.
const mostHost = 250

// server reads the names and ports of a server, which stands behind others.
func (c *converter) server(d *Directive, others []*server) *server {
	s := &server{at: d}
	before := slices.ContainsFunc(others, func(o *server) bool { return o.lost != "" })
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
				some, expr := c.names(one, name), strings.HasPrefix(name, "~")
				if below, dot := strings.CutPrefix(name, "."); dot {
					s.dotted = append(s.dotted, below)
				}
				switch {
				case expr && (some == nil || before): // nginx takes the first
					s.lost = name
				case expr:
					s.exprs = append(s.exprs, some...)
				default:
					s.hosts = append(s.hosts, some...)
				}
			}
		}
	}
	s.exprs = slices.DeleteFunc(s.exprs, func(name string) bool { return slices.Contains(s.hosts, name) })
	s.hosts = append(s.hosts, s.exprs...)
	if len(s.ports) == 0 {
		s.ports, s.listens = []string{"80"}, []string{":80"}
	}
	return s
}

// conflicts takes from a server the names that servers before it have, wherever it
// listens: nginx ignores them. Of .example.com it ignores both, for one.
func (c *converter) conflicts(s *server, before []*server) {
	first := func(name string) (o *server) {
		for _, listen := range s.listens {
			i := slices.IndexFunc(before, func(o *server) bool {
				return slices.Contains(o.listens, listen) && slices.ContainsFunc(o.hosts, func(h string) bool { return strings.EqualFold(h, name) && o.rank(h) == s.rank(name) })
			})
			if i < 0 {
				return nil
			}
			o = before[i]
		}
		return o
	}
	s.hosts = slices.DeleteFunc(slices.Clone(s.hosts), func(name string) bool {
		o := first(name)
		if below := strings.TrimPrefix(name, "*."); o == nil && slices.Contains(s.dotted, below) {
			o = cmp.Or(first(below), first("*."+below))
		}
		if o != nil {
			c.note(s.at, "server_name %s is left out: the server at %s has it before, so that nginx ignores it here", name, o.at.where())
		}
		return o != nil
	})
}

// names are those of a server_name that rules have.
func (c *converter) names(d *Directive, name string) []string {
	if expr, ok := strings.CutPrefix(name, "~"); ok {
		if value := expressed("host", expr, false); value != nil && !value.Wide && value.Exact() {
			return value.Values
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
		s.fallback, s.others = true, make(map[string]bool)
		for _, o := range all {
			if o != s && !slices.ContainsFunc(s.ports, func(p string) bool { return !slices.Contains(o.ports, p) }) {
				for _, name := range o.hosts {
					s.others[strings.ToLower(name)] = true
				}
			}
		}
	}
}

// faces are the names of default servers that others would take by a star or an expression:
// for these they are servers as others are.
func faces(all []*server) (more []*server) {
	for _, s := range all {
		one := *s
		one.fallback, one.hosts = false, nil
		for _, name := range s.hosts {
			if s.fallback && slices.ContainsFunc(all, func(o *server) bool {
				return o != s && o.near(s) && slices.ContainsFunc(o.hosts, func(wide string) bool { return s.takes(name, o, wide) })
			}) {
				one.hosts = append(one.hosts, name)
				s.others[strings.ToLower(name)] = true
			}
		}
		if one.hosts != nil {
			more = append(more, &one)
		}
	}
	return more
}

// named are the names that conditions have: none for a default server.
func (s *server) named() []string {
	if s.fallback {
		return nil
	}
	return s.hosts
}

// never reports whether no request of a server holds to conditions: those of another host.
func (s *server) never(when []importers.Cond) bool {
	return slices.ContainsFunc(when, func(w importers.Cond) bool {
		if w.Attribute != "host" || w.Values == nil {
			return false
		}
		if named := s.named(); named != nil {
			return w.Apart(&importers.Cond{Attribute: "host", Values: named})
		}
		return !slices.ContainsFunc(w.Values, func(v string) bool { return !s.others[strings.ToLower(v)] })
	})
}

// unsayable reports whether conditions ask for some of the hosts of a server, by patterns that
// a rule cannot have beside its names.
func (s *server) unsayable(when []importers.Cond) bool {
	named := s.named()
	return named != nil && slices.ContainsFunc(when, func(w importers.Cond) bool {
		_, ok := importers.Both([]importers.Cond{{Attribute: "host", Values: named}}, []importers.Cond{w})
		return w.Attribute == "host" && !ok
	})
}

// rank is how early nginx looks a name up.
func (s *server) rank(name string) int {
	switch {
	case slices.Contains(s.exprs, name):
		return 3
	case strings.HasSuffix(name, "*"):
		return 2
	case strings.HasPrefix(name, "*"):
		return 1
	}
	return 0
}

// takes reports whether nginx takes s by a name where that of another server fits, too.
func (s *server) takes(name string, o *server, wide string) bool {
	if a, b := s.rank(name), o.rank(wide); a > b || a == b && len(name) <= len(wide) {
		return false
	}
	return importers.Common(strings.Split(name, ""), strings.Split(wide, ""), "*", strings.EqualFold)
}

// near reports whether two servers listen on one port.
func (s *server) near(o *server) bool {
	return slices.ContainsFunc(s.ports, func(p string) bool { return slices.Contains(o.ports, p) })
}

// beats reports whether nginx takes s where the names of both fit a request.
func (s *server) beats(o *server) bool {
	return s.near(o) && !s.fallback && (o.fallback || slices.ContainsFunc(s.hosts, func(name string) bool {
		return slices.ContainsFunc(o.hosts, func(wide string) bool { return s.takes(name, o, wide) })
	}))
}

// over are the names of a server by which nginx takes no request from places, at all ports of
// these that it would otherwise take.
func (s *server) over(in []place) []string {
	return slices.DeleteFunc(slices.Clone(s.named()), func(wide string) bool {
		return slices.ContainsFunc(in, func(p place) bool {
			o := p.server
			return o != s && (slices.ContainsFunc(o.named(), func(name string) bool { return o.takes(name, s, wide) }) ||
				slices.ContainsFunc(o.ports, func(port string) bool { return !slices.Contains(s.ports, port) }))
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
