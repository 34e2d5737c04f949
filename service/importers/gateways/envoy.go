package gateways

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// envoyLocal is the configuration of Envoy in all files together.
type envoyLocal struct {
	*converter
	uses    map[*rulesfile.Node]*envoyFilter // by their configurations
	all     []*envoyFilter
	bases   map[string][]base // the filters of connection managers, by the name of their route configuration
	ports   map[string]bool   // names of the route configurations of managers that leave the port in Host
	named   map[string]bool   // names of the route configurations in the files
	whole   map[string]bool   // entries with a virtual host for what no other takes
	writers []writer          // filters that may write headers before the limit, or change the route
	layers  []node            // of the runtime
	inner   map[string]bool   // attributes of headers that Envoy removes unless its own servers sent them
}

// An envoyFilter is a configuration of the filter, and the indexes of the places where it applies, together
// and by the rate_limits that make descriptors there.
type envoyFilter struct {
	config node
	in     []int
	groups []envoyGroup
}

type envoyGroup struct {
	limits []node
	in     []int
}

// A base is a filter of a connection manager, which routes configure by its name.
type base struct {
	name   string
	config node
}

// EnvoyLocal converts Envoy's local rate limit filter, in a configuration of Envoy or in
// patches of Istio.
func EnvoyLocal(docs []Document) ([]byte, importers.Notes, error) {
	e := &envoyLocal{converter: newConverter(docs), uses: map[*rulesfile.Node]*envoyFilter{}, bases: map[string][]base{}, ports: map[string]bool{}, named: map[string]bool{}, whole: map[string]bool{}, inner: map[string]bool{"header.x-envoy-downstream-service-cluster": true, "header.x-envoy-downstream-service-node": true}}
	var managers, alone []node
	for _, d := range docs {
		each(d.root, e.before)
	}
	for _, d := range docs {
		e.unread(d.root)
		e.layers = append(e.layers, d.root.anyCase("layered_runtime", "layers").list()...)
		each(d.root, e.others)
		each(d.root, func(n node) bool {
			switch config, ok := localRateLimit(n); {
			case n.anyCase("http_filters").is(rulesfile.List):
				managers = append(managers, n)
				name := n.anyCase("rds", "route_config_name").text()
				e.ports[name] = e.ports[name] || !n.anyCase("strip_any_host_port").yes()
				e.bases[name] = append(e.bases[name], basesOf(n)...)
				return false
			case n.anyCase("typed_extension_protocol_options").there(): // a cluster
				if config, ok := filterIn(n); ok {
					e.notes.Lose(config.where(), "the limit of a cluster is NOT KEPT: rules do not see which cluster has a request")
				}
				return false
			case n.anyCase("virtual_hosts").is(rulesfile.List): // a route configuration, as rds serves it
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
	if len(alone) > 0 {
		e.places = append(e.places, place{when: everywhere, at: alone[0]})
	}
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
	e.places = append(e.places, place{when: everywhere, answered: true}) // what no virtual host takes
	for _, m := range managers {
		if !e.whole[e.entry(m)] {
			e.useAll(basesOf(m))
		}
	}
	e.filters()
	return e.done()
}

// unread notes the limits in objects of what configures Envoy, but for those of Istio.
func (e *envoyLocal) unread(object node) {
	kind := object.get("kind").text()
	if importers.OneOf(kind, "EnvoyFilter CustomResourceDefinition") {
		return
	}
	e.foreign(object, "rateLimit rateLimitPolicy")
}

// patch reads a route with a configuration of the filter that Istio inserts. Istio names
// virtual hosts host:port, except those for inbound traffic.
func (e *envoyLocal) patch(n node) bool {
	r := n.get("patch", "value")
	config, ok := filterIn(r.anyCase("typed_per_filter_config"))
	if !ok || !r.get("match").there() {
		return false
	}
	one := place{when: e.routeMatch(r), at: r, lacks: e.knowsRoute(r, []node{config})}
	if host, port, named := strings.Cut(n.get("match", "routeConfiguration", "vhost", "name").text(), ":"); named {
		one.when, one.entries = and(one.when, [][]importers.Cond{hostIs(host)}), []string{port}
	}
	e.places = append(e.places, one)
	e.use(config, r.anyCase("route", "rate_limits").list(), len(e.places)-1)
	e.moved(e.movers(r))
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

// The fields that are read, or change neither which requests a route has nor their limits.
const (
	managerFields = `@type codec_type stat_prefix rds route_config http_filters add_user_agent tracing *_protocol_options http1_safe_max_connection_duration
		server_* scheme_header_transformation max_request_headers_kb *_timeout drain_timeout_jitter access_log* flush_access_log_on_new_request
		use_remote_address xff_num_trusted_hops original_ip_detection_extensions internal_address_config skip_xff_append via *_request_id
		always_set_request_id_in_response forward_* set_current_client_cert_details proxy_* represent_* upgrade_configs normalize_path
		merge_slashes path_with_escaped_slashes_action request_id_extension local_reply_config strip_* stream_error_on_invalid_http_message
		path_normalization_options typed_header_validation_config append_* add_* record_route_resolution_stats`
	routesFields = `@type name virtual_hosts internal_only_headers most_specific_header_mutations_wins validate_clusters
		max_direct_response_body_size_bytes cluster_specifier_plugins ignore_port_in_host_matching ` + anyFields
	hostFields = `name domains routes require_tls virtual_clusters rate_limits cors include_* retry_* hedge_policy
		per_request_buffer_limit_bytes request_body_buffer_limit ` + anyFields
	routeFields = `name match route redirect direct_response filter_action non_forwarding_action decorator tracing stat_prefix rate_limits
		per_request_buffer_limit_bytes request_body_buffer_limit ` + anyFields
	anyFields    = `request_headers_to_* response_headers_to_* request_mirror_policies typed_per_filter_config metadata`
	actionFields = `cluster* weighted_clusters inline_cluster_specifier_plugin metadata_match prefix_rewrite regex_rewrite path_rewrite* host_rewrite*
		auto_host_rewrite* append_x_forwarded_host *timeout early_data_policy retry_* request_mirror_policies priority rate_limits include_vh_rate_limits
		hash_policy cors grpc_timeout_offset upgrade_configs internal_redirect_* max_internal_redirects hedge_policy max_stream_duration`
	matchFields  = `prefix path path_separated_prefix safe_regex case_sensitive headers`
	unmatched    = `path_match_policy connect_matcher query_parameters cookies grpc runtime_fraction tls_context dynamic_metadata filter_state`
	headerFields = `name exact_match safe_regex_match range_match present_match prefix_match suffix_match contains_match string_match invert_match treat_missing_header_as_empty`
	textFields   = `exact prefix suffix safe_regex contains custom ignore_case`
	limitFields  = `@type stat_prefix status token_bucket filter_* request_headers_to_* response_headers_to_* descriptors stage rate_limits
		local_rate_limit_per_downstream_connection local_cluster_rate_limit enable_* vh_rate_limits always_consume_default_token_bucket
		rate_limited_as_resource_exhausted max_dynamic_descriptors`
	bucketFields = `max_tokens tokens_per_fill fill_interval`
)

// notLocal are the other filters that limit something, by the ends of their types, and why
// their limits are lost.
var notLocal = map[string]string{
	"filters.http.admission_control.v3.AdmissionControl":          "admission_control is NOT KEPT: it denies by how many requests succeed, which rules do not see",
	"filters.http.adaptive_concurrency.v3.AdaptiveConcurrency":    "adaptive_concurrency is NOT KEPT: it denies by how long requests take, which rules do not see",
	"filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig": "rate_limit_quota is NOT KEPT: its limits are at another service",
}

// ofConnections matches the types of filters that limit connections.
var ofConnections = regexp.MustCompile(`filters\.(listener|network|udp)\..*Limit$`)

// others notes what becomes of filters that are not the local rate limit.
func (e *envoyLocal) others(n node) bool {
	kind, config := n.get("@type").text(), n
	if of := n.anyCase("type_url"); of.there() {
		kind, config = of.text(), n.get("value")
	}
	for end, why := range notLocal {
		if strings.HasSuffix(kind, end) {
			e.notes.Lose(n.where(), "%s", why)
		}
	}
	if strings.HasSuffix(kind, ".ratelimit.v3.RateLimit") {
		e.notes.Say(n.where(), "the limits of the domain %s are at your rate limit service: stint import envoy-ratelimit reads its configuration", config.get("domain").text())
	} else if strings.HasSuffix(kind, ".proxy_protocol.v3.ProxyProtocol") && strings.Contains(kind, ".listener.") {
		e.proxied = append(e.proxied, setting{"PROXY protocol", n})
	} else if ofConnections.MatchString(kind) {
		e.notes.Lose(n.where(), "a limit of connections is NOT KEPT: these rules are for requests")
	}
	for _, name := range n.anyCase("internal_only_headers").texts() {
		e.inner["header."+strings.ToLower(name)] = true
	}
	for _, c := range n.anyCase("weighted_clusters", "clusters").list() {
		for _, f := range c.anyCase("typed_per_filter_config").fields() {
			if _, ok := filterIn(f.value); ok || strings.HasSuffix(f.name, "local_ratelimit") {
				e.notes.Lose(f.value.where(), "the limit of a weighted cluster is NOT KEPT: rules do not see which cluster has a request")
			}
		}
	}
	return true
}

// localRateLimit returns the configuration of the filter in a typed message.
func localRateLimit(n node) (config node, ok bool) {
	const kind = "filters.http.local_ratelimit.v3.LocalRateLimit"
	if strings.HasSuffix(n.get("@type").text(), kind) {
		return n, true
	}
	return n.get("value"), strings.HasSuffix(n.anyCase("type_url").text(), kind)
}

// filterIn returns the first configuration of the filter in a node.
func filterIn(n node) (found node, ok bool) {
	each(n, func(n node) bool {
		if config, is := localRateLimit(n); is && !ok {
			found, ok = config, true
		}
		return !ok
	})
	return found, ok
}

// basesOf returns the filters of a connection manager.
func basesOf(m node) (all []base) {
	for _, f := range m.anyCase("http_filters").list() {
		each(f, func(n node) bool {
			config, ok := localRateLimit(n)
			if ok {
				all = append(all, base{f.get("name").text(), config})
			}
			return !ok
		})
	}
	return all
}

// useAll notes that filters apply at the last place.
func (e *envoyLocal) useAll(bases []base) {
	for _, b := range bases {
		e.use(b.config, nil, len(e.places)-1)
	}
}

// use notes that a configuration applies at a place, by its index.
func (e *envoyLocal) use(config node, limits []node, at int) {
	if own := config.anyCase("rate_limits"); own.there() {
		limits = own.list()
	}
	f := e.uses[config.Node]
	if f == nil {
		f = &envoyFilter{config: config}
		e.uses[config.Node], e.all = f, append(e.all, f)
	}
	i := slices.IndexFunc(f.groups, func(g envoyGroup) bool { return slices.Equal(g.limits, limits) })
	if i < 0 {
		i, f.groups = len(f.groups), append(f.groups, envoyGroup{limits: limits})
	}
	if g := &f.groups[i]; !slices.Contains(f.in, at) {
		f.in, g.in = append(f.in, at), append(g.in, at)
	}
}

// manager reads the routes of a connection manager.
func (e *envoyLocal) manager(m node) {
	bases := basesOf(m)
	routes, rds := m.anyCase("route_config"), m.anyCase("rds", "route_config_name").text()
	switch {
	case m.anyCase("virtual_hosts").there():
		routes = m
		bases = e.bases[m.get("name").text()]
	case !routes.there() && len(bases) > 0 && m.anyCase("rds").there() && !e.named[rds]:
		e.notes.Say(m.where(), "routes of rds are not in the file: what they say of this limit is not read")
	}
	for _, name := range []string{"xff_num_trusted_hops", "original_ip_detection_extensions"} {
		if of := m.anyCase(name); of.there() && of.text() != "0" {
			e.proxied = append(e.proxied, setting{name, of})
		}
	}
	if filters := m.anyCase("http_filters"); filters.there() && !m.anyCase("use_remote_address").yes() {
		e.proxied = append(e.proxied, setting{"the client by X-Forwarded-For, without use_remote_address,", filters})
	}
	lacks := e.knows(routes, routesFields)
	if filters := m.anyCase("http_filters"); filters.there() {
		lacks = cmp.Or(lacks, e.knows(m, managerFields))
		for _, f := range filters.list() {
			if e.knows(f, "name typed_config is_optional disabled"); f.get("disabled").yes() && len(basesOf(node{importers.MapNode("http_filters", f.Node), f.file})) > 0 {
				e.notes.Say(f.where(), "disabled is left out: the limit holds for every request here, and there only where a route turns it on")
			}
		}
	}
	first, movers := len(e.places), e.movers(routes)
	for _, d := range e.domains(m, routes) {
		lacks := cmp.Or(e.knows(d.host, hostFields), lacks)
		when := everywhere
		if name, _, _ := strings.Cut(d.name, ":"); name != "*" {
			if when = nil; hostIs(name) != nil {
				when = [][]importers.Cond{hostIs(name)}
			}
		}
		for _, r := range d.host.get("routes").list() {
			one := place{when: and(when, e.routeMatch(r)), at: r, entries: d.entries, answered: r.get("redirect").there()}
			own := e.configs(bases, r, d.host, routes)
			one.lacks = cmp.Or(e.knowsRoute(r, own), lacks)
			e.places = append(e.places, one)
			limits := append(r.anyCase("route", "rate_limits").list(), r.anyCase("rate_limits").list()...)
			for _, config := range own {
				all := limits
				if mode := config.anyCase("vh_rate_limits").text(); mode == "INCLUDE" || r.anyCase("route", "include_vh_rate_limits").yes() || len(limits) == 0 && mode != "IGNORE" {
					all = slices.Concat(limits, d.host.anyCase("rate_limits").list())
				}
				e.use(config, all, len(e.places)-1)
			}
		}
		e.places = append(e.places, place{when: when, at: d.host, entries: d.entries, answered: true, lacks: lacks}) // no route takes them: Envoy answers 404
		e.useAll(bases)
	}
	if !e.alike(first, e.whole[e.entry(m)], bases) {
		e.moved(movers)
	}
}

// knowsRoute is knows for a route, with the configurations of filters for it.
func (e *envoyLocal) knowsRoute(r node, configs []node) string {
	lacks := cmp.Or(e.knows(r, routeFields), e.knows(r.get("route"), actionFields))
	for _, config := range configs {
		lacks = cmp.Or(lacks, e.knows(config, limitFields), e.knows(config.anyCase("token_bucket"), bucketFields))
	}
	return lacks
}

// canonical is the name of the filter by which older versions of Envoy found a configuration of a route, too.
const canonical = "envoy.filters.http.local_ratelimit"

// configs returns the configurations of filters for a route, the most specific of each: that of the route,
// its virtual host, the route configuration, the filter. It must be under the name of the filter.
func (e *envoyLocal) configs(bases []base, in ...node) (all []node) {
	if len(bases) == 0 {
		bases = []base{{}}
	}
	for _, b := range bases {
		config, ok := b.config, false
		for _, n := range in {
			of := n.anyCase("typed_per_filter_config")
			if b.name != "" {
				if old := of.get(canonical); b.name != canonical && old.there() && len(bases) == 1 {
					e.notes.Lose(old.where(), "%s for the filter %s is NOT KEPT: newer versions of Envoy look for that name alone", canonical, b.name)
				}
				of = of.get(b.name)
			}
			if own, is := filterIn(of); is && !ok {
				config, ok = own, true
			}
		}
		if config.Node != nil {
			all = append(all, config)
		}
	}
	return all
}

// A domain is a domain of a virtual host, and by what its requests come in: an entry is one of a connection
// manager with a port in Host, since rules do not see this port.
type domain struct {
	name    string
	host    node
	entries []string
}

// domains returns the domains of a connection manager in the order in which Envoy looks for them. Unless
// ports are stripped, one without a port takes no request with a port in Host.
func (e *envoyLocal) domains(m, routes node) (all []domain) {
	entry, name := e.entry(m)+" ", m.get("name").text()
	every := []string{entry, entry + "*"}
	for _, host := range routes.anyCase("virtual_hosts").list() {
		for _, name := range host.get("domains").texts() {
			e.whole[e.entry(m)] = e.whole[e.entry(m)] || name == "*"
			if len(name) > 1 && name[0] == '*' && strings.HasSuffix(name, "*") {
				e.notes.Say(host.where(), "the domain %s takes no request there: a star is at one end", name)
				continue
			}
			_, port, _ := strings.Cut(name, ":")
			if all = append(all, domain{name, host, []string{entry + port}}); !slices.Contains(every, entry+port) {
				every = append(every, entry+port)
			}
		}
	}
	keeps, known := e.ports[name]
	stripped := routes.anyCase("ignore_port_in_host_matching").yes() || m.anyCase("strip_any_host_port").yes() ||
		m.anyCase("virtual_hosts").there() && known && !keeps
	for i := range all {
		d := &all[i]
		_, port, has := strings.Cut(d.name, ":")
		switch all := d.host.get("domains").texts(); {
		case port == "*":
			d.entries = every[1:]
		case !has && (stripped || strings.HasSuffix(d.name, "*") || len(every) == 2 && slices.Contains(all, d.name+":*")):
			d.entries = every
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
	slices.SortStableFunc(all, func(a, b domain) int {
		if ra, rb := rank(a.name), rank(b.name); ra != rb {
			return ra - rb
		}
		return len(b.name) - len(a.name)
	})
	return all
}

// entry returns by what the requests of a connection manager come in. Each has a listener of its own;
// a route configuration in the files, and the managers that name it, are one.
func (e *envoyLocal) entry(m node) string {
	name := m.anyCase("rds", "route_config_name").text()
	if m.anyCase("virtual_hosts").there() {
		name = m.get("name").text()
	}
	if e.named[name] {
		return "rds " + name
	}
	return m.where()
}

// routeMatch returns the conditions of a route, nil if rules cannot express them.
func (e *envoyLocal) routeMatch(r node) [][]importers.Cond {
	m := r.get("match")
	var path []importers.Cond
	switch prefix, below := m.get("prefix").text(), m.anyCase("path_separated_prefix").text(); {
	case prefix == "/":
		path = []importers.Cond{}
	case prefix != "":
		path = pathBegins(prefix)
	case below != "":
		path = pathBelow(below)
	case m.get("path").text() != "":
		path = exactPath(m.get("path").text())
	case m.anyCase("safe_regex", "regex").text() != "":
		path = e.pathFinds(r, "^(?:"+m.anyCase("safe_regex", "regex").text()+")$", false)
	}
	e.knows(m, matchFields, unmatched)
	others := slices.ContainsFunc(m.fields(), func(f field) bool { return !importers.OneOf(f.name, matchFields) })
	if path == nil || others || m.anyCase("case_sensitive").no() {
		return nil
	}
	return and([][]importers.Cond{path}, e.headersMatch(m.get("headers").list()))
}

// headersMatch returns conditions on headers, nil if rules cannot express them.
func (e *envoyLocal) headersMatch(all []node) [][]importers.Cond {
	when := [][]importers.Cond{{}}
	for _, h := range all {
		attribute, ok := e.headerOf(h.get("name").text())
		if !ok || h.anyCase("invert_match").yes() || e.knows(h, headerFields)+e.knows(h.anyCase("string_match"), textFields) != "" {
			return nil
		}
		exact, value := "", ""
		for _, in := range []node{h.anyCase("string_match"), h} {
			for _, kind := range [][3]string{{"exact", "", ""}, {"prefix", "", "*"}, {"suffix", "*", ""}, {"contains", "*", "*"}} {
				for _, name := range []string{kind[0], kind[0] + "_match"} {
					if v := in.anyCase(name); v.there() && !in.anyCase("ignore_case").yes() {
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
		case h.anyCase("present_match").yes():
			one = []importers.Cond{{Attribute: attribute, Set: true}}
		}
		if one == nil {
			return nil
		}
		when = and(when, e.wider(attribute, one))
	}
	return when
}

// wider returns a condition on a header. Rules read the path without its query and the host without its
// port, in any case, and so take more than the whole text of such a header. Nor do they remove a header of
// inner servers.
func (e *envoyLocal) wider(attribute string, one []importers.Cond) [][]importers.Cond {
	for i := range one {
		whole := attribute == "path" && one[i].Less == nil && one[i].Values != nil && !strings.HasSuffix(one[i].Values[0], "**")
		one[i].Wide = one[i].Wide || whole || attribute == "host" || e.inner[attribute]
	}
	return [][]importers.Cond{one}
}

// headerOf returns the attribute of a header, or of a pseudo-header such as :path; ok is false for one that
// Envoy itself sets, too.
func (e *envoyLocal) headerOf(name string) (attribute string, ok bool) {
	switch name {
	case ":path":
		return "path", true
	case ":method":
		return "method", true
	case ":authority", "host", "Host":
		return "host", true
	}
	attribute, ok = header(name)
	return attribute, ok && (!importers.OneOf(attribute, "header.x-envoy-* header.x-forwarded-* header.x-request-id") || e.inner[attribute])
}

// filter makes the rules of a configuration.
func (e *envoyLocal) filter(f *envoyFilter) {
	n, in := f.config, f.in
	enabled, enforced := e.percent(n, "filter_enabled"), e.percent(n, "filter_enforced")
	name := n.anyCase("stat_prefix").text()
	called := e.called(name, in)
	if enabled < 100 && n.anyCase("token_bucket").there() {
		if enabled == 0 {
			e.notes.Say(n.where(), "filter_enabled is 0 %%, as it is unless set, so that %s limits nothing there: left out", name)
			return
		}
		e.notes.Lose(n.where(), "filter_enabled of some requests is NOT KEPT: %s holds for all", name)
	}
	if enforced > 0 && enforced < 100 {
		e.notes.Lose(n.where(), "filter_enforced of some requests is NOT KEPT: %s is in shadow", name)
	}
	if n.anyCase("local_rate_limit_per_downstream_connection").yes() {
		e.notes.Lose(n.where(), "the limit of each connection is NOT KEPT: rules do not see connections")
		return
	}
	if n.anyCase("local_cluster_rate_limit").there() {
		e.notes.Say(n.where(), "local_cluster_rate_limit is left out: processes share a limit through a store")
	}
	if code := n.get("status", "code"); code.there() && !importers.OneOf(code.text(), "429 TooManyRequests") || n.anyCase("rate_limited_as_resource_exhausted").yes() || n.anyCase("response_headers_to_add").there() {
		e.notes.Say(n.where(), "status, rate_limited_as_resource_exhausted and response_headers_to_add are left out: a denial is 429 here. denied of the rule sets its status and headers")
	}
	all := e.descriptors(f)
	for _, d := range all {
		r := d.rule
		r.Name, r.Shadow = importers.NameOf(name+"-"+r.Name, called), enforced < 100
		e.add(n, r, d.in, d.match...)
		e.added[len(e.added)-1].shares = fmt.Sprintf("%p", d.at.Node)
	}
	if limit := e.bucket(n.anyCase("token_bucket")); limit != "" {
		r := importers.Rule{Name: called, Key: []string{}, Limits: []string{limit}, Shadow: enforced < 100}
		if n.anyCase("always_consume_default_token_bucket").no() {
			for _, d := range all {
				e.leave(&r, in, d)
			}
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
	of, key := n.anyCase(name, "default_value"), n.anyCase(name, "runtime_key").text()
	for _, l := range e.layers {
		if sets(l.anyCase("static_layer"), key) || key != "" && (l.anyCase("disk_layer").there() || l.anyCase("rtds_layer").there()) {
			e.notes.Lose(n.where(), "%s by %s is NOT KEPT: the runtime at %s may set it, and this reads its default", name, key, l.where())
		}
	}
	v := e.number(of.get("numerator"), 0)
	switch per := map[string]int64{"": 1, "HUNDRED": 1, "TEN_THOUSAND": 100, "MILLION": 10000}[of.get("denominator").text()]; {
	case per == 0:
		e.fail(of, "denominator %q: want HUNDRED, TEN_THOUSAND or MILLION", of.get("denominator").text())
		return 0
	default:
		return min((v+per-1)/per, 100)
	}
}

// sets reports whether a layer of the runtime sets a key, whose words may be nested.
func sets(layer node, key string) bool {
	return slices.ContainsFunc(layer.fields(), func(f field) bool {
		rest, within := strings.CutPrefix(key, f.name+".")
		return f.name == key || within && sets(f.value, rest)
	})
}

// bucket returns a token bucket as the text of a limit, "" for none.
func (e *envoyLocal) bucket(n node) string {
	if !n.there() {
		return ""
	}
	most, fill := e.number(n.anyCase("max_tokens"), 0), e.number(n.anyCase("tokens_per_fill"), 1)
	text := n.anyCase("fill_interval").text() // Envoy allows no unit but s
	every, err := time.ParseDuration(text)
	if strings.Trim(text, "0123456789.") != "s" {
		every = 0
	}
	if s := n.anyCase("fill_interval", "seconds"); s.there() {
		every, err = time.Duration(min(e.number(s, 0), 1<<33))*time.Second, nil
	}
	if err != nil || every <= 0 || most == 0 || fill == 0 {
		e.fail(n, "token_bucket: want max_tokens, tokens_per_fill of at least 1, and a fill_interval such as 60s")
		return ""
	}
	return fmt.Sprintf("%d/%s burst %d", fill, per(every), most)
}

// A described is the rule of a descriptor with its own bucket.
type described struct {
	rule  importers.Rule
	match []importers.Cond // the requests that it is for
	keys  string
	at    node
	in    []int // the places where it is made
}

// leave takes the requests of a descriptor from a rule for some places.
func (e *envoyLocal) leave(r *importers.Rule, in []int, d described) {
	if r.Limits == nil {
		return
	}
	less, ok := surely(d.match)
	if !ok && len(d.rule.Key) == 0 && importers.NoLooser(d.rule.Limits[0], r.Limits[0]) {
		less, ok = d.match, true
	}
	switch {
	case !ok || slices.ContainsFunc(in, func(i int) bool { return !slices.Contains(d.in, i) && !e.hidden(i) }):
		e.around(d.at)
	case len(less) == 0: // all of them
		r.Limits = nil
	default:
		r.Unless = append(r.Unless, less)
	}
}

// descriptors returns the rules of descriptors with their own buckets.
func (e *envoyLocal) descriptors(f *envoyFilter) (all []described) {
	for _, d := range f.config.get("descriptors").list() {
		limit := e.bucket(d.anyCase("token_bucket"))
		if e.knows(d, "entries token_bucket")+e.knows(d.anyCase("token_bucket"), bucketFields) != "" || limit == "" {
			continue
		}
		before := len(all)
		for _, g := range f.groups {
			for _, l := range g.limits {
				if stage := func(n node) string { return cmp.Or(n.get("stage").text(), "0") }; stage(l) != stage(f.config) || e.knows(l, "stage disable_key actions x_ratelimit_option") != "" {
					continue
				}
				one := described{rule: importers.Rule{Name: entriesText(d), Key: []string{}, IPv6Prefix: 128, Limits: []string{limit}}, at: d, in: g.in}
				var ok bool
				entries, actions := d.get("entries").list(), l.get("actions").list()
				if one.match, one.keys, ok = e.descriptor(&one.rule, entries, actions); !ok {
					if mayMake(entries, actions) {
						e.notes.Lose(d.where(), "the limit of %s is NOT KEPT for what rate_limits at %s make: rules do not know these requests", entriesText(d), l.where())
					}
					continue
				}
				i := slices.IndexFunc(all[before:], func(o described) bool {
					return slices.Equal(o.rule.Key, one.rule.Key) && importers.Text(o.match) == importers.Text(one.match)
				})
				if i >= 0 {
					all[before+i].in = slices.Concat(all[before+i].in, g.in)
					continue
				}
				all = append(all, one)
			}
		}
		if len(all) == before {
			e.notes.Lose(d.where(), "the limit of this descriptor is NOT KEPT: no rate_limits in the file make it of what rules know")
		}
	}
	for i := range all {
		for _, o := range all[:i] {
			if d := &all[i]; o.keys == d.keys && len(d.rule.Key) > 0 && len(o.rule.Key) == 0 { // these requests have a more specific descriptor
				e.leave(&d.rule, d.in, o)
			}
		}
	}
	return all
}

// mayMake reports whether actions may make a descriptor of these entries.
func mayMake(entries, actions []node) bool {
	made := map[int]bool{0: true} // how many of the entries may be made so far
	for _, a := range actions {
		more := map[int]bool{}
		for _, f := range a.fields() {
			code := f.name == "extension"
			for i := range made {
				more[i] = more[i] || code || f.value.anyCase("skip_if_absent").yes()
				more[i+1] = more[i+1] || i < len(entries) && (code || mayBe(f, entries[i]))
			}
		}
		made = more
		maps.DeleteFunc(made, func(_ int, may bool) bool { return !may })
	}
	return len(entries) > 0 && made[len(entries)]
}

// mayBe reports whether an action may make an entry.
func mayBe(action field, entry node) bool {
	key := cmp.Or(action.value.anyCase("descriptor_key").text(), map[string]string{"headervaluematch": "header_match", "queryparametervaluematch": "query_match"}[importers.Unscored(action.name)], action.name)
	value, want := action.value.anyCase("descriptor_value").text(), entry.get("value").text()
	return importers.Unscored(key) == importers.Unscored(entry.get("key").text()) && (value == "" || want == "" || value == want || strings.Contains(value, "%"))
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
			if k := of.anyCase("descriptor_key").text(); k != "" {
				return k
			}
			return without
		}
		switch {
		case a.anyCase("remote_address").Node != nil:
			made, attribute = "remote_address", "ip"
		case a.anyCase("request_headers").there():
			made = name(a.anyCase("request_headers"), "")
			attribute, ok = e.headerOf(a.anyCase("request_headers", "header_name").text())
			if !ok {
				return nil, "", false
			}
			e.writtenBefore(a, attribute)
		case a.anyCase("generic_key").there():
			made, constant = name(a.anyCase("generic_key"), "generic_key"), a.anyCase("generic_key", "descriptor_value").text()
		case a.anyCase("header_value_match").there():
			of := a.anyCase("header_value_match")
			if e.knows(of, "descriptor_value descriptor_key expect_match headers") != "" {
				return nil, "", false
			}
			made, constant = name(of, "header_match"), of.anyCase("descriptor_value").text()
			when = and(when, e.headersMatch(of.get("headers").list()))
			for _, h := range of.get("headers").list() {
				e.writtenBefore(a, "header."+h.get("name").text())
			}
			if of.anyCase("expect_match").no() {
				return nil, "", false
			}
		}
		switch {
		case made == "" || made != key || attribute == "" && value != constant:
			return nil, "", false
		case attribute == "":
		case value == "":
			r.Key = append(r.Key, attribute)
			when = and(when, e.wider(attribute, []importers.Cond{{Attribute: attribute, Set: true}}))
		default:
			when = and(when, e.valueIs(attribute, value))
		}
	}
	if len(when) != 1 {
		return nil, "", false
	}
	return when[0], keys, true
}

// valueIs returns the condition that an attribute is exactly value; nil if rules have none.
func (e *envoyLocal) valueIs(attribute, value string) [][]importers.Cond {
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
	return e.wider(attribute, one)
}
