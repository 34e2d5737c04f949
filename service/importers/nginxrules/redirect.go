package nginxrules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A hop is a way in which nginx hands a request on to another location.
type hop int

const (
	rewritten  hop = iota // to the location of the new path
	redirected            // the same, after the rewriting of the server
	asGET                 // the same, with the method GET, unless it is HEAD, and without the query
)

// A target is where requests are handed on to: a path, or if it is open, all paths that fit.
type target struct {
	head string // what the path begins with
	open bool   // there is more behind head
	fits []*regexp.Regexp
	from *location // whose paths fit: those of directories, without the name of an index
	name string
}

func targetOf(to string) target {
	to, _, _ = strings.Cut(strings.ReplaceAll(strings.ReplaceAll(to, "${is_args}", "?"), "$is_args", "?"), "?")
	to = strings.ToValidUTF8(variable.ReplaceAllString(to, "\x00"), "\x00")
	head, _, open := strings.Cut(to, "\x00")
	expr := "^" + strings.ReplaceAll(regexp.QuoteMeta(to), "\x00", "(?s:.*)") + "$"
	return target{head: cmp.Or(head, "/"), open: open, fits: []*regexp.Regexp{regexp.MustCompile(expr)}}
}

// takes reports whether a path fits a target.
func (t *target) takes(path string) bool {
	dir, ok := strings.CutSuffix(path, t.name)
	return ok && !slices.ContainsFunc(t.fits, func(re *regexp.Regexp) bool { return re != nil && !re.MatchString(dir) })
}

// surely reports whether all paths of a target match the expression of a location.
func (t *target) surely(b *location) bool {
	if b.finds == nil || !t.open {
		return b.finds != nil && b.finds.MatchString(t.head)
	}
	return importers.WithinBefore(t.texts(), importers.Before{Expr: b.finds.String(), Behind: t.name})
}

// maybe reports whether a path of a target may match the expression of a location. Directories of
// an index that match it are not in another location.
func (t *target) maybe(b *location) bool {
	re := b.finds
	if re == nil { // without what looks around, it takes all its paths, and more
		re = importers.Compiled(looks.ReplaceAllString(b.path, ""), b.kind == "~*")
	}
	if re == nil || !t.open {
		return re == nil || re.MatchString(t.head)
	}
	if heads := b.prefixes(); heads != nil && !slices.ContainsFunc(heads, func(h string) bool {
		return strings.HasPrefix(h, t.head) || strings.HasPrefix(t.head, h)
	}) {
		return false
	}
	not := importers.Before{Expr: importers.Nothing}
	if t.from != nil && t.from != b {
		not.Expr = re.String()
	}
	return !importers.WithinBefore(append(t.texts(), importers.Before{Expr: re.String(), Behind: t.name}), not)
}

var looks = regexp.MustCompile(`\(\?<?[=!][^()]*\)`)

func (t *target) texts() (all []importers.Before) {
	for _, re := range t.fits {
		if re != nil {
			all = append(all, importers.Before{Expr: re.String()})
		}
	}
	return all
}

// before reports whether some path of an open target has a location by a longer prefix than head.
func (t *target) before(prefix string) bool {
	if !t.open || len(prefix) <= len(t.head) || !strings.HasPrefix(prefix, t.head) {
		return false
	}
	last := prefix[strings.LastIndexByte(prefix, '/')+1:]
	return t.from == nil || last != "" && strings.HasPrefix(t.name, last)
}

// leads returns the locations that nginx may take for a target; the last is the one for paths that no
// other names more closely.
func (l *location) leads(t *target) (all []*location) {
	var best, sure *location
	var exprs, longer []*location
	for _, b := range l.below {
		switch plain := b.prefixed(); {
		case b.kind == "=" && !t.open && b.path == t.head:
			return []*location{b}
		case b.kind == "=" && t.open && t.takes(b.path):
			all = append(all, b)
		case plain && t.before(b.path):
			longer = append(longer, b)
		case plain && strings.HasPrefix(t.head, b.path) && (best == nil || len(b.path) > len(best.path)):
			best = b
		case !b.isExpr() || sure != nil || !t.maybe(b):
		case t.surely(b):
			sure = b
		default:
			exprs = append(exprs, b)
		}
	}
	shut := best != nil && best.kind == "^~"
	if shut && longer == nil {
		sure, exprs = nil, nil
	}
	last := []*location{l}
	if best != nil {
		last = best.leads(t)
		if one := last[0]; !t.open && len(last) == 1 && one != best && (one.isExpr() || one.kind == "=") {
			return last // nginx tries no expression beside it
		}
	}
	for _, b := range longer {
		if sure == nil || b.shields(b.below) {
			all = append(all, b.leads(t)...)
		}
	}
	for _, b := range exprs {
		all = append(all, b.leads(t)...)
	}
	if sure == nil {
		return append(all, last...)
	}
	if best != nil && (shut || best.shields(best.below)) {
		all = append(all, last...)
	}
	return append(all, sure.leads(t)...)
}

// own matches what ends with the path that a location was found by, and anchored what matches text by its beginning.
var (
	own      = regexp.MustCompile(`\$\{?(request_|document_)?uri\}?$`)
	anchored = regexp.MustCompile(`\^|\\[AbB]`)
)

// A way is how nginx hands on requests of a location.
type way struct {
	name string // of the directive; "" for rewriting
	at   *Directive
	to   string
	as   hop
	less []use // those that have not counted the requests here, and so do not there
}

// targets returns the locations to which a way may lead.
func (c *converter) targets(l *location, w way) []*location {
	root := l.chain()[0]
	within := w.name == "index" && !strings.ContainsAny(w.to[:min(1, len(w.to))], "/$") // a directory; a variable may begin with a slash
	named := within && !strings.Contains(w.to, "$")
	switch {
	case w.to == "" || strings.Contains(w.to, "://") || strings.HasPrefix(w.to, "$scheme"):
		return nil
	case strings.HasPrefix(w.to, "@"):
		return slices.DeleteFunc(slices.Clone(root.below), func(b *location) bool { return b.kind != "@" || b.path != w.to })
	}
	t := targetOf(w.to)
	if named {
		t = target{head: "/", open: true, name: w.to, fits: []*regexp.Regexp{regexp.MustCompile("/$")}}
	} else if within {
		t = targetOf("/${uri}" + w.to)
	}
	if !moves(l.at.Block) { // what is handed on has the paths of l
		if named && l.kind != "@" {
			t.from = l
		}
		for at := l; within && at.parent != nil && t.head == "/"; at = at.parent {
			if at.prefixed() {
				t.head = at.path
			}
		}
		for _, expr := range l.exprs() { // what matches these at the end matches them behind other text, too
			if named || own.MatchString(w.to) && !anchored.MatchString(expr) {
				t.fits = append(t.fits, importers.Compiled(expr, false))
			}
		}
	}
	key := fmt.Sprintf("%p %p %q %q %q", root, t.from, t.head, t.name, t.texts())
	all, known := c.led[key]
	if !known {
		if !named || !importers.WithinBefore(t.texts(), importers.Before{Expr: importers.Nothing}) { // l has directories
			all = root.leads(&t)
		}
		c.led[key] = all
	}
	return all
}

// moves reports whether rewriting changes the paths of requests that stay in a location.
func moves(block []Directive) bool {
	return slices.ContainsFunc(block, func(d Directive) bool {
		return d.Name == "rewrite" && (len(d.Args) == 2 || d.last() == "break") || d.Name == "if" && moves(d.Block)
	})
}

// follow returns the limits to which a way leads from l, also through other locations; nil if there are
// none. Rules do not see who goes where: all who may have these limits have them here.
func (c *converter) follow(l *location, first way) (found []use) {
	root := l.chain()[0]
	if first.to == "" || !uses(root) {
		return nil
	}
	changed, seen, several := []string{"uri", "document_uri", "arg_"}, make(map[*location]bool), false
	var walk func(l *location, w way)
	walk = func(l *location, w way) {
		if w.as == asGET {
			changed = append(changed, "request_method")
		}
		all := c.targets(l, w)
		several = several || w.name == "" && len(all) > 1
		if all != nil && w.as != rewritten { // nginx does the rewriting of the server again
			all = append(slices.Clone(all), nil)
		}
		for _, to := range all {
			if seen[to] {
				continue
			}
			seen[to] = true
			more, stays := c.ways(root, to)
			for _, w := range more {
				walk(cmp.Or(to, root), w)
			}
			if !stays {
				continue
			}
			there := slices.DeleteFunc(slices.Clone(to.uses), func(u use) bool { return slices.Contains(first.less, u) })
			if len(there) == 0 {
				continue
			}
			if to.reached = true; found != nil && !slices.Equal(found, there) {
				c.lose(first.at, "requests that this hands on to %s have its limits there, NOT KEPT: rules do not see where each request goes", to.text())
			}
			found = there
		}
	}
	walk(l, first)
	if several && found != nil {
		c.note(first.at, "all requests that this hands on have the limits to which %s leads for some: rules do not see where each request goes", first.to)
	}
	c.moved(first.at, found, changed...)
	return found
}

// ways returns how requests that have been handed on to a location go on; nil is for the rewriting of
// the server. stays says that some are counted there.
func (c *converter) ways(root, to *location) (all []way, stays bool) {
	if to == nil {
		for _, s := range c.steps(root, true) {
			if s.unsure || len(s.when) == 0 { // the others would have been met the first time
				all = append(all, s.way())
			}
		}
		return all, false
	}
	if stays = true; to != root { // whose rewriting has been done
		for _, s := range c.steps(to, true) {
			all, stays = append(all, s.way()), stays && !s.all()
		}
	}
	if stays && (len(to.uses) == 0 || c.partial(to.uses)) {
		all = append(all, to.ways()...)
	}
	return all, stays
}

// moved says that requests of which nginx has changed something are counted by what was sent.
func (c *converter) moved(d *Directive, uses []use, changed ...string) {
	for _, u := range uses {
		if c.depends(c.zones[u.zone].by, changed, 0) {
			c.lose(d, "for requests that are rewritten here, the limit of the zone %s is NOT KEPT as it is: nginx counts them by the path, query or method that this makes, rules by those that clients send", u.zone)
		}
	}
}
