package nginxrules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A choice is one case of a variable: its text where the conditions hold, and those of
// the choices before it do not.
type choice struct {
	when []importers.Cond
	text string
}

// attributes are what rules call the variables of a request.
var attributes = map[string]string{
	"binary_remote_addr": "ip", "remote_addr": "ip", "host": "host", "http_host": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path", "request_method": "method",
}

// attributeOf returns the attribute that a variable is, "" for none.
func attributeOf(name string) string {
	for prefix, kind := range map[string]string{"http_": "header.", "cookie_": "cookie.", "arg_": "query."} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && attributes[name] == "" {
			if kind == "header." {
				rest = strings.ReplaceAll(strings.ToLower(rest), "_", "-")
			}
			return kind + rest
		}
	}
	return attributes[name]
}

var variable = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)

// mostChoices bounds what a variable becomes.
const mostChoices = 10_000

// choices returns what a text with variables is, in which those of map and geo are
// replaced.
func (c *converter) choices(text string, deep int) (all []choice, err error) {
	if deep > deepest {
		return nil, errors.New("variables that name one another")
	}
	for _, m := range variable.FindAllStringSubmatchIndex(text, -1) {
		name := text[m[2]:m[3]]
		d := c.variables[name]
		if d == nil {
			continue
		}
		of := c.mapped
		if d.Name == "geo" {
			of = c.located
		}
		cases, err := of(d, deep+1)
		if err != nil {
			return nil, err
		}
		for _, one := range cases {
			rest, err := c.choices(text[:m[0]]+one.text+text[m[1]:], deep+1)
			if err != nil {
				return nil, err
			}
			for _, r := range rest {
				if importers.AllApart(one.when, r.when) {
					continue
				}
				when, ok := importers.Both(one.when, r.when)
				if !ok {
					return nil, fmt.Errorf("%s: two conditions for one attribute", d.where())
				}
				if all = append(all, choice{when, r.text}); len(all) > mostChoices {
					return nil, fmt.Errorf("%s: more than %d cases", d.where(), mostChoices)
				}
			}
		}
		return all, nil
	}
	return []choice{{nil, text}}, nil
}

// located returns the cases of a geo: the longest ranges first.
func (c *converter) located(d *Directive, _ int) (all []choice, err error) {
	if len(d.Args) == 2 && d.Args[0] != "$remote_addr" {
		return nil, fmt.Errorf("%s: geo of %s", d.where(), d.Args[0])
	}
	fallback := ""
	bits := func(a choice) int { p, _ := importers.PrefixOf(a.when[0].Values[0]); return p.Bits() }
	for i := range d.Block {
		switch e := &d.Block[i]; {
		case e.Name == "volatile":
		case len(e.Args) != 1 || e.gone != "":
			return nil, fmt.Errorf("%s: geo with %s", e.where(), e.Name)
		case e.Name == "default":
			fallback = e.Args[0]
		default:
			p, err := importers.PrefixOf(e.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: geo with %s", e.where(), e.Name)
			}
			all = append(all, choice{[]importers.Cond{{Attribute: "ip", Values: []string{strings.TrimSuffix(p.String(), fmt.Sprintf("/%d", p.Addr().BitLen()))}}}, e.Args[0]})
		}
	}
	slices.SortStableFunc(all, func(a, b choice) int { return bits(b) - bits(a) })
	return append(all, choice{text: fallback}), nil
}

// mapped returns the cases of a map: exact ones, expressions, and the default.
func (c *converter) mapped(d *Directive, deep int) (all []choice, err error) {
	sources, err := c.choices(d.Args[0], deep)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		c.named(d, s.text)
		cases := []choice{{text: c.constant(d, s.text)}}
		if strings.Contains(s.text, "$") {
			if cases, err = mapOf(d, s.text); err != nil {
				return nil, err
			}
		}
		for _, one := range cases {
			if importers.AllApart(s.when, one.when) {
				continue
			}
			when, ok := importers.Both(s.when, one.when)
			if !ok {
				return nil, fmt.Errorf("%s: two conditions for one attribute", d.where())
			}
			all = append(all, choice{when, one.text})
		}
	}
	return all, nil
}

// mapKey is the text of an entry: \default is the word itself.
func mapKey(e *Directive) string { return strings.TrimPrefix(e.Name, `\`) }

// constant looks a text up that has no variables.
func (c *converter) constant(d *Directive, text string) (found string) {
	for _, kind := range []string{"default", "~", ""} { // the later, the stronger
		for i := len(d.Block) - 1; i >= 0; i-- {
			e := &d.Block[i]
			if len(e.Args) != 1 {
				continue
			}
			expr, isExpr := strings.CutPrefix(e.Name, "~")
			switch re := importers.Compiled(strings.TrimPrefix(expr, "*"), strings.HasPrefix(expr, "*")); {
			case kind == "default" && e.Name == "default",
				kind == "~" && isExpr && re != nil && re.MatchString(text),
				kind == "" && !isExpr && e.Name != "default" && strings.EqualFold(mapKey(e), text):
				found = e.Args[0]
			}
		}
	}
	return found
}

// mapOf returns the cases of a map of one variable of the request.
func mapOf(d *Directive, source string) (all []choice, err error) {
	m := variable.FindStringSubmatch(source)
	attribute := ""
	if m != nil && m[0] == source {
		attribute = attributeOf(m[1])
	}
	if attribute == "" {
		return nil, fmt.Errorf("%s: map of %s", d.where(), source)
	}
	fallback := ""
	var exprs []choice
	for i := range d.Block {
		e := &d.Block[i]
		value := []importers.Cond{{Attribute: attribute, Values: []string{escaped(attribute, mapKey(e))}, Spelled: spelled(attribute, mapKey(e))}}
		switch expr, isExpr := strings.CutPrefix(e.Name, "~"); {
		case len(e.Args) == 0 && (e.Name == "volatile" || e.Name == "hostnames" && attribute == "host"):
		case len(e.Args) != 1 || e.gone != "":
			return nil, fmt.Errorf("%s: map with %s", e.where(), e.Name)
		case e.Name == "default":
			fallback = e.Args[0]
		case isExpr:
			if value = expressed(attribute, strings.TrimPrefix(expr, "*"), strings.HasPrefix(expr, "*")); value == nil {
				return nil, fmt.Errorf("%s: map with the expression %s", e.where(), e.Name)
			}
			exprs = append(exprs, choice{value, e.Args[0]})
		case mapKey(e) == "" && (attribute == "ip" || attribute == "path" || attribute == "method"): // none is ever empty
		case mapKey(e) == "":
			all = append(all, choice{[]importers.Cond{{Attribute: attribute}}, e.Args[0]})
		case attribute == "host" && strings.ContainsAny(e.Name[:1]+e.Name[len(e.Name)-1:], ".*"): // behind the exact ones
			value[0].Values = namesOf(e.Name)
			exprs = append(exprs, choice{value, e.Args[0]})
		case attribute == "path" && !importers.IsNamed(e.Name), attribute == "host" && !host.MatchString(e.Name), attribute == "method" && !plainValue.MatchString(e.Name):
			return nil, fmt.Errorf("%s: map with %s", e.where(), e.Name)
		default:
			all = append(all, choice{value, e.Args[0]})
		}
	}
	all = append(all, append(exprs, choice{text: fallback})...)
	for _, one := range all {
		if !sound(one.when) {
			return nil, fmt.Errorf("%s: map with %q", d.where(), one.when[0].Values)
		}
	}
	for _, one := range all { // HEAD is not GET to nginx
		if len(one.when) > 0 && importers.TakesHead(one.when) && !slices.ContainsFunc(all, func(o choice) bool { return len(o.when) > 0 && slices.Contains(o.when[0].Values, "HEAD") }) {
			return append([]choice{{[]importers.Cond{{Attribute: "method", Values: []string{"HEAD"}}}, fallback}}, all...), nil
		}
	}
	return all, nil
}

// escaped is a text as a pattern for itself.
func escaped(attribute, text string) string {
	switch attribute {
	case "path", "host", "ip":
		return text
	case "method":
		return strings.ToUpper(text)
	}
	return importers.Escape(text)
}

// expressed is the condition that an expression finds something in an attribute, nil
// if rules cannot say that.
func expressed(attribute, expr string, anyCase bool) []importers.Cond {
	values := importers.TextGlobs(expr, anyCase)
	if attribute == "path" && anyCase {
		return nil
	} else if attribute == "path" {
		values, _ = importers.PathGlobs(expr, "/", anyCase, true)
	}
	if values == nil || attribute == "ip" {
		return nil
	}
	if attribute == "host" || attribute == "method" {
		for i := range values {
			if values[i] = strings.ToUpper(values[i]); attribute == "host" {
				values[i] = strings.ToLower(values[i])
			}
			if !plainValue.MatchString(values[i]) {
				return nil
			}
		}
		slices.Sort(values)
		values = slices.Compact(values)
	}
	return []importers.Cond{{Attribute: attribute, Values: values, Spelled: anyCase && spelled(attribute, expr)}}
}

// spelled reports whether rules tell upper and lower case of a text apart.
func spelled(attribute, text string) bool {
	return attribute != "host" && attribute != "method" && attribute != "ip" && strings.ToLower(text) != strings.ToUpper(text)
}

// plainValue is what rules take for a host or a method.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9*-]+(\.[A-Za-z0-9*-]+)*$`)
