package nginxrules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A location is a location block of a server, or the whole server.
type location struct {
	level
	at      *Directive
	server  *server
	parent  *location // nil for the whole server
	kind    string    // "", "=", "^~", "~", "~*", "@"
	path    string
	order   int
	below   []*location
	finds   *regexp.Regexp
	reached bool // its limits hold somewhere
}

func (l *location) text() string {
	if l.parent == nil {
		return "server"
	}
	return "location " + strings.TrimSpace(strings.TrimPrefix(l.kind, "@")+" "+l.path)
}

func (l *location) isExpr() bool { return l.kind == "~" || l.kind == "~*" }

func (l *location) prefixed() bool { return l.kind == "" || l.kind == "^~" }

var modifier = regexp.MustCompile(`^(=|\^~|~\*?)(.+)$`)

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
		} else if m := modifier.FindStringSubmatch(l.path); m != nil { // no blank behind the modifier
			l.kind, l.path = m[1], m[2]
		} else if strings.HasPrefix(l.path, "@") {
			l.kind = "@"
		}
		if expr, fold := importers.CutFold(l.path); fold && l.kind == "~" {
			l.kind, l.path = "~*", expr
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

// found returns patterns for the paths of a location; if expr is given, only for paths that match
// it.
func (l *location) found(expr string) importers.Found {
	anyCase, around := false, l
	if expr == "" && l.isExpr() {
		expr, anyCase, around = l.path, l.kind == "~*", l.parent
	}
	var globs []string
	switch {
	case expr != "":
		return importers.PathGlobs(expr, anyCase, around.prefixes(), around.exprs())
	case l.parent == nil:
		all := []string{"/**"}
		return importers.Found{All: all, Less: all}
	case !importers.IsNamed(l.path):
		return importers.Found{}
	case l.kind == "=":
		globs = []string{l.path}
	default:
		globs = importers.Prefixed(l.path)
	}
	return importers.FoundBy(globs, globs, l.exprs(), false)
}

// exprs returns expressions that the paths of a location match: its own, and those of the locations
// around it.
func (l *location) exprs() (all []string) {
	for ; l.parent != nil; l = l.parent {
		switch l.kind {
		case "~":
			all = append(all, l.path)
		case "~*":
			all = append(all, "(?i)"+l.path)
		case "=":
			all = append(all, "^"+regexp.QuoteMeta(l.path)+"$")
		case "", "^~":
			if open, ok := strings.CutSuffix(l.path, "/"); ok && l.redirects(open) {
				all = append(all, "^"+regexp.QuoteMeta(open)+"(?:/|$)")
				continue
			}
			all = append(all, "^"+regexp.QuoteMeta(l.path))
		}
	}
	return all
}

// redirects reports whether nginx itself answers open, the path of a location without the slash at
// its end.
func (l *location) redirects(open string) bool {
	return l.at.has("proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass", "grpc_pass") &&
		!slices.ContainsFunc(l.parent.below, func(b *location) bool { return b.path == open && !b.isExpr() })
}

// prefixes returns the beginnings of the paths of a location; nil if they are not known.
func (l *location) prefixes() []string {
	switch {
	case l.parent == nil:
		return []string{"/"}
	case l.prefixed():
		return []string{l.path}
	case l.kind == "~":
		return importers.Prefixes(l.path)
	}
	return nil
}

// beats reports whether nginx takes l, and not o, for a path that fits both. Both are of one
// server.
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

// shields reports whether nginx, once it has found the prefix l, tries no expressions beside it: l is
// ^~, or the path fits an expression or an exact location within l.
func (l *location) shields(within []*location) bool {
	return l.kind == "^~" || slices.ContainsFunc(within, func(w *location) bool { return w.isExpr() || w.kind == "=" })
}

// chain returns the locations from the whole server down to l.
func (l *location) chain() (all []*location) {
	for ; l != nil; l = l.parent {
		all = append(all, l)
	}
	slices.Reverse(all)
	return all
}
