package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
)

// Text writes a failure as lines for people: where, what was asked, and a diff
// of what must come and what came.
func (f *Failure) Text(file string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: at %s", file, f.Line, f.Column, f.When)
	if f.Of > 1 {
		fmt.Fprintf(&b, ", the %s of %d", ordinal(f.Nth), f.Of)
	}
	fmt.Fprintf(&b, "\n    %s\n", describe(f.Attributes))
	for _, d := range f.Fields {
		if d.Want != "" {
			fmt.Fprintf(&b, "    - %s: %s\n", d.Field, d.Want)
		}
		fmt.Fprintf(&b, "    + %s: %s\n", d.Field, d.Got)
	}
	return b.String()
}

// describe writes a request: method and path, then the rest by name.
func describe(attributes map[string]string) string {
	var words []string
	line := []request.Kind{request.Method, request.Host, request.Path}
	for _, kind := range line {
		if v := attributes[kind.String()]; v != "" {
			words = append(words, plainOrQuoted(v))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if !slices.Contains(line, request.Of(name).Kind) {
			words = append(words, name+"="+plainOrQuoted(attributes[name]))
		}
	}
	return cmp.Or(strings.Join(words, " "), "a request without attributes")
}

func plainOrQuoted(v string) string {
	const most = 64
	if len(v) > most {
		v = v[:most] + "…"
	}
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f || r == '\ufffd' }) {
		return fmt.Sprintf("%q", v)
	}
	return v
}

func ordinal(n int64) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}
