package gateways

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ranked puts the routers into the order in which Traefik tries them, each with its conditions
// and the middlewares of its entry points.
func (t *traefik) ranked() {
	own := t.routers
	for i := range own {
		r := &own[i]
		if r.priority == 0 {
			r.priority = int64(len(r.rule))
		}
		if r.when == nil {
			var former bool
			if r.when, former = t.ruleOf(*r); former && r.syntax != "v2" && r.lacks == "" {
				r.lacks = "the rule is of Traefik 2, and the router has no ruleSyntax: v2"
			}
		}
	}
	t.served(own)
	t.routers = nil
	for _, r := range own {
		t.routers = append(t.routers, t.rooted(r, own, 0)...)
	}
	for i := range t.routers {
		r := &t.routers[i]
		if r.entryPoints == nil {
			r.entryPoints = t.defaults
		}
		for _, name := range t.entry() {
			if !r.inner && (len(r.entryPoints) == 0 || slices.Contains(r.entryPoints, name)) {
				r.middlewares = append(slices.Clone(t.entryPoints[name]), r.middlewares...)
			}
		}
	}
	slices.SortStableFunc(t.routers, func(a, b router) int {
		for i := range min(len(a.ranks), len(b.ranks)) {
			if a.ranks[i] != b.ranks[i] {
				return cmp.Compare(b.ranks[i], a.ranks[i])
			}
		}
		return len(b.ranks) - len(a.ranks) // a child before its parent
	})
}

// served sets what routers lack of services: each has some, or children that have.
func (t *traefik) served(all []router) {
	alive := map[string]bool{} // the parents with a child that may have requests
	for more := true; more; {
		more = false
		for i := range all {
			r := &all[i]
			if !alive[r.key] && cmp.Or(t.lacks(r.services, 0), t.backed(r.backends)) != "" {
				continue
			}
			for _, name := range r.parents {
				more = more || !alive[name]
				alive[name] = true
			}
		}
	}
	for i := range all {
		if r := &all[i]; r.lacks == "" {
			none := slices.Contains(r.services, "")
			if r.lacks = cmp.Or(t.lacks(r.services, 0), t.backed(r.backends)); alive[r.key] && none {
				r.lacks = ""
			} else if alive[r.key] {
				r.lacks = "it has a service and children"
			}
		}
	}
}

// A family is a parent's key, and how deep a child stands below it.
type family struct {
	key   string
	depth int
}

// above returns the routers of a key, in the places of children of theirs.
func (t *traefik) above(key string, all []router, depth int) []router {
	at := family{key, depth}
	found, known := t.families[at]
	if !known && depth < 4 {
		for _, p := range all {
			if p.key == key && len(found) <= mostFamilies {
				found = append(found, t.rooted(p, all, depth+1)...)
			}
		}
		found = found[:min(len(found), mostFamilies+1)]
		t.families[at] = found
	}
	return found
}

// A backend is a Service of Kubernetes, with a port by name or number.
type backend struct{ space, name, port string }

// backed says why Traefik makes no router to one of some Services. Without any Service of a namespace in the files,
// those that routers name are taken to be there.
func (t *traefik) backed(all []backend) string {
	for _, b := range all {
		s, known := t.kube[b.space+"/"+b.name]
		at := fmt.Sprintf("the Service %s/%s", b.space, b.name)
		switch _, some := t.kube[b.space]; {
		case !some:
		case !known:
			return at + " is in none of these files"
		case s.get("spec", "type").text() == "ExternalName" && !t.allowed("allowExternalNameServices"):
			return at + " is an ExternalName without allowExternalNameServices"
		case b.port != "" && !slices.ContainsFunc(s.get("spec", "ports").list(), func(p node) bool { return b.port == p.get("port").text() || b.port == p.get("name").text() }):
			return at + " has no port " + b.port
		}
	}
	return ""
}

// allowed reports whether a document sets something to true, as a setting or in arguments.
func (t *traefik) allowed(setting string) bool {
	allowed, known := t.settings[setting]
	if !known {
		what := regexp.MustCompile("(?i)" + setting + `(\W{1,4}true|$)`)
		allowed = slices.ContainsFunc(t.roots, func(n node) bool { return says(n, what) })
		t.settings[setting] = allowed
	}
	return allowed
}

// mostFamilies bounds how often a router stands below others.
const mostFamilies = 100

// rooted returns a router in the place of a child of each of its parents: for requests that both
// take. It has its own limits, beside those of the parent, and takes requests from its siblings alone.
func (t *traefik) rooted(r router, all []router, depth int) (found []router) {
	if r.parents == nil {
		r.ranks = []int64{r.priority}
		return []router{r}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.parents))) {
		before := len(found)
		for _, p := range t.above(name, all, depth) {
			one := r
			one.inner, one.entryPoints, one.class = true, p.entryPoints, p.class
			one.when, one.ranks = and(p.when, r.when), append(slices.Clone(p.ranks), r.priority)
			if r.lacks == "" {
				one.lacks = "it is a child of " + p.name + p.key[strings.LastIndexByte(p.key, '@'):]
			}
			found = append(found, one)
		}
		if len(found) == before || len(found) > mostFamilies {
			t.notes.Lose(r.at.where(), "the parent %s is in none of these files, or has more than rules can name: NOT KEPT, with the limits that it may have", name)
		}
	}
	if found == nil {
		r.lacks, r.ranks = "its parent is in none of these files: "+strings.Join(r.parents, " "), []int64{r.priority}
		return []router{r}
	}
	return found
}

// enabling matches what says that containers are read with traefik.enable=true alone, or that one has it.
var enabling = regexp.MustCompile(`(?i)exposedbydefault\W{1,4}false|traefik\.enable\W{1,4}true`)

// constraining matches what says that other containers are not read.
var constraining = regexp.MustCompile(`(?i)(docker|swarm)[._]constraints=`)

// says reports whether a text, or a field with its value, matches somewhere in a node.
func says(n node, what *regexp.Regexp) (found bool) {
	each(n, func(n node) bool {
		found = found || what.MatchString(n.text())
		for _, f := range n.fields() {
			found = found || what.MatchString(f.name+"="+f.value.text())
		}
		return !found
	})
	return found
}

// container notes why Traefik may not have the routers of a container.
func (t *traefik) container(n node) {
	text := n.anyCase("enable").text()
	enabled, err := strconv.ParseBool(text)
	if text == "" && err != nil {
		enabled = !t.explicit
	}
	several := len(n.anyCase("http", "services").fields()) > 1
	for _, r := range n.anyCase("http", "routers").fields() {
		switch {
		case t.constrained:
			t.containers[r.name] = "constraints say whether the container of " + r.name + " is read"
		case !enabled:
			t.containers[r.name] = "its container has no traefik.enable=true"
		case several && r.value.anyCase("service").text() == "":
			t.containers[r.name] = "its container has several services, and it names none"
		}
	}
}

// elsewhereUsed notes the middlewares at other places than routers, such as at services.
func (t *traefik) elsewhereUsed(n node) {
	if strings.HasSuffix(n.get("kind").text(), "TCP") || strings.HasSuffix(n.get("kind").text(), "UDP") {
		return
	}
	each(n, func(n node) bool {
		for _, f := range n.fields() {
			if name := strings.ToLower(f.name); t.known[f.value.Node] || name != "middlewares" && !strings.HasSuffix(name, "/service.middlewares") {
				continue
			}
			for _, m := range f.value.list() {
				for one := range strings.SplitSeq(m.text()+m.get("name").text(), ",") {
					if one = strings.TrimSpace(one); t.limiting(one) {
						t.notes.Lose(f.value.where(), "the middleware %s is NOT KEPT here, with the limit that it may have: only those of routers, chains and entry points are", one)
					}
				}
			}
		}
		return true
	})
}

// answered notes the limits of entry points at which Traefik itself answers, such as ping: its routers have them, too.
func (t *traefik) answered() {
	for _, n := range t.roots {
		each(n, func(n node) bool {
			if at := n.anyCase("entryPoint"); at.text() != "" && !n.anyCase("manualRouting").yes() {
				t.answers = append(t.answers, setting{at.text(), at})
			}
			return true
		})
	}
	for _, a := range t.answers {
		if slices.ContainsFunc(t.entryPoints[a.name], t.limiting) {
			t.notes.Lose(a.at.where(), "the limits of the entry point %s are NOT KEPT for what Traefik itself answers there", a.name)
		}
	}
}

// limiting reports whether a name may be that of a middleware with a limit.
func (t *traefik) limiting(name string) bool {
	name, _, _ = strings.Cut(name, "@")
	found := false
	for key, m := range t.middlewares {
		if of := key[:strings.LastIndexByte(key, '@')]; of == name || strings.HasSuffix(of, "-"+name) {
			if found = true; t.mayLimit(m) {
				return true
			}
		}
	}
	return name != "" && !found
}
