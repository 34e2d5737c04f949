package nginxrules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A location is one of a server, or the whole of it.
type location struct {
	level
	at      *Directive
	server  *server
	parent  *location // nil of a server's whole
	kind    string    // "", "=", "^~", "~", "~*", "@"
	path    string
	order   int
	below   []*location
	finds   *regexp.Regexp
	reached bool // its limits hold somewhere
}

// text is the location as people write it.
func (l *location) text() string {
	if l.parent == nil {
		return "server"
	}
	return "location " + strings.TrimSpace(strings.TrimPrefix(l.kind, "@")+" "+l.path)
}

func (l *location) isExpr() bool { return l.kind == "~" || l.kind == "~*" }

var modifier = regexp.MustCompile(`^(=|\^~|~\*?)(.+)$`)

// locations reads those of a block, and those within.
func (c *converter) locations(in *location) error {
	for i := range in.at.Block {
		d := &in.at.Block[i]
		if d.Name == "if" && d.has(c.kind) {
			return fmt.Errorf("%s: %s cannot stand in if", d.where(), c.kind)
		}
		if d.Name != "location" || len(d.Args) == 0 {
			continue
		}
		l := &location{at: d, server: in.server, parent: in, path: d.Args[len(d.Args)-1], order: i}
		if len(d.Args) == 2 {
			l.kind = d.Args[0]
		} else if m := modifier.FindStringSubmatch(l.path); m != nil { // written together
			l.kind, l.path = m[1], m[2]
		} else if strings.HasPrefix(l.path, "@") {
			l.kind = "@"
		}
		if l.isExpr() {
			l.finds = importers.Compiled(l.path, l.kind == "~*")
		}
		var err error
		if l.level, err = c.level(d.Block, in.level); err != nil {
			return err
		}
		if err := c.locations(l); err != nil {
			return err
		}
		in.below = append(in.below, l)
	}
	return nil
}

// find returns the location of a path, as nginx looks it up.
func (l *location) find(path string) (found *location, final bool) {
	var best *location
	for _, b := range l.below {
		switch {
		case b.kind == "=" && b.path == path:
			return b, true
		case (b.kind == "" || b.kind == "^~") && strings.HasPrefix(path, b.path) && (best == nil || len(b.path) > len(best.path)):
			best = b
		}
	}
	found = l
	if best != nil {
		if found, final = best.find(path); final {
			return found, true
		}
	}
	for _, b := range l.below {
		if b.isExpr() && (best == nil || best.kind != "^~") && b.finds != nil && b.finds.MatchString(path) {
			found, _ = b.find(path)
			return found, true
		}
	}
	return found, false
}

// patterns are the paths of a location. Those of one without limits are at most these,
// so that no other goes without.
func (l *location) patterns(limited bool) (globs []string, wide bool) {
	switch {
	case l.parent == nil:
		return []string{"/**"}, false
	case l.isExpr():
		return l.expr(l.path, l.kind == "~*", limited)
	case !importers.IsNamed(l.path):
		return nil, false
	case l.kind == "=":
		return []string{l.path}, false
	}
	return importers.Prefixed(l.path), false
}

// expr are the paths of a location in which an expression finds something.
func (l *location) expr(expr string, anyCase, limited bool) (all []string, wide bool) {
	around := l
	if l.isExpr() {
		around = l.parent
	}
	for _, below := range around.prefixes() {
		globs, more := importers.PathGlobs(expr, below, anyCase, !limited)
		all, wide = append(all, globs...), wide || more
	}
	if anyCase && !limited {
		for _, g := range slices.Clone(all) {
			if up := strings.ToUpper(g); up != g {
				all = append(all, up)
			}
		}
	}
	return all, wide
}

// prefixes are what the paths of a location begin with, nil if that does not say which
// paths these are.
func (l *location) prefixes() []string {
	switch {
	case l.parent == nil:
		return []string{"/"}
	case l.kind == "" || l.kind == "^~":
		return []string{l.path}
	case l.kind == "~":
		return importers.Prefixes(l.path)
	}
	return nil
}

// beats reports whether nginx takes l, of two locations of a server that both fit a
// path.
func (l *location) beats(o *location) bool {
	a, b := l.chain(), o.chain()
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) { // one is within the other
		return len(a) > len(b)
	}
	switch x, y := a[i], b[i]; {
	case x.kind == "=" || y.kind == "=":
		return x.kind == "="
	case x.isExpr() && y.isExpr():
		return x.order < y.order
	case x.isExpr():
		return !y.shields(b[i+1:])
	case y.isExpr():
		return x.shields(a[i+1:])
	default:
		return len(x.path) > len(y.path)
	}
}

// shields reports whether nginx looks at no expressions beside a prefix: it says so, or
// one within has been found.
func (l *location) shields(within []*location) bool {
	return l.kind == "^~" || slices.ContainsFunc(within, func(w *location) bool { return w.isExpr() || w.kind == "=" })
}

// chain is the locations from the server to this one.
func (l *location) chain() (all []*location) {
	for ; l != nil; l = l.parent {
		all = append(all, l)
	}
	slices.Reverse(all)
	return all
}
