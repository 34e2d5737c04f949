package importers

import (
	"regexp"
	"slices"
	"strings"
)

// named matches paths whose characters stand for themselves in a pattern.
var named = regexp.MustCompile(`^/[A-Za-z0-9/_.~!$&'()+,=:@ -]*$`)

// IsNamed reports whether a path stands for itself in a pattern.
func IsNamed(path string) bool {
	return named.MatchString(path) && !strings.Contains(path, "//") && !strings.Contains(path+"/", "/./") && !strings.Contains(path+"/", "/../")
}

// Prefixed returns the patterns of all paths that begin with a path.
func Prefixed(path string) []string {
	if strings.HasSuffix(path, "/") {
		return []string{path + "**"}
	}
	return []string{path + "*/**"}
}

// Expressions for the paths that configurations and rules know. Rules read a path without the
// slash at its end.
const (
	anyPath   = `^(?:(?:/[^/\n]+)+/?|/)$`
	cleanPath = `^(?:(?:/[^/\n]+)+|/)$`
	slashPath = `^(?:/[^/\n]+)*/$`
)

// Found are patterns for the paths that match all of some expressions.
type Found struct {
	All  []string // take each of these paths, for limits; nil if no patterns do, empty if there are no paths
	Less []string // take no other paths, for requests without a limit; nil if no patterns do
	More bool     // All takes other paths too
}

// FoundBy chooses from globs and narrow the patterns for the paths that match all of exprs.
// With anyCase, the patterns in All ignore case.
func FoundBy(globs, narrow, exprs []string, anyCase bool) (f Found) {
	only := func(glob, paths string) bool {
		return !slices.ContainsFunc(exprs, func(e string) bool { return !Within([]string{paths, pathExpr(glob)}, e) })
	}
	for _, g := range narrow {
		for range 2 { // if not all paths below match, those further below may
			if up, ok := strings.CutSuffix(g, "**"); ok && !only(g, cleanPath) {
				g = up + "*/**"
			}
		}
		if only(g, cleanPath) && !slices.Contains(f.Less, g) {
			f.Less = append(f.Less, g)
		}
	}
	missing := func() bool {
		expr := anyOf(globs, pathExpr)
		if anyCase {
			expr = "(?i)" + expr
		}
		return !Within(append([]string{anyPath}, exprs...), expr)
	}
	if missing() { // where a star that takes a segment stands for nothing
		if !Within(append([]string{"^/$"}, exprs...), Nothing) {
			globs = append(globs, "/")
		}
		for _, g := range globs {
			if up, ok := strings.CutSuffix(g, "/*"); ok && up != "" {
				globs = append(globs, up)
			}
		}
		if missing() {
			return f
		}
	}
	f.All = append([]string{}, globs...)
	if !anyCase && !slices.ContainsFunc(globs, func(g string) bool { return !only(g, cleanPath) }) {
		f.Less = f.All
	}
	f.More = slices.ContainsFunc(globs, func(g string) bool {
		return !only(g, cleanPath) && (strings.HasSuffix(g, "**/") || !only(g, slashPath))
	})
	return f
}

// Twins reports whether patterns take a path with a slash at its end that matches all of others
// and not all of exprs. Rules do not see that slash.
func Twins(globs, exprs, others []string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		return slices.ContainsFunc(exprs, func(e string) bool { return !Within(append([]string{slashPath, pathExpr(g)}, others...), e) })
	})
}

// Wider reports whether patterns take a path that does not match expr, with a slash at its end or without.
func Wider(globs []string, expr string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		return !Within([]string{slashPath, pathExpr(g)}, expr) || !Within([]string{cleanPath, pathExpr(g)}, expr)
	})
}

// pathExpr returns the expression of a pattern of paths, with or without a slash at the end.
func pathExpr(glob string) string {
	expr := "^"
	for _, segment := range strings.Split(strings.Trim(glob, "/"), "/") {
		switch segment {
		case "":
		case "**":
			expr += `(?:/[^/\n]+)*`
		case "*":
			expr += `/[^/\n]+`
		default:
			expr += "/" + strings.ReplaceAll(regexp.QuoteMeta(segment), `\*`, `[^/\n]*`)
		}
	}
	return expr + "/?$"
}

// TakesQueries reports whether patterns take the paths of all request targets, with or without
// a query, that match an expression.
func TakesQueries(globs []string, expr string) bool {
	return Within([]string{strings.TrimSuffix(strings.ReplaceAll(anyPath, "\\n", "?\\n"), "$") + `(?:\?.*)?$`, expr}, anyOf(globs, func(g string) string {
		return strings.TrimSuffix(strings.ReplaceAll(pathExpr(g), "\\n", "?\\n"), "$") + `(?:\?.*)?$`
	}))
}

// PathGlobs returns patterns of the paths below some prefixes that match an expression, and
// all others too.
func PathGlobs(expr string, anyCase bool, below, others []string) Found {
	exprs := append(slices.Clone(others), expr)
	if anyCase {
		exprs[len(others)] = "(?i)" + expr
	}
	globs, narrow := globsBelow(expr, below, exprs[len(others)], false), globsBelow(expr, below, exprs[len(others)], true)
	for _, g := range narrow {
		if up := strings.ToUpper(g); anyCase && up != g {
			narrow = append(narrow, up)
		}
	}
	return FoundBy(globs, narrow, exprs, anyCase)
}

// globsBelow returns candidates for the patterns of an expression; finds is the same
// expression, with (?i) if it ignores case.
func globsBelow(expr string, below []string, finds string, narrow bool) (all []string) {
	for _, prefix := range below {
		if !IsNamed(prefix) {
			continue
		}
		if prefix != "/" && Within([]string{"^" + regexp.QuoteMeta(prefix)}, finds) {
			all = append(all, Prefixed(prefix)...) // it matches everything below
			continue
		}
		for _, text := range alternativesOf(expr, narrow) {
			head := text
			if i := strings.IndexAny(text, anyText+inSegment); i >= 0 {
				head = text[:i]
			}
			switch rest := text[len(head):]; {
			case strings.HasPrefix(head, prefix):
			case strings.HasPrefix(prefix, head) && strings.HasPrefix(rest, anyText):
				text = prefix + rest
			default:
				continue // it matches nothing below the prefix
			}
			all = append(all, globsOf(text)...)
		}
	}
	if len(all) > mostAlternatives {
		return nil
	}
	return fewest(all, pathExpr)
}

// globsOf writes an alternative as patterns, nil if rules cannot express it.
func globsOf(text string) []string {
	const deep = "\x05"
	parts := strings.Split(text, anyText)
	all := []string{parts[0]}
	for i, next := range parts[1:] {
		var now []string
		if next == "" && i < len(parts)-2 {
			continue // two wildcards in a row are one
		}
		for _, a := range all {
			star := a + inSegment + "/" + deep
			if strings.HasSuffix(a, "/") {
				star = a + deep
			}
			switch {
			case next == "":
				now = append(now, star)
			case next[0] == '/':
				now = append(now, star+next)
			case strings.HasSuffix(a, "/"):
				now = append(now, star+"/"+inSegment+next)
			default:
				now = append(now, a+inSegment+next, star+"/"+inSegment+next)
			}
		}
		if all = now; len(all) > mostAlternatives {
			return nil
		}
	}
	for i, glob := range all {
		for strings.Contains(glob, inSegment+inSegment) {
			glob = strings.ReplaceAll(glob, inSegment+inSegment, inSegment)
		}
		if !IsNamed(strings.NewReplacer(inSegment, "x", deep, "x").Replace(glob)) {
			return nil
		}
		all[i] = strings.NewReplacer(inSegment, "*", deep, "**").Replace(strings.ReplaceAll(glob, deep+"/"+deep, deep))
	}
	return all
}

// Meet reports whether a path matches a pattern of each list. It ignores case.
func Meet(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return pathsMeet(x, y) })
	})
}

func pathsMeet(a, b string) bool {
	cut := func(s string) []string { return strings.Split(strings.Trim(s, "/"), "/") }
	return Common(cut(a), cut(b), "**", func(x, y string) bool {
		return Common(strings.Split(x, ""), strings.Split(y, ""), "*", strings.EqualFold)
	})
}

// Common reports whether a sequence matches both a and b, in which star stands for any
// number of elements.
func Common(a, b []string, star string, same func(x, y string) bool) bool {
	row := make([]bool, len(b)+1) // row[j] is Common of a[i+1:] and b[j:]
	for i := len(a); i >= 0; i-- {
		now := make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				now[j] = true
			case i < len(a) && a[i] == star:
				now[j] = row[j] || j < len(b) && now[j+1]
			case j < len(b) && b[j] == star:
				now[j] = now[j+1] || i < len(a) && row[j]
			case i < len(a) && j < len(b):
				now[j] = same(a[i], b[j]) && row[j+1]
			}
		}
		row = now
	}
	return row[0]
}
