package gateways

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// proto returns the value of a field of a message, whose name may be in snake_case or camelCase.
func (n node) proto(path ...string) node {
	for _, name := range path {
		if next := n.get(name); next.there() {
			n = next
			continue
		}
		words := strings.Split(name, "_")
		for i := range words[1:] {
			words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
		}
		n = n.get(strings.Join(words, ""))
	}
	return n
}

// envoyLocal is the configuration of Envoy in all files together.
type envoyLocal struct {
	*converter
	uses  map[*rulesfile.Node][]int // where each configuration of the filter applies: indexes of places
	all   []envoyFilter
	bases map[string]node // the filter of a connection manager, by the name of its route configuration
	named map[string]bool // names of the route configurations in the files
}

// An envoyFilter is a configuration of the filter, with the rate_limits that make descriptors.
type envoyFilter struct {
	config node
	limits []node
}

// EnvoyLocal converts Envoy's local rate limit filter, in a configuration of Envoy or in
// patches of Istio.
func EnvoyLocal(docs []Document) ([]byte, importers.Notes, error) {
	e := &envoyLocal{converter: &converter{}, uses: map[*rulesfile.Node][]int{}, bases: map[string]node{}, named: map[string]bool{}}
	var managers, alone []node
	for _, d := range docs {
		each(d.root, e.others)
		each(d.root, func(n node) bool {
			switch config, ok := localRateLimit(n); {
			case n.proto("http_filters").is(rulesfile.List):
				managers = append(managers, n)
				if base, ok := filterIn(n.proto("http_filters").list()...); ok {
					e.bases[n.proto("rds", "route_config_name").text()] = base
				}
				return false
			case n.proto("virtual_hosts").is(rulesfile.List): // a route configuration, as rds serves it
				managers = append(managers, n)
				e.named[n.get("name").text()] = true
				return false
			case ok:
				alone = append(alone, config)
				return false
			case n.get("applyTo").text() == "HTTP_ROUTE" && e.patch(n):
				return false
			}
			return true
		})
	}
	e.places = append(e.places, place{when: everywhere})
	for _, config := range alone {
		e.use(config, nil, len(e.places)-1)
		if len(managers) > 0 || len(alone) > 1 {
			e.notes.Say(config.where(), "the file does not say for which requests this is: its rule is for every one until you give it a match")
		}
	}
	e.filters()
	e.next()
	for _, m := range managers {
		e.manager(m)
	}
	e.places = append(e.places, place{when: everywhere})
	for _, m := range managers {
		if base, ok := filterIn(m.proto("http_filters").list()...); ok {
			e.use(base, nil, len(e.places)-1)
		}
	}
	e.filters()
	return e.done()
}

// patch reads a route with a configuration of the filter that Istio inserts. Istio names
// virtual hosts host:port, except those for inbound traffic.
func (e *envoyLocal) patch(n node) bool {
	r := n.get("patch", "value")
	config, ok := filterIn(r.proto("typed_per_filter_config"))
	if !ok || !r.get("match").there() {
		return false
	}
	when := e.routeMatch(r)
	if host, _, named := strings.Cut(n.get("match", "routeConfiguration", "vhost", "name").text(), ":"); named {
		when = and(when, [][]importers.Cond{hostIs(host)})
	}
	e.places = append(e.places, place{when: when, at: r})
	e.use(config, r.proto("route", "rate_limits").list(), len(e.places)-1)
	return true
}

// filters makes the rules of all filters that were found.
func (e *envoyLocal) filters() {
	for _, f := range e.all {
		e.filter(f)
	}
	e.all = nil
}

// each calls do for a node, and if that returns true, for all nodes in it.
func each(n node, do func(node) bool) {
	if n.Node == nil || !do(n) {
		return
	}
	for _, f := range n.fields() {
		each(f.value, do)
	}
	if n.is(rulesfile.List) {
		for _, item := range n.list() {
			each(item, do)
		}
	}
}

// notLocal are the other filters that limit something, by the ends of their types, and why
// their limits are lost.
var notLocal = map[string]string{
	"filters.network.local_ratelimit.v3.LocalRateLimit":           "the local rate limit of connections is NOT KEPT: these rules are for requests",
	"filters.network.connection_limit.v3.ConnectionLimit":         "connection_limit is NOT KEPT: these rules are for requests",
	"filters.http.admission_control.v3.AdmissionControl":          "admission_control is NOT KEPT: it denies by how many requests succeed, which rules do not see",
	"filters.http.adaptive_concurrency.v3.AdaptiveConcurrency":    "adaptive_concurrency is NOT KEPT: it denies by how long requests take, which rules do not see",
	"filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig": "rate_limit_quota is NOT KEPT: its limits are at another service",
}

// others notes what becomes of filters that are not the local rate limit.
func (e *envoyLocal) others(n node) bool {
	kind, config := n.get("@type").text(), n
	if of := n.proto("type_url"); of.there() {
		kind, config = of.text(), n.get("value")
	}
	for end, why := range notLocal {
		if strings.HasSuffix(kind, end) {
			e.notes.Lose(n.where(), "%s", why)
		}
	}
	if strings.HasSuffix(kind, ".ratelimit.v3.RateLimit") {
		e.notes.Say(n.where(), "the limits of the domain %s are at your rate limit service: stint import envoy-ratelimit reads its configuration", config.get("domain").text())
	}
	return true
}

// localRateLimit returns the configuration of the filter in a typed message.
func localRateLimit(n node) (config node, ok bool) {
	const kind = "filters.http.local_ratelimit.v3.LocalRateLimit"
	if strings.HasSuffix(n.get("@type").text(), kind) {
		return n, true
	}
	return n.get("value"), strings.HasSuffix(n.proto("type_url").text(), kind)
}

// filterIn returns the first configuration of the filter in some nodes.
func filterIn(in ...node) (found node, ok bool) {
	for _, n := range in {
		each(n, func(n node) bool {
			if config, is := localRateLimit(n); is && !ok {
				found, ok = config, true
			}
			return !ok
		})
	}
	return found, ok
}

// use notes that a configuration applies at a place, by its index.
func (e *envoyLocal) use(config node, limits []node, at int) {
	if own := config.proto("rate_limits"); own.there() {
		limits = own.list()
	}
	if e.uses[config.Node] == nil {
		e.all = append(e.all, envoyFilter{config, limits})
	}
	e.uses[config.Node] = append(e.uses[config.Node], at)
}

// manager reads the routes of a connection manager. The most specific configuration of the
// filter applies: that of the route, its virtual host, the route configuration, the filter.
func (e *envoyLocal) manager(m node) {
	base, has := filterIn(m.proto("http_filters").list()...)
	routes, rds := m.proto("route_config"), m.proto("rds", "route_config_name").text()
	switch {
	case m.proto("virtual_hosts").there():
		routes = m
		base, has = e.bases[m.get("name").text()]
	case !routes.there() && has && m.proto("rds").there() && !e.named[rds]:
		e.notes.Say(m.where(), "routes of rds are not in the file: what they say of this limit is not read")
	}
	type domain struct {
		name string
		host node
	}
	var domains []domain
	entries := []string{m.where()} // each connection manager has a listener of its own
	for _, host := range routes.proto("virtual_hosts").list() {
		for _, name := range host.get("domains").texts() {
			domains = append(domains, domain{name, host})
		}
	}
	rank := func(name string) int { // exact names, then names that begin with a star, then names that end with one
		switch {
		case name == "*":
			return 3
		case strings.HasPrefix(name, "*"):
			return 1
		case strings.HasSuffix(name, "*"):
			return 2
		}
		return 0
	}
	slices.SortStableFunc(domains, func(a, b domain) int {
		if ra, rb := rank(a.name), rank(b.name); ra != rb {
			return ra - rb
		}
		return len(b.name) - len(a.name)
	})
	for _, d := range domains {
		when := everywhere
		if name, _, _ := strings.Cut(d.name, ":"); name != "*" {
			if when = nil; hostIs(name) != nil {
				when = [][]importers.Cond{hostIs(name)}
			}
		}
		for _, r := range d.host.get("routes").list() {
			e.places = append(e.places, place{and(when, e.routeMatch(r)), r, entries, r.get("redirect").there()})
			config, ok := filterIn(r.proto("typed_per_filter_config"))
			for _, wider := range []node{d.host, routes} {
				if !ok {
					config, ok = filterIn(wider.proto("typed_per_filter_config"))
				}
			}
			if !ok {
				config, ok = base, has
			}
			if ok {
				limits := append(r.proto("route", "rate_limits").list(), r.proto("rate_limits").list()...)
				if len(limits) == 0 || r.proto("route", "include_vh_rate_limits").text() == "true" {
					limits = append(limits, d.host.proto("rate_limits").list()...)
				}
				e.use(config, limits, len(e.places)-1)
			}
		}
		e.places = append(e.places, place{when, d.host, entries, true}) // no route takes them: Envoy answers 404
		if has {
			e.use(base, nil, len(e.places)-1)
		}
	}
}

// routeMatch returns the conditions of a route, nil if rules cannot express them.
func (e *envoyLocal) routeMatch(r node) [][]importers.Cond {
	m := r.get("match")
	var path []importers.Cond
	switch prefix, below := m.get("prefix").text(), m.proto("path_separated_prefix").text(); {
	case prefix == "/":
		path = []importers.Cond{}
	case prefix != "":
		path = pathBegins(prefix)
	case below != "":
		path = pathBelow(below)
	case m.get("path").text() != "":
		path = exactPath(m.get("path").text())
	case m.proto("safe_regex", "regex").text() != "":
		path = e.pathFinds(r, "^(?:"+m.proto("safe_regex", "regex").text()+")$", false)
	}
	if path == nil || m.proto("case_sensitive").text() == "false" || m.proto("query_parameters").there() || m.get("grpc").there() || m.proto("runtime_fraction").there() {
		return nil
	}
	return and([][]importers.Cond{path}, headersMatch(m.get("headers").list()))
}

// headersMatch returns conditions on headers, nil if rules cannot express them.
func headersMatch(all []node) [][]importers.Cond {
	when := [][]importers.Cond{{}}
	for _, h := range all {
		attribute, ok := headerOf(h.get("name").text())
		if !ok || h.proto("invert_match").text() == "true" {
			return nil
		}
		exact, value := "", ""
		for _, in := range []node{h.proto("string_match"), h} {
			for _, kind := range [][3]string{{"exact", "", ""}, {"prefix", "", "*"}, {"suffix", "*", ""}, {"contains", "*", "*"}} {
				for _, name := range []string{kind[0], kind[0] + "_match"} {
					if v := in.proto(name); v.there() && in.proto("ignore_case").text() != "true" {
						exact, value = v.text(), kind[1]+importers.Escape(v.text())+kind[2]
					}
				}
			}
		}
		var one []importers.Cond
		switch {
		case attribute == "path" && value == importers.Escape(exact):
			one = exactPath(exact)
		case attribute == "path" && strings.TrimSuffix(value, "*") == importers.Escape(exact):
			one = pathBegins(exact)
		case attribute == "path":
		case attribute == "host":
			one = hostIs(value)
		case value != "":
			one = []importers.Cond{is(attribute, value)}
		case h.proto("present_match").text() == "true":
			one = []importers.Cond{{Attribute: attribute, Set: true}}
		}
		if one == nil {
			return nil
		}
		when = and(when, [][]importers.Cond{one})
	}
	return when
}

// headerOf returns the attribute of a header, or of a pseudo-header such as :path.
func headerOf(name string) (string, bool) {
	switch name {
	case ":path":
		return "path", true
	case ":method":
		return "method", true
	case ":authority", "host", "Host":
		return "host", true
	}
	return header(name)
}

// filter makes the rules of a configuration.
func (e *envoyLocal) filter(f envoyFilter) {
	n := f.config
	in := e.uses[n.Node]
	enabled, enforced := e.percent(n, "filter_enabled"), e.percent(n, "filter_enforced")
	name := n.proto("stat_prefix").text()
	called := e.called(name, in)
	if enabled < 100 && n.proto("token_bucket").there() {
		if enabled == 0 {
			e.notes.Say(n.where(), "filter_enabled is 0 %%, as it is unless set, so that %s limits nothing there: left out", name)
			return
		}
		e.notes.Lose(n.where(), "filter_enabled of some requests is NOT KEPT: %s holds for all", name)
	}
	if enforced > 0 && enforced < 100 {
		e.notes.Lose(n.where(), "filter_enforced of some requests is NOT KEPT: %s is in shadow", name)
	}
	if n.proto("local_rate_limit_per_downstream_connection").text() == "true" {
		e.notes.Lose(n.where(), "the limit of each connection is NOT KEPT: rules do not see connections")
		return
	}
	if n.proto("local_cluster_rate_limit").there() {
		e.notes.Say(n.where(), "local_cluster_rate_limit is left out: processes share a limit through a store")
	}
	var others [][]importers.Cond
	for _, r := range e.descriptors(f) {
		r.Name, r.Shadow = importers.NameOf(name+"-"+r.Name, called), enforced < 100
		more := r.Match[0]
		others = append(others, more)
		r.Match = nil
		e.add(n, r, in, more...)
	}
	if limit := e.bucket(n.proto("token_bucket")); limit != "" {
		r := importers.Rule{Name: called, Key: []string{}, Limits: []string{limit}, Shadow: enforced < 100}
		if n.proto("always_consume_default_token_bucket").text() == "false" {
			r.Unless = others
		}
		e.add(n, r, in)
	}
}

// called returns a filter's name for names of rules. It is made of its stat_prefix, which
// several filters may have, and of a hash of the requests that the filter is for.
func (e *envoyLocal) called(name string, in []int) string {
	var identity []string
	for _, i := range in {
		if e.places[i].whole() {
			return name
		}
		for _, when := range e.places[i].when {
			identity = append(identity, importers.Text(when))
		}
	}
	slices.Sort(identity)
	return importers.NameOf(name, identity...)
}

// entriesText returns the entries of a descriptor for people: key=value.key.
func entriesText(d node) string {
	var all []string
	for _, entry := range d.get("entries").list() {
		all = append(all, strings.TrimSuffix(entry.get("key").text()+"="+entry.get("value").text(), "="))
	}
	return strings.Join(all, ".")
}

// percent returns for how many of a hundred requests a setting applies, rounded up.
func (e *envoyLocal) percent(n node, name string) int64 {
	of := n.proto(name, "default_value")
	v := e.number(of.get("numerator"), 0)
	switch per := map[string]int64{"": 1, "HUNDRED": 1, "TEN_THOUSAND": 100, "MILLION": 10000}[of.get("denominator").text()]; {
	case per == 0:
		e.fail(of, "denominator %q: want HUNDRED, TEN_THOUSAND or MILLION", of.get("denominator").text())
		return 0
	default:
		return min((v+per-1)/per, 100)
	}
}

// bucket returns a token bucket as the text of a limit, "" for none.
func (e *envoyLocal) bucket(n node) string {
	if !n.there() {
		return ""
	}
	most, fill := e.number(n.proto("max_tokens"), 0), e.number(n.proto("tokens_per_fill"), 1)
	text := n.proto("fill_interval").text() // Envoy allows no unit but s
	every, err := time.ParseDuration(text)
	if strings.Trim(text, "0123456789.") != "s" {
		every = 0
	}
	if s := n.proto("fill_interval", "seconds"); s.there() {
		every, err = time.Duration(min(e.number(s, 0), 1<<33))*time.Second, nil
	}
	if err != nil || every <= 0 || most == 0 || fill == 0 {
		e.fail(n, "token_bucket: want max_tokens, tokens_per_fill of at least 1, and a fill_interval such as 60s")
		return ""
	}
	return fmt.Sprintf("%d/%s burst %d", fill, per(every), most)
}

// descriptors returns the rules of descriptors with their own buckets, each with one Match.
func (e *envoyLocal) descriptors(f envoyFilter) (all []importers.Rule) {
	type made struct {
		keys  string
		match []importers.Cond
		exact bool
	}
	var found []made
	for _, d := range f.config.get("descriptors").list() {
		limit := e.bucket(d.proto("token_bucket"))
		reached := false
		for _, l := range f.limits {
			r := importers.Rule{Name: entriesText(d), Key: []string{}, IPv6Prefix: 128, Limits: []string{limit}}
			match, keys, ok := e.descriptor(&r, d.get("entries").list(), l.get("actions").list())
			if !ok || limit == "" {
				continue
			}
			reached = true
			if len(r.Key) > 0 {
				for _, o := range found {
					if o.keys == keys && o.exact { // these requests have a more specific descriptor
						r.Unless = append(r.Unless, o.match)
					}
				}
			}
			found = append(found, made{keys, match, len(r.Key) == 0})
			r.Match = [][]importers.Cond{match}
			all = append(all, r)
		}
		if !reached && limit != "" {
			e.notes.Lose(d.where(), "the limit of this descriptor is NOT KEPT: no rate_limits in the file make it of what rules know")
		}
	}
	return all
}

// descriptor returns the conditions of requests for which actions make a descriptor of these
// entries, and adds keys to the rule; ok is false if rules cannot express such requests.
func (e *envoyLocal) descriptor(r *importers.Rule, entries, actions []node) (match []importers.Cond, keys string, ok bool) {
	if len(entries) != len(actions) || len(entries) == 0 {
		return nil, "", false
	}
	when := [][]importers.Cond{{}}
	for i, a := range actions {
		key, value := entries[i].get("key").text(), entries[i].get("value").text()
		keys += key + "\n"
		made, constant, attribute := "", "", ""
		name := func(of node, without string) string {
			if k := of.proto("descriptor_key").text(); k != "" {
				return k
			}
			return without
		}
		switch {
		case a.proto("remote_address").Node != nil:
			made, attribute = "remote_address", "ip"
		case a.proto("request_headers").there():
			made = name(a.proto("request_headers"), "")
			attribute, ok = headerOf(a.proto("request_headers", "header_name").text())
			if !ok {
				return nil, "", false
			}
		case a.proto("generic_key").there():
			made, constant = name(a.proto("generic_key"), "generic_key"), a.proto("generic_key", "descriptor_value").text()
		case a.proto("header_value_match").there():
			of := a.proto("header_value_match")
			made, constant = name(of, "header_match"), of.proto("descriptor_value").text()
			when = and(when, headersMatch(of.get("headers").list()))
			if of.proto("expect_match").text() == "false" {
				return nil, "", false
			}
		}
		switch {
		case made == "" || made != key || attribute == "" && value != constant:
			return nil, "", false
		case attribute == "":
		case value == "":
			r.Key = append(r.Key, attribute)
			when = and(when, [][]importers.Cond{{{Attribute: attribute, Set: true}}})
		default:
			when = and(when, valueIs(attribute, value))
		}
	}
	if len(when) != 1 {
		return nil, "", false
	}
	return when[0], keys, true
}

// valueIs returns the condition that an attribute is exactly value; nil if rules have none.
func valueIs(attribute, value string) [][]importers.Cond {
	var one []importers.Cond
	switch attribute {
	case "path":
		one = exactPath(value)
	case "host":
		one = hostIs(value)
	case "ip":
		if ips, ok := ranges([]string{value}); ok {
			one = []importers.Cond{is("ip", ips...)}
		}
	default:
		one = []importers.Cond{is(attribute, importers.Escape(value))}
	}
	if one == nil {
		return nil
	}
	return [][]importers.Cond{one}
}
