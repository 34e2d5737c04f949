package importers

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// Placeholders in an alternative, for text that is not literal.
const (
	anyText   = "\x00" // any text, with slashes
	inSegment = "\x01" // text without a slash
	begin     = "\x03"
	end       = "\x04"
)

// mostAlternatives is how many alternatives one expression may become.
const mostAlternatives = 64

// alternativesOf returns texts of which an expression finds one, or less, anywhere in what it
// fits; nil if that cannot be said so. With narrow, a dot is one, as it is mostly meant.
func alternativesOf(expr string, narrow bool) (all []string) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	for _, a := range enumerate(re, narrow) {
		if !strings.HasPrefix(a, begin) {
			a = anyText + a
		}
		if !strings.HasSuffix(a, end) {
			a += anyText
		}
		a = strings.TrimSuffix(strings.TrimPrefix(a, begin), end)
		if strings.ContainsAny(a, begin+end) {
			return nil
		}
		all = append(all, a)
	}
	return all
}

// enumerate returns the alternatives of an expression, nil if there are too many.
func enumerate(re *syntax.Regexp, narrow bool) []string {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}
	case syntax.OpLiteral:
		text := ""
		for _, r := range re.Rune {
			switch letter := re.Flags&syntax.FoldCase != 0 && unicode.SimpleFold(r) != r; {
			case letter && narrow:
				return nil // it ignores case
			case letter:
				text += inSegment
			default:
				text += string(r)
			}
		}
		return []string{text}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		if narrow {
			return []string{"."}
		}
		return []string{inSegment, "/"}
	case syntax.OpCharClass:
		return class(re)
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []string{begin}
	case syntax.OpEndText, syntax.OpEndLine:
		return []string{end}
	case syntax.OpCapture:
		return enumerate(re.Sub[0], narrow)
	case syntax.OpQuest:
		return product(append(enumerate(re.Sub[0], narrow), ""), []string{""})
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat: // patterns cannot count
		if sub := re.Sub[0]; sub.Op == syntax.OpCharClass && !hasSlash(sub) {
			return []string{inSegment}
		}
		return []string{anyText}
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			some := enumerate(sub, narrow)
			if some == nil {
				return nil
			}
			all = append(all, some...)
		}
		return product(all, []string{""})
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			all = product(all, enumerate(sub, narrow))
		}
		return all
	}
	return nil
}

func product(a, b []string) (all []string) {
	if len(a)*len(b) > mostAlternatives {
		return nil
	}
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

// class returns the alternatives of a character class.
func class(re *syntax.Regexp) (all []string) {
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for c := re.Rune[i]; c <= re.Rune[i+1] && len(all) <= 4; c++ {
			all = append(all, string(c))
		}
	}
	switch {
	case len(all) <= 4:
		return all
	case hasSlash(re):
		return []string{inSegment, "/"}
	}
	return []string{inSegment}
}

// hasSlash reports whether a class of characters has the slash.
func hasSlash(re *syntax.Regexp) bool {
	for i := 0; i+1 < len(re.Rune); i += 2 {
		if re.Rune[i] <= '/' && '/' <= re.Rune[i+1] {
			return true
		}
	}
	return false
}

// Compiled compiles an expression. It is nil if Go does not support it, such as one that
// looks ahead.
func Compiled(expr string, anyCase bool) *regexp.Regexp {
	if anyCase {
		expr = "(?i)" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil
	}
	return re
}

// CutFold takes (?i) from the beginning of an expression, and reports whether it was there.
func CutFold(expr string) (rest string, anyCase bool) { return strings.CutPrefix(expr, "(?i)") }

// HostExpr is an expression for hosts in lower case.
const HostExpr = `^(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])$`

// TextGlobs returns patterns for values such as a header's. Of the values that match the
// expression values, all take each one that matches expr, though with anyCase not in every
// spelling; less take no others. Either is nil if there are none.
func TextGlobs(expr, values string, anyCase bool) (all, less []string) {
	finds, fold := expr, ""
	if anyCase {
		finds, fold = "(?i)"+expr, "(?i)"
	}
	only := func(glob string) bool { return Within([]string{values, textExpr(glob)}, finds) }
	all, less = spellings(alternativesOf(expr, false), anyCase), slices.DeleteFunc(spellings(alternativesOf(expr, true), anyCase), func(glob string) bool { return !only(glob) })
	switch {
	case !Within([]string{values, finds}, fold+anyOf(all, textExpr)):
		return nil, less
	case !slices.ContainsFunc(all, func(glob string) bool { return !only(glob) }):
		return all, all
	}
	return all, less
}

// spellings returns patterns for alternatives, with anyCase in several spellings.
func spellings(alternatives []string, anyCase bool) (all []string) {
	for _, a := range alternatives {
		text := strings.ReplaceAll(Escape(markers.ReplaceAllString(a, anyText)), anyText, "*")
		some := []string{text}
		if low := strings.ToLower(text); anyCase {
			some = []string{low, strings.ToUpper(low)}
			if i := strings.IndexFunc(low, func(c rune) bool { return 'a' <= c && c <= 'z' }); i >= 0 {
				some = append(some, low[:i]+strings.ToUpper(low[i:i+1])+low[i+1:])
			}
		}
		all = append(all, some...)
	}
	return fewest(all, textExpr)
}

// fewest leaves out the patterns that others take in.
func fewest(all []string, expr func(glob string) string) []string {
	for i := 0; i < len(all) && len(all) <= 16; i++ {
		if slices.ContainsFunc(slices.Concat(all[:i], all[i+1:]), func(o string) bool {
			return (strings.Contains(o, "*") || len(o) == len(all[i])) && Within([]string{expr(all[i])}, expr(o))
		}) {
			all = slices.Delete(all, i, i+1)
			i--
		}
	}
	return all
}

// markers matches placeholders for text that is not literal.
var markers = regexp.MustCompile("[" + anyText + inSegment + "]+")

// textExpr returns the expression of a pattern for a value.
func textExpr(glob string) string {
	quoted := regexp.QuoteMeta(glob)
	return "^" + strings.NewReplacer(`\\\\`, `\\`, `\\\*`, `\*`, `\*`, `(?s:.*)`).Replace(quoted) + "$"
}

// Nothing is an expression that matches no text.
const Nothing = `[^\x00-\x{10FFFF}]`

// anyOf returns an expression for any of some patterns.
func anyOf(globs []string, expr func(glob string) string) string {
	if len(globs) == 0 {
		return Nothing
	}
	texts := make([]string, len(globs))
	for i, g := range globs {
		texts[i] = expr(g)
	}
	return "(?:" + strings.Join(texts, "|") + ")"
}

// Prefixes returns prefixes, one of which begins each path that an expression matches; nil if
// there are none.
func Prefixes(expr string) (all []string) {
	for _, a := range alternativesOf(expr, false) {
		head, anything := strings.CutSuffix(a, anyText)
		if !anything || strings.ContainsAny(head, anyText+inSegment) {
			return nil
		}
		all = append(all, head)
	}
	return all
}
