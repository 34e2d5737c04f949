package nginxrules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Convert makes rules of a configuration. The notes say what means something else
// than it did.
func Convert(all []Directive) (yaml []byte, notes []string, err error) {
	c := &converter{zones: make(map[string]zone), lost: make(map[string]bool)}
	for i := range all {
		if all[i].Name == "http" {
			if err := c.http(&all[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	if !slices.ContainsFunc(all, func(d Directive) bool { return d.Name == "http" }) { // a part of one
		part := Directive{Block: all}
		if len(all) > 0 {
			part.file, part.line = all[0].file, all[0].line
		}
		if err := c.http(&part); err != nil {
			return nil, nil, err
		}
	}
	return c.write(), c.notes, nil
}

type converter struct {
	zones  map[string]zone
	lost   map[string]bool // zones that are not kept
	places []place
	notes  []string
	hosts  int // servers
}

func (c *converter) note(d *Directive, format string, args ...any) {
	note := d.where() + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

// A place is a location, or what of a server is in none.
type place struct {
	server int
	hosts  []string // none is any
	kind   string   // "", "=", "^~", "~"
	path   string   // the prefix
	globs  []string // what of paths it is
	uses   []use
	at     *Directive
}

// A level is what directives of a block say to those within.
type level struct {
	uses []use
	dry  bool
}

// level reads the directives of a block. Any limit_req takes the place of those
// further out.
func (c *converter) level(block []Directive, outer level) (level, error) {
	now := outer
	own := []use{}
	for i := range block {
		if d := &block[i]; d.Name == "limit_req_dry_run" && len(d.Args) == 1 {
			now.dry = d.Args[0] == "on"
		}
	}
	found := false
	for i := range block {
		d := &block[i]
		switch d.Name {
		case "limit_req":
			found = true
			u, ok, err := c.use(d, now.dry)
			if err != nil {
				return now, err
			}
			if ok {
				own = append(own, u)
			}
		case "limit_conn", "limit_conn_zone":
			c.note(d, "%s is NOT KEPT: it bounds connections at one time, stint bounds requests", d.Name)
		case "limit_req_status":
			if len(d.Args) == 1 && d.Args[0] != "429" {
				c.note(d, "limit_req_status %s: a denial is 429 here", d.Args[0])
			}
		}
	}
	if found {
		now.uses = own
	}
	return now, nil
}

func (c *converter) http(d *Directive) error {
	for i := range d.Block {
		if z := &d.Block[i]; z.Name == "limit_req_zone" {
			if err := c.zone(z); err != nil {
				return err
			}
		}
	}
	top, err := c.level(d.Block, level{})
	if err != nil {
		return err
	}
	named := 0
	for i := range d.Block {
		if s := &d.Block[i]; s.Name == "server" {
			before := len(c.places)
			if err := c.server(s, top); err != nil {
				return err
			}
			if len(c.places[before].hosts) > 0 {
				named++
			}
		}
	}
	if c.hosts == 0 { // a part without servers: what stands in one
		if err := c.server(d, top); err != nil {
			return err
		}
	}
	if named > 1 && named == c.hosts {
		c.note(d, "requests for hosts that no server_name has are held by no rule; there by those of the default server")
	}
	return nil
}

// server finds the places of a server.
func (c *converter) server(d *Directive, top level) error {
	c.hosts++
	var hosts []string
	for i := range d.Block {
		one := &d.Block[i]
		if one.Name != "server_name" {
			continue
		}
		for _, name := range one.Args {
			switch {
			case strings.HasPrefix(name, "~"):
				c.note(one, "server_name %s is NOT KEPT: rules know stars alone", name)
			case name != "" && (len(name) > mostHost || !host.MatchString(name)):
				c.note(one, "server_name %s is NOT KEPT: it is no name that requests have", name)
			case strings.HasPrefix(name, "."):
				hosts = append(hosts, name[1:], "*"+name)
			case name != "_" && name != "":
				hosts = append(hosts, name)
			}
		}
	}
	now, err := c.level(d.Block, top)
	if err != nil {
		return err
	}
	before := len(c.places)
	if err := c.locations(d.Block, now, place{server: c.hosts, hosts: hosts}); err != nil {
		return err
	}
	if !slices.ContainsFunc(c.places[before:], func(p place) bool { return p.kind != "=" && p.path == "/" }) {
		c.places = append(c.places, place{server: c.hosts, hosts: hosts, path: "/", globs: []string{"/**"}, uses: now.uses, at: d})
	}
	return nil
}

// locations finds those of a block, and those within.
func (c *converter) locations(block []Directive, outer level, in place) error {
	for i := range block {
		d := &block[i]
		if d.Name == "if" && slices.ContainsFunc(d.Block, func(d Directive) bool { return d.Name == "limit_req" }) {
			return fmt.Errorf("%s: limit_req cannot stand in if", d.where())
		}
		if d.Name != "location" || len(d.Args) == 0 || strings.HasPrefix(d.Args[0], "@") {
			continue
		}
		now, err := c.level(d.Block, outer)
		if err != nil {
			return err
		}
		one := in
		one.at, one.uses, one.kind, one.path = d, now.uses, "", d.Args[len(d.Args)-1]
		if len(d.Args) == 2 {
			one.kind = d.Args[0]
		} else if m := modifier.FindStringSubmatch(one.path); m != nil { // written together
			one.kind, one.path = m[1], m[2]
		}
		if one.globs = c.globs(&one); one.globs != nil {
			c.places = append(c.places, one)
		}
		if err := c.locations(d.Block, now, in); err != nil {
			return err
		}
	}
	return nil
}

// host is a name of a server, with stars or not. nginx takes the dot at the end off
// the host of a request and not off this, so that a name with one has no requests.
var host = regexp.MustCompile(`^\.?[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// mostHost is how long such a name may be, in bytes, so that rules take it.
const mostHost = 250

var (
	modifier = regexp.MustCompile(`^(=|\^~|~\*?)(.+)$`)
	endings  = regexp.MustCompile(`^\\\.(?:([a-z0-9]+)|\((?:\?:)?([a-z0-9|]+)\))\$$`)
	begins   = regexp.MustCompile(`^\^(/[A-Za-z0-9/_-]*)$`)
)

// globs returns the patterns of a location's paths, nil if there are none.
func (c *converter) globs(p *place) []string {
	switch p.kind {
	case "~", "~*":
		if m := endings.FindStringSubmatch(p.path); m != nil {
			var all []string
			for _, ending := range strings.Split(m[1]+m[2], "|") {
				all = append(all, "/**/*."+ending)
			}
			if p.kind == "~*" {
				c.note(p.at, "location ~* %s: in lower case alone: paths of rules go by case", p.path)
			}
			p.kind, p.path = "~", ""
			return all
		}
		if m := begins.FindStringSubmatch(p.path); m != nil && p.kind == "~" {
			p.path = m[1]
			return prefixed(m[1])
		}
		return c.lose(p, "rules have no regular expressions for paths")
	}
	if !named.MatchString(p.path) || strings.Contains(p.path, "//") || strings.Contains(p.path+"/", "/./") || strings.Contains(p.path+"/", "/../") {
		return c.lose(p, "rules cannot name such a path")
	}
	if p.kind == "=" {
		return []string{p.path}
	}
	return prefixed(p.path)
}

// named is a path that stands for itself in a pattern.
var named = regexp.MustCompile(`^/[A-Za-z0-9/_.~!$&'()+,=:@ -]*$`)

// lose says that a location is not kept, and what that means for its requests.
func (c *converter) lose(p *place, why string) []string {
	what := "it has no limits of its own, and those around it hold here too"
	if len(p.uses) > 0 {
		what = "its limits are left out"
	}
	c.note(p.at, "location %s is NOT KEPT: %s. Where it differs, %s", strings.TrimSpace(p.kind+" "+p.path), why, what)
	return nil
}

// prefixed are the patterns of paths that begin so.
func prefixed(path string) []string {
	if strings.HasSuffix(path, "/") {
		return []string{path + "**"}
	}
	return []string{path + "*/**"}
}
