package gateways

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// A router is a router of Traefik, a route of an IngressRoute, or a path of an Ingress.
type router struct {
	name        string
	at          node
	rule        string
	when        [][]importers.Cond // the conditions of an Ingress, which has no rule in Traefik's language
	priority    int64
	entryPoints []string
	middlewares []string
	class       string // of its object of Kubernetes, and whether it is for TLS alone
	syntax      string // the version of Traefik whose language the rule is in, if it says so
	services    []string
	backends    []backend // Services of Kubernetes
	key         string    // what its children call it
	parents     []string  // the keys of the routers that it is a child of
	ranks       []int64   // the priorities of its parents, and its own
	inner       bool      // it is a child: its parent takes its requests from other routers
	lacks       string    // why Traefik may give it no requests
}

// traefik is the configuration of all files together.
type traefik struct {
	*converter
	middlewares map[string]node // by name and provider, as services
	services    map[string]node
	order       []string
	routers     []router
	entryPoints map[string][]string // names of middlewares, by entry point
	refs        []reference
	answers     []setting // what Traefik itself answers, by entry point
	families    map[family][]router
	settings    map[string]bool          // what is allowed, once it has been looked for
	kube        map[string]node          // the Services of Kubernetes, by namespace and name
	roots       []node                   // the documents, and the trees of labels
	defaults    []string                 // the entry points of routers that name none; nil is all
	explicit    bool                     // containers are read with traefik.enable=true alone, or some have it
	constrained bool                     // constraints say which containers are read
	containers  map[string]string        // why Traefik may not have a router of a label, by its name
	taken       map[string]bool          // kinds and names that have come
	known       map[*rulesfile.Node]bool // nodes that were read, or have no limits
}

// Traefik converts the middlewares of Traefik's dynamic configuration, or of its objects
// in Kubernetes, with the routers that use them.
func Traefik(docs []Document) ([]byte, importers.Notes, error) {
	t := &traefik{converter: newConverter(docs), middlewares: map[string]node{}, services: map[string]node{}, entryPoints: map[string][]string{}, containers: map[string]string{}, kube: map[string]node{}, settings: map[string]bool{}, families: map[family][]router{}, taken: map[string]bool{}, known: map[*rulesfile.Node]bool{}}
	for _, d := range docs {
		t.roots = append(t.roots, d.root)
		t.explicit = t.explicit || says(d.root, enabling)
		t.constrained = t.constrained || says(d.root, constraining)
		for _, name := range []string{"docker", "swarm"} {
			t.constrained = t.constrained || d.root.anyCase("providers", name, "constraints").text() != ""
		}
	}
	for _, d := range docs {
		t.fronted(d.root, ofEntries)
		t.read(d.root)
	}
	for _, n := range t.roots {
		t.elsewhereUsed(n)
	}
	t.answered()
	t.routes()
	t.ranked()
	used := map[string]bool{}
	for i := range t.routers {
		r := &t.routers[i]
		r.middlewares = t.chain(r.middlewares, used, 0)
		for _, name := range r.middlewares {
			used[name] = true
		}
	}
	t.places = []place{{when: everywhere}}
	for _, name := range t.order {
		if m := t.middlewares[name]; !used[name] {
			if m.anyCase("rateLimit").there() || m.anyCase("inFlightReq").there() {
				t.notes.Say(m.where(), "no router in these files uses the middleware %s: its rule is for every request until you give it a match", name)
			}
			t.middleware(strings.SplitN(name, "@", 2)[0], m, 0)
		}
	}
	t.next()
	for _, r := range t.routers {
		t.places = append(t.places, place{when: r.when, at: r.at, entries: r.entryPoints, class: r.class, lacks: r.lacks, inner: r.inner, tie: fmt.Sprint(r.ranks), limits: strings.Join(r.middlewares, " "), answered: slices.ContainsFunc(r.middlewares, func(name string) bool {
			return t.middlewares[name].anyCase("redirectScheme").there()
		}) && !slices.ContainsFunc(r.middlewares, func(name string) bool { return t.mayLimit(t.middlewares[name]) })}) // what has a limit may not all be sent away
	}
	for i, r := range t.routers {
		for _, name := range r.middlewares {
			m, base := t.middlewares[name], strings.SplitN(name, "@", 2)[0]
			if !m.anyCase("rateLimit", "redis").there() {
				base = r.name + "-" + base
			}
			t.middleware(base, m, i)
		}
	}
	return t.done()
}

// entry returns the names of the entry points in order.
func (t *traefik) entry() (names []string) {
	for name := range t.entryPoints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lacks says which of a router's services is in no file, or which one these name.
func (t *traefik) lacks(names []string, depth int) string {
	for _, name := range names {
		s, known := t.services[name]
		switch {
		case name == "":
			return "it names no service"
		case strings.HasSuffix(name, "@internal"):
			continue
		case !known || depth > 8:
			return fmt.Sprintf("the service %s is in none of these files", name)
		}
		var more []string
		for _, path := range [][]string{{"weighted", "services"}, {"highestRandomWeight", "services"}, {"mirroring", "service"}, {"mirroring", "mirrors"}, {"failover", "service"}, {"failover", "fallback"}} {
			for _, of := range s.anyCase(path...).list() {
				more = append(more, provided(of.text()+of.anyCase("name").text(), name[strings.LastIndexByte(name, '@'):]))
			}
		}
		if why := t.lacks(more, depth+1); why != "" {
			return why
		}
	}
	return ""
}

// read reads one file or object.
func (t *traefik) read(n node) {
	space := n.get("metadata", "namespace").text()
	if space == "" {
		space = "default"
	}
	t.known[n.get("metadata").Node] = true
	switch name := n.get("metadata", "name").text(); n.get("kind").text() {
	case "":
		t.readFile(n, "@file")
		labels := t.labels(n)
		t.readFile(labels, "@docker")
		t.roots = append(t.roots, labels)
		for _, read := range []string{"http", "tcp", "entryPoints"} {
			t.known[n.anyCase(read).Node] = true
		}
		if services := n.get("services"); services.is(rulesfile.MapKind) { // their names are no words of limits
			t.known[services.Node] = true
			for _, s := range services.fields() {
				t.unread(s.value)
			}
		}
		t.unread(n)
	case "ConfigMap": // its configurations are documents themselves
		for _, f := range n.get("data").fields() {
			t.known[f.value.Node] = configured.MatchString(f.name)
		}
		t.unread(n)
	case "CustomResourceDefinition": // it has the words of limits, and no limit
	case "HTTPRoute", "GRPCRoute":
		t.references(n, space)
	case "Middleware":
		t.define(space+"-"+name+"@kubernetescrd", n.get("spec"))
	case "MiddlewareTCP":
		if c := n.get("spec").anyCase("inFlightConn"); c.there() {
			t.notes.Lose(c.where(), "inFlightConn is NOT KEPT: it bounds connections")
		}
	case "IngressRoute":
		for _, r := range n.get("spec", "routes").list() {
			t.readRoute(n, r, space)
		}
	case "Service":
		t.kube[space], t.kube[space+"/"+name] = n, n
		t.unread(n)
	case "TraefikService":
		t.services[space+"-"+name+"@kubernetescrd"] = node{}
		t.unread(n)
	case "Ingress":
		t.readIngress(n)
	default:
		t.unread(n)
	}
}

// readRoute reads a route of an IngressRoute.
func (t *traefik) readRoute(n, r node, space string) {
	rule := r.get("match").text()
	own := n.get("metadata", "name").text()
	one := router{key: space + "-" + own + "@kubernetescrd", name: importers.NameOf(own, space, rule), at: r, rule: rule, syntax: r.get("syntax").text(), priority: t.number(r.get("priority"), 0), entryPoints: n.get("spec", "entryPoints").texts(), class: classOf(n) + tlsOf(n.get("spec", "tls"))}
	named := func(n node) string {
		of, in := n.get("name").text(), n.get("namespace").text()
		if in == "" {
			in = space
		}
		if in != space && !t.allowed("allowCrossNamespace") {
			one.lacks = "it names " + of + " of another namespace without allowCrossNamespace"
		}
		if !strings.Contains(of, "@") {
			of = in + "-" + of + "@kubernetescrd"
		}
		return of
	}
	for _, m := range r.get("middlewares").list() {
		one.middlewares = append(one.middlewares, named(m))
	}
	for _, p := range n.get("spec", "parentRefs").list() {
		one.parents = append(one.parents, named(p))
	}
	t.known[r.get("middlewares").Node] = true
	one.lacks = cmp.Or(one.lacks, t.knows(n.get("spec"), "ingressClassName", "entryPoints", "routes", "tls", "parentRefs"), t.knows(r, "match", "kind", "priority", "syntax", "services", "middlewares", "observability"))
	if !r.get("services").there() {
		one.services = []string{""}
	}
	for _, s := range r.get("services").list() {
		if name := named(s); s.get("kind").text() == "TraefikService" {
			one.services = append(one.services, name)
		} else {
			one.backends = append(one.backends, backend{cmp.Or(s.get("namespace").text(), space), s.get("name").text(), s.get("port").text()})
		}
	}
	if kind := r.get("kind").text(); kind != "" && kind != "Rule" {
		one.lacks = "its kind is not Rule"
	}
	t.routers = append(t.routers, one)
}

// readFile reads a file of the file provider, or the static configuration.
func (t *traefik) readFile(n node, provider string) {
	t.known[n.anyCase("http", "middlewares").Node] = true
	each(n.anyCase("tcp"), func(n node) bool { // no limits of requests
		t.known[n.anyCase("middlewares").Node] = true
		return true
	})
	for _, m := range n.anyCase("http", "middlewares").fields() {
		t.define(m.name+provider, m.value)
	}
	for _, r := range n.anyCase("http", "routers").fields() {
		if !t.first(r.name+provider, r.value, "router") {
			continue
		}
		one := router{key: r.name + provider, name: r.name, at: r.value, rule: r.value.anyCase("rule").text(), syntax: r.value.anyCase("ruleSyntax").text(), priority: t.number(r.value.anyCase("priority"), 0), entryPoints: r.value.anyCase("entryPoints").texts(), class: tlsOf(r.value.anyCase("tls"))}
		if name := r.value.anyCase("service").text(); name != "" {
			one.services = []string{provided(name, provider)}
		} else if provider == "@file" { // a container is a service by itself
			one.services = []string{""}
		}
		for _, name := range r.value.anyCase("middlewares").texts() {
			one.middlewares = append(one.middlewares, provided(name, provider))
		}
		for _, name := range r.value.anyCase("parentRefs").texts() {
			one.parents = append(one.parents, provided(name, provider))
		}
		t.known[r.value.anyCase("middlewares").Node] = true
		one.lacks = t.knows(r.value, "entryPoints", "middlewares", "service", "rule", "parentRefs", "ruleSyntax", "priority", "tls", "observability")
		if provider == "@docker" {
			one.lacks = cmp.Or(one.lacks, t.containers[r.name])
		}
		t.routers = append(t.routers, one)
	}
	for _, s := range n.anyCase("http", "services").fields() {
		t.services[s.name+provider] = s.value
		t.knows(s.value, "middlewares", "loadBalancer", "weighted", "highestRandomWeight", "mirroring", "failover")
	}
	for _, e := range append(n.anyCase("entryPoints").fields(), n.anyCase("ports").fields()...) { // the second in values of Helm
		if p := e.value.anyCase("proxyProtocol"); p.anyCase("insecure").yes() || len(p.anyCase("trustedIPs").list()) > 0 {
			t.proxied = append(t.proxied, setting{"proxyProtocol", p})
		}
		for _, name := range e.value.anyCase("http", "middlewares").texts() {
			t.entryPoints[e.name] = append(t.entryPoints[e.name], provided(name, provider))
		}
		t.known[e.value.anyCase("http", "middlewares").Node] = true
		if to := e.value.anyCase("http", "redirections"); to.there() || e.name == "traefik" { // the entry point of ping and the like by default
			t.answers = append(t.answers, setting{e.name, e.value})
		}
		if e.value.anyCase("asDefault").yes() {
			t.defaults = append(t.defaults, e.name)
		}
	}
	for _, m := range n.anyCase("tcp", "middlewares").fields() {
		if c := m.value.anyCase("inFlightConn"); c.there() {
			t.notes.Lose(c.where(), "inFlightConn is NOT KEPT: it bounds connections")
		}
	}
}

// provided returns a name with its provider, by default that of the document that uses it.
func provided(name, provider string) string {
	if strings.Contains(name, "@") {
		return name
	}
	return name + provider
}

func (t *traefik) define(name string, n node) {
	if t.first(name, n, "middleware") {
		t.order = append(t.order, name)
		t.middlewares[name] = n
	}
	for _, read := range []string{"rateLimit", "inFlightReq", "chain"} {
		t.known[n.anyCase(read).Node] = true
	}
	t.known[n.anyCase("chain", "middlewares").Node] = true
	t.unread(n)
}

// first reports whether nothing of a kind has had the name: of several, Traefik takes the first.
func (t *traefik) first(name string, n node, kind string) bool {
	if t.taken[kind+" "+name] {
		t.notes.Say(n.where(), "the %s %s comes twice: the first is taken", kind, name)
		return false
	}
	t.taken[kind+" "+name] = true
	return true
}

// annotated returns the value of an annotation of Traefik for the routers of an Ingress.
func annotated(n node, name string) node {
	return n.get("metadata", "annotations", "traefik.ingress.kubernetes.io/router."+name)
}

// readIngress reads an Ingress, with its annotations.
func (t *traefik) readIngress(n node) {
	var names []string
	for name := range strings.SplitSeq(annotated(n, "middlewares").text(), ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	var entries []string
	if text := annotated(n, "entrypoints").text(); text != "" {
		entries = strings.Split(strings.ReplaceAll(text, " ", ""), ",")
	}
	class, lacks := classOf(n)+tlsOf(annotated(n, "tls")), ""
	for _, f := range n.get("metadata", "annotations").fields() {
		word, ours := strings.CutPrefix(f.name, "traefik.ingress.kubernetes.io/router.")
		if word, _, _ = strings.Cut(strings.ToLower(word), "."); ours && !importers.OneOf(word, "pathmatcher entrypoints middlewares priority rulesyntax tls observability") {
			lacks = t.unknown("annotation", "router."+word, f.value)
		}
	}
	for _, p := range ingressOf(n).paths {
		if p.kind == besidePaths { // Traefik takes a defaultBackend of an Ingress without rules alone
			continue
		}
		matcher := "PathPrefix"
		switch {
		case p.kind == "Exact":
			matcher = "Path"
		case p.kind != "Prefix" && annotated(n, "pathmatcher").there():
			matcher = annotated(n, "pathmatcher").text()
		}
		if p.kind = ""; matcher == "Path" { // a PathPrefix of /a takes /ab, too
			p.kind = "Exact"
		}
		r := router{name: importers.NameOf(n.get("metadata", "name").text(), n.get("metadata", "namespace").text(), p.host, p.path), at: p.at, entryPoints: entries, middlewares: names, class: class, lacks: lacks, priority: t.number(annotated(n, "priority"), 0)}
		if r.when = t.location(p); matcher != "Path" && matcher != "PathPrefix" {
			r.when = nil
		}
		r.rule = fmt.Sprintf("%s(`%s`)", matcher, p.path) // its length is the priority
		if host := fmt.Sprintf("Host(`%s`)", p.host); strings.HasPrefix(p.host, "*.") {
			r.rule = fmt.Sprintf("HostRegexp(`^[a-zA-Z0-9-]+%s$`) && ", regexp.QuoteMeta(p.host[1:])) + r.rule
		} else if p.host != "" {
			r.rule = host + " && " + r.rule
		}
		if to := p.at.get("backend"); to.there() {
			r.lacks = cmp.Or(lacks, map[bool]string{true: "its backend is no Service"}[to.get("resource").there()])
			port := to.get("service", "port", "number").text() + to.get("service", "port", "name").text() + to.get("servicePort").text()
			r.backends = []backend{{cmp.Or(n.get("metadata", "namespace").text(), "default"), to.get("service", "name").text() + to.get("serviceName").text(), port}}
		}
		if !n.get("spec", "rules").there() { // a catch-all
			r.priority = math.MinInt32
		}
		t.routers = append(t.routers, r)
	}
}

// tlsOf returns what a setting of tls adds to the class of a router: one with it takes no other
// requests than those with TLS, and one without it none of those.
func tlsOf(n node) string {
	switch {
	case n.Node == nil || n.no():
		return ""
	case !n.there():
		return " tls?" // null: not sure
	}
	return " tls"
}

// chain returns names of middlewares, with the middlewares of a chain in place of its name.
func (t *traefik) chain(names []string, used map[string]bool, depth int) (all []string) {
	for _, name := range names {
		m, known := t.middlewares[name]
		if !known {
			t.notes.Lose("", "the middleware %s is in none of these files: NOT KEPT, with the limit that it may have", name)
			continue
		}
		if of := m.anyCase("chain", "middlewares"); of.there() && depth < 8 {
			var more []string
			for _, item := range of.list() {
				switch one := item.text(); {
				case one != "":
					more = append(more, provided(one, name[strings.LastIndexByte(name, '@'):]))
				case item.get("namespace").text() != "":
					more = append(more, item.get("namespace").text()+"-"+item.get("name").text()+"@kubernetescrd")
				default: // a middleware in the namespace of the chain
					space, _, _ := strings.Cut(name, "-")
					more = append(more, space+"-"+item.get("name").text()+"@kubernetescrd")
				}
			}
			used[name] = true
			for _, one := range t.chain(more, used, depth+1) {
				if !slices.Contains(all, one) {
					all = append(all, one)
				}
			}
			continue
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// middleware makes the rules of a middleware at a place. With Redis, all routers of one share its counts.
func (t *traefik) middleware(name string, m node, at int) {
	if f := m.anyCase("inFlightReq"); f.there() {
		t.knows(f, "amount", "sourceCriterion")
		r := importers.Rule{Name: name + "-in-flight", Key: []string{"host"}, Limits: []string{fmt.Sprintf("%d in flight", t.number(f.anyCase("amount"), 0))}}
		by := f.anyCase("sourceCriterion")
		if len(by.fields()) == 0 {
			t.writtenBefore(f, "Host")
		}
		if len(by.fields()) == 0 || t.source(&r, by) {
			t.add(f, r, []int{at})
		}
	}
	l := m.anyCase("rateLimit")
	if !l.there() {
		return
	}
	t.knows(l, "average", "period", "burst", "sourceCriterion", "redis")
	average, burst := t.number(l.anyCase("average"), 0), t.number(l.anyCase("burst"), 1)
	period, ok := duration(l.anyCase("period"))
	switch {
	case !ok:
		t.fail(l.anyCase("period"), "%q: want a period such as 1m", l.anyCase("period").text())
		return
	case average == 0:
		t.notes.Say(l.where(), "average is 0: that is no limit, there neither")
		return
	}
	r := importers.Rule{Name: name, Limits: []string{fmt.Sprintf("%d/%s burst %d", average, per(period), max(burst, 1))}}
	if t.source(&r, l.anyCase("sourceCriterion")) {
		t.add(l, r, []int{at})
		if l.anyCase("redis").there() {
			t.notes.Say(l.anyCase("redis").where(), "redis is left out: give the rules a store")
			t.added[len(t.added)-1].shares = fmt.Sprintf("%p", l.Node)
		}
	}
}

// duration reads a period, a second unless it is set or 0. A plain number is in seconds.
func duration(n node) (time.Duration, bool) {
	d, err := time.ParseDuration(cmp.Or(n.text(), "0"))
	if s, wrong := strconv.ParseInt(n.text(), 10, 32); wrong == nil {
		d, err = time.Duration(s)*time.Second, nil
	}
	return cmp.Or(d, time.Second), err == nil && d >= 0
}

// source sets the key that requests are counted by; ok is false if rules cannot have it as
// a key.
func (t *traefik) source(r *importers.Rule, n node) (ok bool) {
	ip := n.anyCase("ipStrategy")
	t.knows(n, "ipStrategy", "requestHeaderName", "requestHost")
	t.knows(ip, "depth", "excludedIPs", "ipv6Subnet")
	switch name := n.anyCase("requestHeaderName").text(); {
	case name != "" && t.notes.ByAddress(n.where(), name):
		r.Key, r.IPv6Prefix = []string{"ip"}, 128
		return true
	case name != "":
		attribute, ok := header(name)
		if !ok {
			t.notes.Lose(n.where(), "requestHeaderName %s is NOT KEPT, with its limit: no rule can count by it", name)
			return false
		}
		t.writtenBefore(n, name)
		r.Key = []string{attribute}
		return true
	case n.anyCase("requestHost").yes():
		t.writtenBefore(n, "Host")
		r.Key = []string{"host"}
		return true
	}
	r.Key, r.IPv6Prefix = []string{"ip"}, int(min(t.number(ip.anyCase("ipv6Subnet"), 128), 128))
	if d := ip.anyCase("depth"); t.number(d, 0) > 0 {
		t.notes.Lose(d.where(), "depth is NOT KEPT: set trusted_proxies to the addresses of your proxies, else all clients of one count as one")
	} else if e := ip.anyCase("excludedIPs"); e.there() {
		trusted, ok := ranges(e.texts())
		if !ok || t.file.TrustedProxies != nil && !slices.Equal(t.file.TrustedProxies, trusted) {
			t.notes.Lose(e.where(), "excludedIPs is NOT KEPT: trusted_proxies are addresses and ranges, one list for the file")
			return true
		}
		t.file.TrustedProxies, t.file.ClientIPHeader = trusted, "X-Forwarded-For"
		t.notes.Say(e.where(), "excludedIPs became trusted_proxies, for all rules of the file: the peer of a connection must be one of them, too")
	}
	return true
}
