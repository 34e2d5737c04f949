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
	to = variable.ReplaceAllString(to, "\x00")
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

// limited reports whether all outcomes have the limits of some others.
func limited(all, others []outcome) bool {
	return !slices.ContainsFunc(others, func(o outcome) bool {
		return len(o.uses) > 0 && slices.ContainsFunc(all, func(a outcome) bool { return !slices.Equal(a.uses, o.uses) })
	})
}

// own matches what ends with the path that a location was found by, and anchored what matches text by its beginning.
var (
	own      = regexp.MustCompile(`\$\{?(request_|document_)?uri\}?$`)
	anchored = regexp.MustCompile(`\^|\\[AbB]`)
)

// follow returns the outcomes of requests that nginx hands on, from l to a path or to a named location.
func (c *converter) follow(l *location, d *Directive, to string, as hop) []outcome {
	root := l.chain()[0]
	switch {
	case !uses(root), strings.Contains(to, "://"), strings.HasPrefix(to, "$scheme"):
	case !strings.HasPrefix(to, "@"):
		t := targetOf(to)
		for _, expr := range l.exprs() { // what matches these at the end matches them behind other text, too
			if own.MatchString(to) && !anchored.MatchString(expr) {
				t.fits = append(t.fits, importers.Compiled(expr, false))
			}
		}
		return c.lead(root, d, &t, as)
	default:
		for _, b := range root.below {
			if b.kind == "@" && b.path == to {
				return c.flow(b, true)
			}
		}
	}
	return []outcome{{at: d}}
}

// lead returns the outcomes of requests that are handed on to a target.
func (c *converter) lead(root *location, d *Directive, t *target, as hop) (there []outcome) {
	key := fmt.Sprintf("%p %p %q %q", root, t.from, t.name, t.texts())
	if c.led[key] == nil {
		c.led[key] = root.leads(t)
	}
	for _, to := range slices.Backward(c.led[key]) {
		some := c.flow(to, true)
		if there == nil {
			there = some
		} else if limits(some) && !limited(there, some) {
			c.lose(d, "requests that this hands on to %s have its limits there, NOT KEPT: rules do not see where each request goes", to.text())
		}
	}
	if as != rewritten { // nginx does the rewriting of the server again
		there = c.either(there, c.again(root))
	}
	changed := []string{"uri", "document_uri", "arg_"}
	if as == asGET {
		changed = append(changed, "request_method")
	}
	for _, o := range there {
		c.moved(d, o.uses, changed...)
	}
	return there
}

// again returns the outcomes of requests of which the rewriting of a server is done a second time.
// Conditions that stay the same would have been met the first time.
func (c *converter) again(root *location) []outcome {
	if !c.seen[nil] {
		c.seen[nil] = true
		var all []outcome
		for _, s := range c.steps(root, true) {
			if s.to != "" && (s.unsure || len(s.when) == 0) {
				all = c.either(all, c.follow(root, s.at, s.to, s.as))
			}
		}
		c.learn(nil, all)
	}
	return slices.Clone(c.known[nil])
}

// indexed returns the outcomes of requests for directories of a location, for a name of its index.
func (c *converter) indexed(l *location, name string) []outcome {
	root := l.chain()[0]
	switch {
	case strings.HasPrefix(name, "/"):
		return c.follow(l, l.at, name, redirected)
	case !uses(root):
		return []outcome{{at: l.at}}
	}
	t := target{head: "/", open: true, name: name, fits: []*regexp.Regexp{regexp.MustCompile("/$")}}
	if l.kind != "@" {
		t.from = l
	}
	for at := l; at.parent != nil && t.head == "/"; at = at.parent {
		if at.prefixed() {
			t.head = at.path
		}
	}
	for _, expr := range l.exprs() {
		t.fits = append(t.fits, importers.Compiled(expr, false))
	}
	if importers.WithinBefore(t.texts(), importers.Before{Expr: importers.Nothing}) { // l has no directories
		return []outcome{{at: l.at}}
	}
	return c.lead(root, l.at, &t, redirected)
}

// moved says that requests of which nginx has changed something are counted by what was sent.
func (c *converter) moved(d *Directive, uses []use, changed ...string) {
	for _, u := range uses {
		if c.depends(c.zones[u.zone].by, changed, 0) {
			c.lose(d, "for requests that are rewritten here, the limit of the zone %s is NOT KEPT as it is: nginx counts them by the path, query or method that this makes, rules by those that clients send", u.zone)
		}
	}
}
