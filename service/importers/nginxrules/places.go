package nginxrules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A place stands for requests with the same limits: all requests of a location, or some.
type place struct {
	server *server
	in     *location
	early  bool     // its requests are rewritten before nginx looks for a location
	order  int      // among the places of the location
	globs  []string // for its own limits: these take all its paths, maybe more
	less   []string // for limits of other places: these take none but its paths, maybe fewer
	exprs  []string // find something in its paths
	folds  bool     // they ignore case, which globs do if all rules do
	wide   []string // globs for them that need not ignore case; nil if there are none, or they would take much more
	when   []importers.Cond
	uses   []use
	at     *Directive
	nth    int // its index among all places
}

// beats reports whether some request fits both places, and nginx takes p for it.
func (p *place) beats(q *place) bool {
	if !importers.Meet(p.globs, q.globs) || importers.AllApart(p.when, q.when) {
		return false
	}
	switch {
	case p.server != q.server:
		return p.server.beats(q.server)
	case p.early != q.early:
		return p.early
	case p.in == q.in:
		return p.order < q.order
	}
	return p.in.beats(q.in)
}

// unseen reports whether rules may take a request for one of two places of different servers for the other.
func (p *place) unseen(q *place) bool {
	a, b := p.server.named(), q.server.named()
	return p.server != q.server && importers.Meet(p.globs, q.globs) && !importers.AllApart(p.when, q.when) &&
		(a == nil || b == nil || slices.ContainsFunc(a, func(x string) bool {
			return slices.ContainsFunc(b, func(y string) bool {
				return importers.Common(strings.Split(x, ""), strings.Split(y, ""), "*", strings.EqualFold)
			})
		}))
}

// places finds the places of a server.
func (c *converter) places(s *server) {
	if s.lost != "" && !s.fallback {
		if uses(s.root) {
			c.lose(s.at, "server_name %s is NOT KEPT, with the limits of this server for it: rules cannot have such a host", s.lost)
		} else {
			c.note(s.at, "server_name %s: rules cannot name these hosts, so the limits of the default server hold for them", s.lost)
		}
	}
	if len(s.named()) == 0 && !s.fallback { // no request comes to the server
		return
	}
	w := c.rewriting(s.root)
	first := len(c.all)
	for i, o := range w.first {
		c.place(s.root, o, place{order: i, early: true})
	}
	if !w.ends {
		c.within(s.root, w)
	}
	c.slashes(s.root, first)
	c.unkept(c.all[first:])
	c.unreached(s.root, sends(s.root))
}

func uses(l *location) bool { return len(l.uses) > 0 || slices.ContainsFunc(l.below, uses) }

// allUses returns the limits of a location and of those within it.
func allUses(l *location) []use {
	all := slices.Clone(l.uses)
	for _, b := range l.below {
		all = append(all, allUses(b)...)
	}
	return all
}

// limits returns the limits of a location and of those within it, as a text to compare.
func (l *location) limits() string {
	own := fmt.Sprint(l.uses)
	text := own
	for _, b := range l.below {
		if there := b.limits(); there != own {
			text += " " + b.kind + b.path + "{" + there + "}"
		}
	}
	return text
}

// within finds the places of a location and of the locations in it.
func (c *converter) within(l *location, w rewriting) {
	all := []outcome{{at: l.at}}
	whole := slices.ContainsFunc(l.below, func(b *location) bool { return b.path == "/" && (b.kind == "" || b.kind == "^~") })
	switch {
	case l.parent == nil && whole: // no request stays here
		all = nil
	case l.parent == nil:
		all = c.settle(l)
	case !l.at.has("internal"):
		all = c.outcomes(l)
	default:
		all[0].uses = c.follow(l, way{at: l.at, to: l.page("404"), as: asGET})
	}
	if p := l.page("301"); p != "" && l.parent != nil && l.redirects(strings.TrimSuffix(l.path, "/")) {
		there := c.follow(l, way{at: l.at, to: p, as: asGET})
		if there != nil && slices.ContainsFunc(all, func(o outcome) bool { return !slices.Equal(o.uses, there) }) {
			c.lose(l.at, "requests for %s without the slash at its end have the limits of %s there, NOT KEPT", l.text(), p)
		}
	}
	for i, o := range with(c.spread(all, w.maybe), w.rest) {
		c.place(l, o, place{order: i})
	}
	for _, b := range l.below {
		if b.kind != "@" {
			c.within(b, w)
		}
	}
}

func (c *converter) place(l *location, o outcome, p place) {
	p.server, p.in, p.when, p.uses, p.at = l.server, l, o.when, o.uses, l.at
	switch {
	case p.server.never(o.when):
		return
	case p.server.unsayable(o.when) && len(o.uses) == 0:
		c.note(o.at, "requests that this answers are counted here, and not there: rules cannot say which hosts of the server these are")
		return
	case p.server.unsayable(o.when):
		c.lose(o.at, "the limits here are NOT KEPT: rules cannot say for which hosts of the server they are")
		return
	}
	found, limited := l.found(o.path), len(o.uses) > 0
	p.globs, p.less, p.exprs = found.All, found.Less, l.exprs()
	if o.path != "" {
		p.at, p.exprs = o.at, append(p.exprs, o.path)
	}
	switch {
	case p.globs != nil && len(p.globs) == 0: // there are no such paths
		return
	case !limited:
		p.globs = p.less
	case found.More:
		c.note(p.at, "%s %s takes more paths here: %s", p.at.Name, strings.Join(p.at.Args, " "), strings.Join(p.globs, " "))
	}
	if p.folds = l.kind == "~*" && limited && p.globs != nil; p.folds && o.path == "" && slices.Equal(o.uses, l.around()) {
		p.wide = importers.PathGlobs("(?i)"+l.path, false, l.parent.prefixes(), l.parent.exprs()).All
	}
	c.all = append(c.all, p)
}

// around returns the limits of requests that would come to no location of an expression.
func (l *location) around() []use {
	for _, b := range l.parent.below {
		if b.path == "/" && b.prefixed() {
			return b.uses
		}
	}
	return l.parent.uses
}

// letters chooses how the limits of locations that ignore case are kept: by rules that do, or if all have the limits of
// what is around them, by patterns that take more.
func (c *converter) letters() {
	c.fold = c.fold || slices.ContainsFunc(c.all, func(p place) bool { return p.folds && p.wide == nil })
	for i := range c.all {
		p := &c.all[i]
		switch {
		case !p.folds:
		case c.fold:
			c.note(p.at, "%s: upper and lower case make no difference in any path of these rules, so that this is kept", p.in.text())
		default:
			if p.globs = p.wide; slices.ContainsFunc(c.all, func(q place) bool { return p.beats(&q) && !slices.Equal(q.uses, p.uses) }) {
				c.note(p.at, "%s takes more paths here, since rules tell upper and lower case apart: %s", p.in.text(), strings.Join(p.globs, " "))
			}
		}
	}
}

// unkept removes the places of a server whose paths rules cannot name, and notes them if other
// places have other limits.
func (c *converter) unkept(all []place) {
	for _, p := range all {
		if p.globs != nil || !slices.ContainsFunc(all, func(o place) bool { return !slices.Equal(o.uses, p.uses) }) {
			continue
		}
		what := strings.Join(append([]string{p.at.Name}, p.at.Args...), " ")
		if len(p.uses) > 0 {
			c.lose(p.at, "%s is NOT KEPT, with its limits: rules cannot name its paths", what)
		} else {
			c.note(p.at, "%s is left out: rules cannot name its paths. It has no limits of its own; those around it hold here too", what)
		}
	}
	c.all = slices.DeleteFunc(c.all, func(p place) bool { return p.globs == nil })
}

// slashes looks for a location of /p alone beside one of /p/, since rules take these for one path.
func (c *converter) slashes(root *location, first int) {
	kept := c.all[:first]
	for _, p := range c.all[first:] {
		if p.in.kind == "=" && p.in.path != "/" {
			other, found := strings.CutSuffix(p.in.path, "/")
			if !found {
				other += "/"
			}
			t := targetOf(other)
			if to := root.leads(&t)[0]; to.path == other && !slices.Equal(to.uses, p.uses) && len(p.uses) > 0 && len(to.uses) > 0 {
				c.lose(p.at, "%s and %s have limits of their own, of which those of the second are NOT KEPT for that path: rules take a path with and without a slash at its end for one", p.in.text(), to.text())
			}
		}
		kept = append(kept, p)
	}
	c.all = kept
}

// unreached notes the locations with limits to which no request was found to come, or where sent says that
// others may come, by X-Accel-Redirect; of the others, what becomes of requests above them.
func (c *converter) unreached(l *location, sent bool) {
	internal := l.at.has("internal")
	switch {
	case !l.at.has(c.kind):
	case (l.kind == "@" || internal) && !l.reached:
		c.lose(l.at, "%s is NOT KEPT, with its limits: nothing that rules know leads to it", l.text())
	case internal && sent:
		c.note(l.at, "if X-Accel-Redirect of the server behind leads to %s, these requests are not counted here: rules decide before there is an answer", l.text())
	}
	c.above(l)
	for _, b := range l.below {
		c.unreached(b, sent)
	}
}

// sends reports whether a server behind may hand on requests that have not been counted.
func sends(l *location) bool {
	return len(l.uses) == 0 && !l.stays && l.at.has("proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass") || slices.ContainsFunc(l.below, sends)
}
