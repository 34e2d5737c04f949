package importers

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// What stands in an alternative for text that is not literal.
const (
	anyText   = "\x00" // also slashes
	inSegment = "\x01" // text without a slash
	oneChar   = "\x02" // a dot of an expression: mostly one that was meant literally
	begin     = "\x03"
	end       = "\x04"
)

// mostAlternatives bounds what one expression becomes.
const mostAlternatives = 64

// An alternative is a text that an expression finds.
type alternative struct {
	text string
	wide bool // it takes more than the expression
}

// alternativesOf returns what an expression finds anywhere in a text, nil if that
// cannot be said so.
func alternativesOf(expr string) (all []alternative) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	for _, a := range enumerate(re) {
		if !strings.HasPrefix(a.text, begin) {
			a.text = anyText + a.text
		}
		if !strings.HasSuffix(a.text, end) {
			a.text += anyText
		}
		a.text = strings.TrimSuffix(strings.TrimPrefix(a.text, begin), end)
		if strings.ContainsAny(a.text, begin+end) {
			return nil
		}
		all = append(all, a)
	}
	return all
}

// enumerate returns the alternatives of an expression, nil if there are too many.
func enumerate(re *syntax.Regexp) []alternative {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []alternative{{}}
	case syntax.OpLiteral:
		return []alternative{{text: string(re.Rune)}}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []alternative{{text: oneChar}}
	case syntax.OpCharClass:
		return class(re)
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []alternative{{text: begin}}
	case syntax.OpEndText, syntax.OpEndLine:
		return []alternative{{text: end}}
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []alternative{{wide: true}}
	case syntax.OpCapture:
		return enumerate(re.Sub[0])
	case syntax.OpQuest:
		return limited(append(enumerate(re.Sub[0]), alternative{}))
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return []alternative{repeated(re.Sub[0])}
	case syntax.OpAlternate:
		var all []alternative
		for _, sub := range re.Sub {
			some := enumerate(sub)
			if some == nil {
				return nil
			}
			all = append(all, some...)
		}
		return limited(all)
	case syntax.OpConcat:
		all := []alternative{{}}
		for _, sub := range re.Sub {
			all = product(all, enumerate(sub))
		}
		return all
	}
	return nil
}

func limited(all []alternative) []alternative {
	if len(all) > mostAlternatives {
		return nil
	}
	return all
}

func product(a, b []alternative) (all []alternative) {
	if len(a)*len(b) > mostAlternatives {
		return nil
	}
	for _, x := range a {
		for _, y := range b {
			all = append(all, alternative{x.text + y.text, x.wide || y.wide})
		}
	}
	return all
}

// class is one character of several.
func class(re *syntax.Regexp) (all []alternative) {
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for c := re.Rune[i]; c <= re.Rune[i+1] && len(all) <= 4; c++ {
			all = append(all, alternative{text: string(c)})
		}
	}
	if len(all) <= 4 {
		return all
	}
	return []alternative{{inSegment, true}}
}

// repeated is what comes any number of times.
func repeated(sub *syntax.Regexp) alternative {
	switch sub.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return alternative{text: anyText}
	case syntax.OpCharClass:
		slash, most := false, 0
		for i := 0; i+1 < len(sub.Rune); i += 2 {
			slash = slash || sub.Rune[i] <= '/' && '/' <= sub.Rune[i+1]
			most += int(sub.Rune[i+1] - sub.Rune[i])
		}
		if slash {
			return alternative{anyText, true}
		}
		return alternative{inSegment, most < 1000} // all but a slash, as it says
	}
	return alternative{anyText, true}
}

// Compiled is an expression, nil for what this does not know, such
// as looking ahead.
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

// TextGlobs are patterns for a header and its kind, nil if there are none that say
// exactly the same.
func TextGlobs(expr string, anyCase bool) (all []string) {
	for _, a := range alternativesOf(expr) {
		if a.wide || strings.Contains(a.text, inSegment) {
			return nil
		}
		text := strings.NewReplacer(`\`, `\\`, `*`, `\*`, anyText, "*", oneChar, "*").Replace(a.text)
		all = append(all, text)
		if low := strings.ToLower(text); anyCase {
			all = append(all[:len(all)-1], low, strings.ToUpper(low))
			if i := strings.IndexFunc(low, func(c rune) bool { return 'a' <= c && c <= 'z' }); i >= 0 {
				all = append(all, low[:i]+strings.ToUpper(low[i:i+1])+low[i+1:])
			}
		}
	}
	return all
}

// Prefixes are what the paths that an expression finds begin with, nil if that does not
// say which paths these are.
func Prefixes(expr string) (all []string) {
	for _, a := range alternativesOf(expr) {
		head, anything := strings.CutSuffix(a.text, anyText)
		if !anything || a.wide || strings.ContainsAny(head, anyText+inSegment+oneChar) {
			return nil
		}
		all = append(all, head)
	}
	return all
}
