package importers

import (
	"regexp"
	"slices"
	"strings"
)

// named is a path that stands for itself in a pattern.
var named = regexp.MustCompile(`^/[A-Za-z0-9/_.~!$&'()+,=:@ -]*$`)

// IsNamed reports whether a path stands for itself in a pattern.
func IsNamed(path string) bool {
	return named.MatchString(path) && !strings.Contains(path, "//") && !strings.Contains(path+"/", "/./") && !strings.Contains(path+"/", "/../")
}

// Prefixed are the patterns of paths that begin so.
func Prefixed(path string) []string {
	if strings.HasSuffix(path, "/") {
		return []string{path + "**"}
	}
	return []string{path + "*/**"}
}

// PathGlobs are the patterns of paths below a prefix that an expression takes, nil if
// there are none. With narrow they take no other paths.
func PathGlobs(expr, below string, anyCase, narrow bool) (all []string, wide bool) {
	if re := Compiled(expr, anyCase); re != nil && below != "/" && re.MatchString(below) && !strings.HasSuffix(expr, "$") {
		return Prefixed(below), false // all that is below
	}
	for _, a := range alternativesOf(expr) {
		wide = wide || a.wide
		text := a.text
		dot := inSegment
		if narrow {
			dot = "."
		} else if strings.Contains(text, oneChar) {
			wide = true
		}
		text = strings.ReplaceAll(text, oneChar, dot)
		head := text
		if i := strings.IndexAny(text, anyText+inSegment); i >= 0 {
			head = text[:i]
		}
		switch rest := text[len(head):]; {
		case strings.HasPrefix(head, below):
		case strings.HasPrefix(below, head) && strings.HasPrefix(rest, anyText):
			text = below + rest
		default:
			continue // it finds nothing there
		}
		globs := globsOf(text)
		if globs == nil {
			return nil, false
		}
		all = append(all, globs...)
	}
	if narrow && wide || len(all) > mostAlternatives {
		return nil, false
	}
	return all, wide
}

// globsOf writes an alternative as patterns, nil if rules cannot.
func globsOf(text string) []string {
	const deep = "\x05"
	parts := strings.Split(text, anyText)
	all := []string{parts[0]}
	for i, next := range parts[1:] {
		var now []string
		if next == "" && i < len(parts)-2 {
			continue // twice is once
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
		all[i] = strings.NewReplacer(inSegment, "*", deep, "**").Replace(glob)
	}
	return all
}

// Meet reports whether some path fits patterns of both lists, upper and lower case
// aside.
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

// Common reports whether some sequence fits both of two, in which star stands for any
// number of elements.
func Common(a, b []string, star string, same func(x, y string) bool) bool {
	row := make([]bool, len(b)+1) // of a[i+1:], by j
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
