package nginxrules

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// Convert makes a rules file of a configuration. The notes say where the rules differ from
// nginx, and which limits they do not keep. An error names the file and line of a directive
// that is wrong.
func Convert(all []Directive) (yaml []byte, notes importers.Notes, err error) {
	kinds := slices.DeleteFunc([]string{"limit_req", "limit_conn"}, func(kind string) bool { return !within(all, kind) })
	if len(kinds) == 0 {
		kinds = []string{"limit_req"} // one pass, which notes includes that cannot be read
	}
	for fold := false; ; fold = true { // anew if the paths of one kind make all rules ignore case
		f, notes := importers.File{}, importers.Notes(nil)
		for _, kind := range kinds { // each by itself, since neither kind replaces the other
			c := &converter{kind: kind, zones: make(map[string]*zone), variables: make(map[string]*Directive), led: make(map[string][]*location), notes: notes, fold: fold}
			if err := c.convert(all); err != nil {
				return nil, nil, err
			}
			c.write(&f)
			notes = c.notes
		}
		if f.FoldCase == fold {
			return f.YAML(), notes.Once(), nil
		}
	}
}

type converter struct {
	kind      string // limit_req or limit_conn
	zones     map[string]*zone
	variables map[string]*Directive // map and geo, by name
	missing   bool                  // a file with limits may not have been read
	all       []place
	beaten    [][]bool // beaten[i][j] says that place i beats place j
	real      realIP
	fold      bool // rules ignore the case of paths
	unders    bool // nginx takes headers with _
	notes     importers.Notes
	led       map[string][]*location // the locations of targets
	streams   []*server              // of connections, which may lead to those of requests
}

func (c *converter) convert(all []Directive) error {
	c.gone(all)
	c.unders = says(all, "underscores_in_headers", "on") || says(all, "ignore_invalid_headers", "off")
	found := false
	for i := range all {
		if all[i].Name == "stream" && within(all[i].Block, c.kind) {
			c.lose(&all[i], "%s in stream is NOT KEPT: these rules are for requests", c.kind)
		}
		for k := range all[i].Block {
			if s := &all[i].Block[k]; all[i].Name == "stream" && s.Name == "server" {
				c.streams = append(c.streams, c.server(s, nil))
			}
		}
	}
	for i := range all {
		if all[i].Name == "http" {
			found = true
			if err := c.http(&all[i]); err != nil {
				return err
			}
		}
	}
	if found {
		return nil
	}
	part := Directive{Block: all} // the file is a part of an http block
	if len(all) > 0 {
		part.file, part.line = all[0].file, all[0].line
	}
	return c.http(&part)
}

func (c *converter) http(d *Directive) error {
	for i := range d.Block {
		if v := &d.Block[i]; (v.Name == "map" || v.Name == "geo") && len(v.last()) > 1 {
			c.variables[strings.ToLower(v.last()[1:])] = v
		}
	}
	for i := range d.Block {
		if z := &d.Block[i]; z.Name == c.kind+"_zone" {
			if err := c.zone(z); err != nil {
				return err
			}
		}
	}
	top, err := c.level(d.Block, level{index: []string{"index.html"}})
	if err != nil {
		return err
	}
	var servers []*server
	for i := range d.Block {
		if s := &d.Block[i]; s.Name == "server" {
			one := c.server(s, servers)
			c.conflicts(one, servers)
			servers = append(servers, one)
		}
	}
	if servers == nil { // the file is a part of a server block
		servers = []*server{c.server(d, nil)}
	}
	defaults(servers)
	servers = append(servers, c.faces(servers, len(top.uses) > 0)...)
	for _, s := range servers {
		s.root = &location{at: s.at, server: s}
		if s.root.level, err = c.level(s.at.Block, top); err != nil {
			return err
		}
		if err := c.locations(s.root); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if uses(s.root) {
			c.unknown(d.Block)
			c.unknown(s.at.Block)
		}
	}
	c.itself(d.Block, servers)
	c.realIPs(c.realIP(d.Block, realIP{header: "X-Real-IP"}), servers)
	for _, s := range servers {
		c.places(s)
	}
	c.ports(servers)
	return nil
}

// ports notes servers on different ports or addresses whose limits differ: rules do not see these.
func (c *converter) ports(all []*server) {
	for i, s := range all {
		for _, o := range all[:i] {
			if s.meets(o) && s.answers() && o.answers() && s.root.limits() != o.root.limits() {
				c.note(s.at, "rules do not see the port or its address: the limits of this server hold for requests to that at %s too, and the other way about", o.at.where())
			}
		}
	}
}
