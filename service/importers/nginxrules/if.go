package nginxrules

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-dev/stint/service/importers"
)

var comparison = regexp.MustCompile(`^\$\{?([A-Za-z0-9_]+)\}?(?:\s+(=|!=|~\*?|!~\*?)\s*(.*))?$`)

// given adds the condition of an if to a step.
func (c *converter) given(s *step, d *Directive) {
	text := strings.TrimSpace(strings.Join(d.Args, " "))
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(text, "("), ")"))
	m := comparison.FindStringSubmatch(text)
	if m == nil || s.unsure || len(s.when) > 0 {
		s.unsure = true
		return
	}
	name, op, value := m[1], m[2], m[3]
	c.named(d, "$"+name)
	expr, not := strings.CutPrefix(op, "!")
	s.not = not
	had := s.path
	attribute := attributeOf(name)
	if coarse(name) {
		attribute = ""
	}
	switch {
	case attribute == "path" && s.path == "" && !not && expr != "" && expr != "~*":
		if s.path = value; expr == "=" {
			s.path = "^" + regexp.QuoteMeta(value) + "$"
		}
	case attribute == "" || attribute == "path":
		s.when, s.not = c.truths(name, expr, value, not)
	case expr == "":
		s.when = [][]importers.Cond{{{Attribute: attribute, Set: true, NotZero: strings.Contains(attribute, ".")}}}
	case expr == "=" && value == "":
		s.when = [][]importers.Cond{{{Attribute: attribute}}}
	case expr == "=" && (attribute != "host" || value == strings.ToLower(value)) && (attribute != "method" || value == strings.ToUpper(value)):
		s.when = [][]importers.Cond{{{Attribute: attribute, Values: []string{escaped(attribute, value)}}}}
	case expr == "=": // the condition never holds
	default:
		if when := expressed(attribute, value, expr == "~*"); when != nil {
			s.when = [][]importers.Cond{{*when}}
			if re := importers.Compiled(value, false); strings.Contains(attribute, ".") && re != nil && re.MatchString("") {
				s.when = append(s.when, []importers.Cond{{Attribute: attribute}}) // a missing variable is empty, and the expression matches that
			}
		}
	}
	s.unsure = len(s.when) == 0 && s.path == had
	for _, w := range s.when {
		if importers.TakesHead(w) { // HEAD would go without its limits, since rules take it for GET
			w[0].Wide, w[0].Less = true, nil
		}
		s.unsure = s.unsure || !sound(w) || slices.ContainsFunc(w, func(c importers.Cond) bool { return c.Spelled }) // other spellings would go without, too
	}
}

func sound(when []importers.Cond) bool {
	return !slices.ContainsFunc(when, func(c importers.Cond) bool {
		return slices.ContainsFunc(c.Values, func(v string) bool { return !soundValue(c.Attribute, v) })
	})
}

func soundValue(attribute, v string) bool {
	switch attribute {
	case "host":
		return plainValue.MatchString(v)
	case "method":
		return !strings.ContainsFunc(v, func(r rune) bool { return r != '-' && r != '*' && (r < 'A' || r > 'Z') }) && v != ""
	case "ip":
		p, err := importers.PrefixOf(v)
		return err == nil && !p.Addr().Is4In6()
	}
	return utf8.ValidString(v) && !strings.ContainsFunc(v, unicode.IsControl)
}

// truths returns the conditions under which a variable of map or geo is what an if asks for;
// none if rules cannot express them. If inverted, the if holds where none of them does.
func (c *converter) truths(name, op, value string, not bool) (when [][]importers.Cond, inverted bool) {
	if c.variables[strings.ToLower(name)] == nil {
		return nil, false
	}
	all, err := c.choices("$"+name, 0)
	if err != nil || len(all) == 0 || op != "" && op != "=" {
		return nil, false
	}
	isTrue := func(one choice) bool {
		return op == "" && one.text != "" && one.text != "0" || op == "=" && one.text == value
	}
	last := all[len(all)-1]
	rest := isTrue(last)
	for i, one := range all[:len(all)-1] {
		if strings.Contains(one.text, "$") || len(one.when) == 0 {
			return nil, false
		}
		if isTrue(one) == rest {
			if slices.ContainsFunc(all[i+1:len(all)-1], func(o choice) bool { return isTrue(o) != rest && !importers.AllApart(o.when, one.when) }) {
				return nil, false
			}
			continue
		}
		when = append(when, one.when)
	}
	if strings.Contains(last.text, "$") || len(last.when) > 0 {
		return nil, false
	}
	return when, rest != not
}
