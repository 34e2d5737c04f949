package gateways

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// ruleOf returns the conditions of a router's rule, nil if rules cannot express them, and whether
// Traefik 3 reads the rule otherwise, unless it is told that it is of Traefik 2.
func (t *traefik) ruleOf(r router) (when [][]importers.Cond, former bool) {
	p := &ruleParser{t: t, at: r.at, text: r.rule}
	when = p.or()
	if p.space(); p.text != "" || p.bad {
		return nil, p.former
	}
	return when, p.former
}

// A ruleParser reads the rule of a router.
type ruleParser struct {
	t     *traefik
	at    node
	text  string // the rest of the rule
	depth int
	bad   bool

	former bool // a matcher is of Traefik 2
}

func (p *ruleParser) space() { p.text = strings.TrimLeft(p.text, " \t\r\n") }

// take reads a word if it is next.
func (p *ruleParser) take(word string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.text, word)
	if ok {
		p.text = rest
	}
	return ok
}

func (p *ruleParser) or() [][]importers.Cond {
	all := p.and()
	for p.take("||") {
		more := p.and()
		if all == nil || more == nil || len(all)+len(more) > 1000 {
			p.bad = true
			return nil
		}
		all = append(all, more...)
	}
	return all
}

func (p *ruleParser) and() [][]importers.Cond {
	all := p.one()
	for p.take("&&") {
		all = and(all, p.one())
	}
	return all
}

// one reads a matcher, or a rule in parentheses.
func (p *ruleParser) one() [][]importers.Cond {
	if p.depth++; p.depth > 100 {
		p.bad = true
		return nil
	}
	if p.take("(") {
		all := p.or()
		p.bad = !p.take(")") || p.bad
		return all
	}
	p.space()
	i := strings.IndexByte(p.text, '(')
	if i < 0 || strings.HasPrefix(p.text, "!") { // rules have no "not" in the middle
		p.bad = true
		return nil
	}
	name := strings.TrimSpace(p.text[:i])
	p.text = p.text[i+1:]
	var args []string
	for !p.take(")") {
		p.take(",")
		p.space()
		if p.text == "" || !strings.Contains("`\"'", p.text[:1]) {
			p.bad = true
			return nil
		}
		end := strings.IndexByte(p.text[1:], p.text[0])
		if end < 0 {
			p.bad = true
			return nil
		}
		args = append(args, p.text[1:1+end])
		p.text = p.text[2+end:]
	}
	if len(args) == 0 {
		return nil
	}
	switch name = strings.ToLower(name); {
	case name == "headers", name == "headersregexp", name == "query" && len(args) == 1 && strings.Contains(args[0], "="),
		name == "hostregexp" && strings.Contains(args[0], "{"), len(args) > 1 && !strings.HasPrefix(name, "header") && !strings.HasPrefix(name, "query"):
		p.former = true
	}
	return p.t.matcher(p.at, name, args)
}

// matcher returns the conditions of a matcher, nil if rules cannot express them.
func (t *traefik) matcher(at node, name string, args []string) (all [][]importers.Cond) {
	each := func(read func(arg string) []importers.Cond) [][]importers.Cond {
		for _, arg := range args {
			one := read(arg)
			if one == nil {
				return nil
			}
			all = append(all, one)
		}
		return all
	}
	key, value := args[0], args[len(args)-1]
	switch name {
	case "host":
		return each(hostIs)
	case "hostregexp":
		return each(hostFinds)
	case "path":
		return each(exactPath)
	case "pathprefix":
		return each(pathBegins)
	case "pathregexp":
		return each(func(arg string) []importers.Cond { return t.pathFinds(at, arg, false) })
	case "method":
		t.getIsHead(args)
		return [][]importers.Cond{{is("method", args...)}}
	case "clientip":
		if ips, ok := ranges(args); ok {
			return [][]importers.Cond{{is("ip", ips...)}}
		}
	case "header", "headers":
		if attribute, ok := header(key); ok && len(args) == 2 {
			return [][]importers.Cond{{is(attribute, importers.Escape(value))}}
		}
	case "query":
		if len(args) == 1 {
			key, value, _ = strings.Cut(key, "=")
		}
		if headerName.MatchString(key) && value != "" {
			return [][]importers.Cond{{is("query."+key, importers.Escape(value))}}
		}
	}
	return nil
}

// hostFinds returns the condition that a host matches {name:expr} in a name, or an expression.
func hostFinds(expr string) []importers.Cond {
	if head, rest, ok := strings.Cut(expr, "{"); ok && strings.Contains(rest, "}.") {
		return hostIs(head + "*" + rest[strings.LastIndex(rest, "}")+1:])
	}
	if all, less := importers.TextGlobs(expr, importers.HostExpr, false); len(all) == 1 && slices.Equal(all, less) {
		return hostIs(all[0])
	}
	return nil
}
