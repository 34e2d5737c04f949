package nginxrules

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/service/importers"
)

// A choice is one case of a variable: the text that it has if the conditions hold, and those of
// the choices before it do not.
type choice struct {
	when []importers.Cond
	text string
}

// attributes has the names that rules use for variables of nginx.
var attributes = map[string]string{
	"binary_remote_addr": "ip", "remote_addr": "ip", "host": "host", "http_host": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path", "request_method": "method",
}

// hops are the headers that belong to one connection, and are not passed on.
var hops = []string{"connection", "upgrade", "te", "trailer", "transfer-encoding", "keep-alive", "proxy-connection", "http2-settings"}

// attributeOf returns the attribute for a variable, or "" if there is none.
func attributeOf(name string) string {
	for prefix, kind := range map[string]string{"http_": "header.", "cookie_": "cookie.", "arg_": "query."} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && attributes[name] == "" {
			if kind == "header." {
				rest = strings.ReplaceAll(strings.ToLower(rest), "_", "-")
				if request.Claimed(http.CanonicalHeaderKey(rest)) || slices.Contains(hops, rest) {
					return "" // stint proxy removes it from requests of clients, so rules never see it
				}
			}
			return kind + rest
		}
	}
	return attributes[name]
}

var variable = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)

const mostChoices = 10_000

// choices returns the cases of a text, in which variables of map and geo are replaced by their
// values.
func (c *converter) choices(text string, deep int) (all []choice, err error) {
	if deep > deepest {
		return nil, errors.New("variables that name one another")
	}
	for _, m := range variable.FindAllStringSubmatchIndex(text, -1) {
		name := text[m[2]:m[3]]
		d := c.variables[strings.ToLower(name)]
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
			joined := one.text
			if m[1]-m[0] < len(text) { // with braces, so that no name takes in what follows
				joined = variable.ReplaceAllString(text[:m[0]], "$${${1}}") + variable.ReplaceAllString(joined, "$${${1}}") + text[m[1]:]
			}
			rest, err := c.choices(joined, deep+1)
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

// depends reports whether a text has one of some variables, of which arg_ stands for all of these.
func (c *converter) depends(text string, names []string, deep int) bool {
	return slices.ContainsFunc(variable.FindAllStringSubmatch(text, -1), func(m []string) bool {
		d := c.variables[strings.ToLower(m[1])]
		switch {
		case d == nil:
			return slices.ContainsFunc(names, func(n string) bool { return m[1] == n || n == "arg_" && strings.HasPrefix(m[1], n) })
		case deep > deepest || len(d.Args) == 2 && c.depends(d.Args[0], names, deep+1):
			return true
		}
		return slices.ContainsFunc(d.Block, func(e Directive) bool { return len(e.Args) == 1 && c.depends(e.Args[0], names, deep+1) })
	})
}

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
		case strings.Contains(e.Args[0], "$"): // a text, there
			return nil, fmt.Errorf("%s: geo with the value %s", e.where(), e.Args[0])
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
	slices.Reverse(all) // of a network that comes twice, the last counts
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
		cases := constant
		if strings.Contains(s.text, "$") {
			cases = mapOf
		}
		some, err := cases(d, s.text)
		if err != nil {
			return nil, err
		}
		for _, one := range some {
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

// mapKey returns the text that an entry is for: \default is for the word "default".
func mapKey(e *Directive) string { return strings.TrimPrefix(e.Name, `\`) }

// constant returns the one case of a map whose source is a text without variables.
func constant(d *Directive, text string) (all []choice, err error) {
	found := ""
	for _, kind := range []string{"default", "~", ""} { // a later kind beats an earlier one
		for i := len(d.Block) - 1; i >= 0; i-- {
			e := &d.Block[i]
			if e.Name == "hostnames" && len(e.Args) == 0 {
				return nil, fmt.Errorf("%s: hostnames for the text of a variable", e.where())
			}
			if len(e.Args) != 1 {
				continue
			}
			expr, isExpr := strings.CutPrefix(e.Name, "~")
			re := importers.Compiled(strings.TrimPrefix(expr, "*"), strings.HasPrefix(expr, "*"))
			switch {
			case isExpr && re == nil:
				return nil, fmt.Errorf("%s: map with the expression %s", e.where(), e.Name)
			case kind == "default" && e.Name == "default",
				kind == "~" && isExpr && text != "" && re.MatchString(text), // nginx tries no expression on an empty text
				kind == "" && !isExpr && e.Name != "default" && strings.EqualFold(mapKey(e), text):
				found = e.Args[0]
			}
		}
	}
	return []choice{{text: found}}, nil
}

// coarse reports whether rules see only a part of a variable, without the query, port or case.
func coarse(name string) bool { return name == "request_uri" || name == "http_host" }

// mapOf returns the cases of a map of one variable of the request: words, names with stars, and
// expressions, in the order in which nginx tries them.
func mapOf(d *Directive, source string) (all []choice, err error) {
	m := variable.FindStringSubmatch(source)
	attribute := ""
	if m != nil && m[0] == source {
		attribute = attributeOf(m[1])
	}
	if attribute == "" {
		return nil, fmt.Errorf("%s: map of %s", d.where(), source)
	}
	fallback, hostnames := "", false
	var stars, exprs []choice
	for i := range d.Block {
		e := &d.Block[i]
		value := importers.Cond{Attribute: attribute, Values: []string{escaped(attribute, mapKey(e))}, Spelled: spelled(attribute, mapKey(e))}
		switch expr, isExpr := strings.CutPrefix(e.Name, "~"); {
		case len(e.Args) == 0 && (e.Name == "volatile" || e.Name == "hostnames" && attribute == "host"):
			hostnames = hostnames || e.Name == "hostnames"
		case len(e.Args) != 1 || e.gone != "":
			return nil, fmt.Errorf("%s: map with %s", e.where(), e.Name)
		case e.Name == "default":
			fallback = e.Args[0]
		case isExpr:
			found := expressed(attribute, strings.TrimPrefix(expr, "*"), strings.HasPrefix(expr, "*"))
			if found == nil || m[1] == "http_host" || m[1] == "request_uri" && !importers.TakesQueries(found.Values, expr) {
				return nil, fmt.Errorf("%s: map with the expression %s", e.where(), e.Name)
			}
			if value, some := filled(*found); some {
				exprs = append(exprs, choice{[]importers.Cond{value}, e.Args[0]})
			}
		case mapKey(e) == "" && (attribute == "ip" || attribute == "path" || attribute == "method"): // these are never empty
		case mapKey(e) == "":
			all = append(all, choice{[]importers.Cond{{Attribute: attribute}}, e.Args[0]})
		case attribute == "host" && strings.ContainsAny(e.Name[:1]+e.Name[len(e.Name)-1:], ".*"):
			for _, name := range namesOf(e.Name) { // without hostnames, no host has such a name
				one := choice{[]importers.Cond{{Attribute: attribute, Values: []string{name}}}, e.Args[0]}
				if hostnames && strings.Contains(name, "*") {
					stars = append(stars, one)
				} else if hostnames {
					all = append(all, one)
				}
			}
		case attribute == "path" && !importers.IsNamed(e.Name), attribute == "host" && !host.MatchString(e.Name), attribute == "method" && !plainValue.MatchString(e.Name):
			return nil, fmt.Errorf("%s: map with %s", e.where(), e.Name)
		default:
			value.Wide = attribute == "path" && mapKey(e) != "/" // rules do not see a slash at its end
			all = append(all, choice{[]importers.Cond{value}, e.Args[0]})
		}
	}
	none := &server{}
	slices.SortStableFunc(stars, func(a, b choice) int {
		x, y := a.when[0].Values[0], b.when[0].Values[0]
		return cmp.Or(none.rank(x)-none.rank(y), len(y)-len(x))
	})
	all = slices.Concat(all, stars, exprs, []choice{{text: fallback}})
	for i := range all {
		one := &all[i]
		if coarse(m[1]) && len(one.when) > 0 && one.when[0].Values != nil {
			one.when[0].Wide, one.when[0].Less = true, nil
		}
		if !sound(one.when) {
			return nil, fmt.Errorf("%s: map with %q", d.where(), one.when[0].Values)
		}
	}
	if attribute == "method" {
		return withHead(d, all)
	}
	return all, nil
}

// withHead puts a case for HEAD before the others if a case names GET alone, which rules take for
// both.
func withHead(d *Directive, all []choice) ([]choice, error) {
	if !slices.ContainsFunc(all, func(o choice) bool { return importers.TakesHead(o.when) }) {
		return all, nil
	}
	head, err := constant(d, "HEAD")
	if err != nil {
		return nil, err
	}
	head[0].when = []importers.Cond{{Attribute: "method", Values: []string{"HEAD"}}}
	return append(head, all...), nil
}

// filled removes the empty text from the condition of an expression, since a map tries no expression
// on it. ok is false if nothing is left.
func filled(one importers.Cond) (_ importers.Cond, ok bool) {
	if !strings.Contains(one.Attribute, ".") {
		return one, true // the attribute is never empty
	}
	if !one.Wide && slices.ContainsFunc(one.Values, func(v string) bool { return v != "" && strings.Trim(v, "*") == "" }) {
		return importers.Cond{Attribute: one.Attribute, Set: true}, true
	}
	empty := func(v string) bool { return v == "" }
	one.Values, one.Less = slices.DeleteFunc(slices.Clone(one.Values), empty), slices.DeleteFunc(slices.Clone(one.Less), empty)
	return one, len(one.Values) > 0
}

// escaped returns a pattern that matches only the text.
func escaped(attribute, text string) string {
	switch attribute {
	case "path", "host", "ip":
		return text
	case "method":
		return strings.ToUpper(text)
	}
	return importers.Escape(text)
}

// expressed returns the condition that an attribute matches an expression; nil if rules cannot
// express it.
func expressed(attribute, expr string, anyCase bool) *importers.Cond {
	expr, fold := importers.CutFold(expr)
	anyCase = anyCase || fold
	c := importers.Cond{Attribute: attribute, Spelled: anyCase && spelled(attribute, expr)}
	values, of := `^[^\n]+$`, func(v string) string { return v }
	switch attribute {
	case "host":
		values, of = importers.HostExpr, strings.ToLower
	case "method":
		values, of = `^[A-Z_-]+$`, strings.ToUpper
	}
	if attribute == "path" {
		found := importers.PathGlobs(expr, anyCase, []string{"/"}, nil)
		if c.Values, c.Less = found.All, found.Less; importers.Twins(c.Less, []string{expr}, nil) {
			c.Less = nil
		}
	} else {
		c.Values, c.Less = importers.TextGlobs(expr, values, anyCase)
	}
	c.Wide = !slices.Equal(c.Values, c.Less)
	other := func(v string) bool { return v != of(v) }
	c.Values, c.Less = slices.DeleteFunc(slices.Clone(c.Values), other), slices.DeleteFunc(slices.Clone(c.Less), other)
	bad := func(v string) bool { return !soundValue(attribute, v) }
	if c.Less = slices.DeleteFunc(c.Less, bad); attribute == "ip" || attribute == "path" && anyCase || len(c.Values) == 0 || slices.ContainsFunc(c.Values, bad) {
		return nil
	}
	return &c
}

// spelled reports whether rules tell upper and lower case of a text apart.
func spelled(attribute, text string) bool {
	return attribute != "host" && attribute != "method" && attribute != "ip" && strings.ToLower(text) != strings.ToUpper(text)
}

// plainValue matches the hosts and methods that rules accept.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9*-]+(\.[A-Za-z0-9*-]+)*$`)
