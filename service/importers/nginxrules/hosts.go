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
	hosts    []string
	exprs    []string // those of hosts that come from an expression
	dotted   []string // those of hosts that were written with a dot before them
	lost     string   // a name that rules cannot have
	ports    []string // with their addresses: no request comes to two of them
	root     *location
	flagged  []string        // ports of which it is marked as the default server
	fallback bool            // it takes what no other server takes
	others   map[string]bool // hosts that come to other servers, wherever this one listens
}

// host matches the names of servers, with or without stars. A name with a dot at its end gets
// no requests, since nginx removes that dot from the host of a request, but not from the name.
var host = regexp.MustCompile(`^\.?[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// mostHost is the most bytes of such a name that rules accept.
const mostHost = 250

// server reads the names and ports of a server. others are the servers before it.
func (c *converter) server(d *Directive, others []*server) *server {
	s := &server{at: d}
	before := slices.ContainsFunc(others, func(o *server) bool { return o.lost != "" })
	for i := range d.Block {
		one := &d.Block[i]
		switch {
		case one.Name == "listen" && len(one.Args) > 0:
			port := one.Args[0][strings.LastIndexByte(one.Args[0], ':')+1:]
			if !strings.HasPrefix(strings.ToLower(one.Args[0]), "unix:") && strings.Trim(port, "0123456789-") != "" { // an address without a port
				port = "80"
			}
			address := strings.TrimSuffix(one.Args[0], ":"+port)
			if address == port || address == "*" || address == "0.0.0.0" {
				address = ""
			}
			if port = address + ":" + port; slices.Contains(one.Args, "quic") {
				port += " quic"
			}
			s.ports = append(s.ports, port)
			if slices.Contains(one.Args, "default_server") || slices.Contains(one.Args, "default") {
				s.flagged = append(s.flagged, port)
			}
		case one.Name == "server_name":
			for _, name := range one.Args {
				some, expr := c.names(one, name), strings.HasPrefix(name, "~")
				if below, dot := strings.CutPrefix(name, "."); dot {
					if again := s.hasName(below) || s.hasName("*."+below); again {
						c.note(one, "server_name %s is left out: a name before it takes the same, so that nginx ignores it", name)
						continue
					}
					s.dotted = append(s.dotted, below)
				}
				switch {
				case expr && (some == nil || before), unsaid(name): // nginx takes the first expression that matches
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
	if !d.has("server_name") {
		s.hosts = []string{""}
	}
	if len(s.ports) == 0 {
		s.ports = []string{":80"}
	}
	return s
}

func (s *server) hasName(name string) bool {
	return slices.ContainsFunc(s.hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// conflicts removes the names that servers before it have wherever it listens, since nginx
// ignores them. If one of the two names of .example.com is taken, nginx ignores both.
func (c *converter) conflicts(s *server, before []*server) {
	first := func(name string) (o *server) {
		for _, port := range s.ports {
			i := slices.IndexFunc(before, func(o *server) bool {
				return slices.Contains(o.ports, port) && slices.ContainsFunc(o.hosts, func(h string) bool { return strings.EqualFold(h, name) && o.rank(h) == s.rank(name) })
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
			c.note(s.at, "server_name %s is left out: the server at %s has it before, so that nginx ignores it here", cmp.Or(name, `""`), o.at.where())
		}
		return o != nil
	})
}

// names returns the patterns of a server_name; none if rules cannot have them.
func (c *converter) names(d *Directive, name string) []string {
	if expr, ok := strings.CutPrefix(name, "~"); ok {
		if value := expressed("host", expr, false); value != nil && !value.Wide && value.Exact() {
			return value.Values
		}
		return nil
	}
	switch {
	case name == "": // requests without a host
		return []string{""}
	case unsaid(name):
	case len(name) > mostHost || !host.MatchString(name):
		c.note(d, "server_name %s is left out: it is no name that requests have", name)
	default:
		return namesOf(name)
	}
	return nil
}

// unsaid reports whether a name is that of the machine, or an address of IPv6, which rules cannot have.
func unsaid(name string) bool {
	return strings.EqualFold(name, "$hostname") || strings.HasPrefix(name, "[")
}

// namesOf returns the patterns of a name: .example.com is example.com and *.example.com.
func namesOf(name string) []string {
	if below, ok := strings.CutPrefix(name, "."); ok {
		return []string{below, "*" + name}
	}
	return []string{name}
}

// defaults finds the default server of each port: the one that is marked, or the first.
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

// faces returns a further server for each default server with names that others would take by
// a star or an expression. For these names, it is a server like the others. Another one is for requests
// without a host, which come to the server of the name "", if that has limits.
func (c *converter) faces(all []*server, limited bool) (more []*server) {
	for _, s := range all { // by convention, _ is no host, but nginx knows it as one
		if s.fallback || !limited && !within(s.at.Block, c.kind) {
			s.hosts = slices.DeleteFunc(slices.Clone(s.hosts), func(h string) bool { return h == "_" })
		}
	}
	for _, s := range all {
		bare := *s
		s.hosts = slices.DeleteFunc(slices.Clone(s.hosts), func(h string) bool { return h == "" })
		if len(s.hosts) < len(bare.hosts) && !s.fallback && (limited || within(s.at.Block, c.kind)) {
			bare.hosts, bare.lost = []string{""}, ""
			c.note(s.at, "this server is for requests without a Host: stint proxy refuses them where rules look at the host")
			more = append(more, &bare)
		}
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

// hosted returns the condition that a request has one of some hosts, of which "" is none.
func hosted(hosts []string) importers.Cond {
	if slices.Equal(hosts, []string{""}) {
		return importers.Cond{Attribute: "host"}
	}
	return importers.Cond{Attribute: "host", Values: hosts}
}

// named returns the hosts that conditions name: none for a default server.
func (s *server) named() []string {
	if s.fallback {
		return nil
	}
	return s.hosts
}

// never reports whether no request of a server meets conditions, since they ask for other hosts.
func (s *server) never(when []importers.Cond) bool {
	return slices.ContainsFunc(when, func(w importers.Cond) bool {
		if w.Attribute != "host" || w.Values == nil {
			return false
		}
		if named := s.named(); named != nil {
			hosts := hosted(named)
			return w.Apart(&hosts)
		}
		return !slices.ContainsFunc(w.Values, func(v string) bool { return !s.others[strings.ToLower(v)] })
	})
}

// unsayable reports whether conditions ask for hosts by patterns that a rule cannot have beside the
// names of the server.
func (s *server) unsayable(when []importers.Cond) bool {
	named := s.named()
	return named != nil && slices.ContainsFunc(when, func(w importers.Cond) bool {
		_, ok := importers.Both([]importers.Cond{hosted(named)}, []importers.Cond{w})
		return w.Attribute == "host" && !ok
	})
}

// rank returns the place of a name in the order in which nginx looks names up.
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

// takes reports whether some host fits both name, of s, and wide, of o, and nginx takes s for it.
func (s *server) takes(name string, o *server, wide string) bool {
	if a, b := s.rank(name), o.rank(wide); a > b || a == b && len(name) <= len(wide) {
		return false
	}
	return importers.Common(strings.Split(name, ""), strings.Split(wide, ""), "*", strings.EqualFold)
}

func (s *server) near(o *server) bool {
	return slices.ContainsFunc(s.ports, func(p string) bool { return slices.Contains(o.ports, p) })
}

// beats reports whether some request fits the names of both servers, and nginx takes s for it.
func (s *server) beats(o *server) bool {
	return s.near(o) && !s.fallback && (o.fallback || slices.ContainsFunc(s.hosts, func(name string) bool {
		return slices.ContainsFunc(o.hosts, func(wide string) bool { return s.takes(name, o, wide) })
	}))
}

// over returns the names of s whose requests never come to the server of one of the places: no such
// server takes them by a name of its own, or on a port that s does not listen on.
func (s *server) over(in []place) []string {
	return slices.DeleteFunc(slices.Clone(s.named()), func(wide string) bool {
		return slices.ContainsFunc(in, func(p place) bool {
			o := p.server
			return o != s && (slices.ContainsFunc(o.named(), func(name string) bool { return o.takes(name, s, wide) }) ||
				slices.ContainsFunc(o.ports, func(port string) bool { return !slices.Contains(s.ports, port) }))
		})
	})
}

// meets reports whether two servers take requests for the same host, but have no port in common.
func (s *server) meets(o *server) bool {
	return !slices.ContainsFunc(s.ports, func(p string) bool { return slices.Contains(o.ports, p) }) &&
		(s.fallback && o.fallback || slices.ContainsFunc(s.hosts, func(h string) bool { return slices.Contains(o.hosts, h) }))
}

// answers reports whether a server does more than redirect requests.
func (s *server) answers() bool {
	return uses(s.root) || within(s.at.Block, "proxy_pass") || within(s.at.Block, "fastcgi_pass") || within(s.at.Block, "uwsgi_pass") || within(s.at.Block, "grpc_pass")
}
