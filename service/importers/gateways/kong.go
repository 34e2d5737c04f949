package gateways

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/nginxrules"
)

// A KongOptions says what only Kong knows.
type KongOptions struct {
	Consumer string // the attribute that has the name of a request's consumer
}

// A kongRoute is one path of a route, or a whole route without paths.
type kongRoute struct {
	route, service string
	when           [][]importers.Cond
	rank           []int // Kong tries routes of a greater rank first
	former         []int // the rank for a Kong before 3, or with router_flavor traditional
	at             node
	lacks          string // why it is not sure that Kong gives it the requests that it names
}

// A kongPlugin is a plugin that limits requests, and which requests: "" means all.
type kongPlugin struct {
	kind, route, service, name string
	consumers                  []string // nil is any consumer
	group                      bool     // the consumers are the members of a group
	config, at                 node
	lacks                      string // why it is not sure that it holds
}

// kong is a declarative configuration.
type kong struct {
	*converter
	o       KongOptions
	routes  []kongRoute
	plugins []kongPlugin
	others  []node // plugins of other kinds
	groups  map[string][]string
	ids     map[string]string // names of entities by their IDs
	off     map[string]bool   // services that are not enabled
	lacks   map[string]string // why it is not sure that services have the requests of their routes
}

// The fields that are read, or change neither which requests a route has nor their limits.
const (
	kongFields    = `id name created_at updated_at ws_id tags _comment _ignore`
	kongTopFields = `_comment _format_version _ignore _info _konnect _plugin_configs _transform _workspace *_credentials acls ca_certificates
		certificates consumer_groups consumers jwt_secrets key_sets keys licenses partials plugins routes services snis targets upstreams vaults`
	kongRouteFields = kongFields + ` protocols methods hosts paths headers https_redirect_status_code regex_priority strip_path path_handling
		preserve_host request_buffering response_buffering service plugins snis sources destinations expression priority`
	kongServiceFields = kongFields + ` retries protocol host port path *_timeout client_certificate ca_certificates tls_* enabled url routes plugins`
	kongPluginFields  = kongFields + ` instance_name enabled config protocols ordering route service consumer consumer_group partials run_on`
	kongConfigFields  = `second minute hour day month year limit_by header_name path policy fault_tolerant redis* hide_client_headers error_code
		error_message sync_rate limit window_size window_type identifier namespace strategy dictionary_name lock_dictionary_name
		retry_after_jitter_max disable_penalty enforce_consumer_groups consumer_groups throttling compound_identifier`
)

// ofProxies matches the settings by which Kong takes clients from what stands in front.
var ofProxies = regexp.MustCompile(`(?i)\b(kong_)?(trusted_ips|real_ip_(header|recursive))\b`)

// ofNginx matches settings that Kong writes into the configuration of nginx, with the directive.
var ofNginx = regexp.MustCompile(`(?i)\b(?:kong_)?nginx_(?:http|proxy|location)_(\w+)`)

// injected notes the directives in settings that may change limits.
func (k *kong) injected(n node) {
	each(n, func(n node) bool {
		for _, f := range append(n.fields(), field{n.text(), n}) {
			if m := ofNginx.FindStringSubmatch(f.name); m != nil && !nginxrules.Harmless(m[1]) {
				k.unknown("setting", m[0], f.value)
			}
		}
		return true
	})
}

// Kong converts the plugins rate-limiting and rate-limiting-advanced of Kong's
// declarative configuration.
func Kong(docs []Document, o KongOptions) ([]byte, importers.Notes, error) {
	k := &kong{converter: newConverter(docs), o: o, groups: map[string][]string{}, ids: map[string]string{}, off: map[string]bool{}, lacks: map[string]string{}}
	for _, d := range docs {
		k.fronted(d.root, ofProxies)
		k.injected(d.root)
		k.read(d.root)
	}
	k.routes = slices.DeleteFunc(k.routes, func(r kongRoute) bool { return k.off[r.service] })
	slices.SortStableFunc(k.routes, func(a, b kongRoute) int { return slices.Compare(b.rank, a.rank) })
	for i := range k.routes {
		r := &k.routes[i]
		one := place{when: r.when, at: r.at, lacks: cmp.Or(r.lacks, k.lacks[r.service]), former: r.former, tie: fmt.Sprint(r.rank)} // of one rank, Kong takes the oldest
		for j := range k.plugins {
			if p := &k.plugins[j]; p.holds(r) {
				one.limits += p.at.where() + "\n"
			}
		}
		k.places = append(k.places, one)
	}
	// Kong denies a request that no route takes. Rules give it the limits of plugins for
	// all requests.
	k.routes = append(k.routes, kongRoute{})
	k.places = append(k.places, place{when: everywhere})
	for _, p := range k.plugins {
		k.plugin(p)
	}
	return k.done()
}

// read reads one file.
func (k *kong) read(n node) {
	if kind, of := n.get("kind").text(), n.get("plugin").text(); strings.HasSuffix(kind, "Plugin") && strings.Contains(of, "rate-limiting") {
		k.notes.Lose(n.where(), "a %s of %s is NOT KEPT: deck gateway dump writes the declarative file that is converted", kind, of)
	}
	if n.get("_format_version").there() {
		k.knows(n, kongTopFields)
		k.knows(n.get("_info"), "select_tags")
	}
	each(n, func(n node) bool {
		if id := n.get("id").text(); id != "" {
			k.ids[id] = nameOf(n)
		}
		return true
	})
	for _, c := range n.get("consumers").list() {
		for _, g := range c.get("groups").list() {
			k.groups[nameOf(g)] = append(k.groups[nameOf(g)], nameOf(c))
		}
		k.readPlugins(c.get("plugins"), kongPlugin{name: nameOf(c), consumers: []string{nameOf(c)}})
	}
	for _, g := range n.get("consumer_groups").list() {
		for _, c := range g.get("consumers").list() {
			k.groups[nameOf(g)] = append(k.groups[nameOf(g)], k.named(c))
		}
	}
	for _, g := range n.get("consumer_groups").list() {
		k.readPlugins(g.get("plugins"), kongPlugin{name: nameOf(g), consumers: k.members(nameOf(g)), group: true})
	}
	for _, s := range n.get("services").list() {
		if s.get("enabled").no() {
			k.off[nameOf(s)] = true
			k.notes.Say(s.where(), "the service %s is not enabled: its routes are passed over", nameOf(s))
		}
		k.lacks[nameOf(s)] = k.knows(s, kongServiceFields)
		k.readPlugins(s.get("plugins"), kongPlugin{name: called(s), service: nameOf(s)})
		for _, r := range s.get("routes").list() {
			k.route(r, nameOf(s))
		}
	}
	for _, r := range n.get("routes").list() {
		k.route(r, k.named(r.get("service")))
	}
	k.readPlugins(n.get("plugins"), kongPlugin{})
}

// nameOf returns the name, username, custom_id or id by which a file refers to an entity.
func nameOf(n node) string {
	for _, field := range []string{"name", "username", "custom_id", "id"} {
		if text := n.get(field).text(); text != "" {
			return text
		}
	}
	if n.text() == "" && n.there() {
		return n.where() // an entity without a name
	}
	return n.text()
}

// called returns the name of an entity for rules; without a name, a hash of what it takes.
func called(n node) string {
	if name := nameOf(n); name != n.where() {
		return name
	}
	var takes []string
	for _, field := range []string{"hosts", "paths", "methods", "host", "path", "url"} {
		takes = append(takes, strings.Join(n.get(field).texts(), "\n"))
	}
	return importers.NameOf("unnamed", takes...)
}

// named returns the name of the entity that a reference names, by name or ID.
func (k *kong) named(n node) string {
	if name, ok := k.ids[nameOf(n)]; ok {
		return name
	}
	return nameOf(n)
}

// members returns the consumers of a group. It is not nil, since nil would be any consumer.
func (k *kong) members(group string) []string { return append([]string{}, k.groups[group]...) }

// readPlugins reads a list of plugins of an entity.
func (k *kong) readPlugins(n node, of kongPlugin) {
	for _, p := range n.list() {
		one := of
		one.kind, one.config, one.at = p.get("name").text(), p.get("config"), p
		known := one.kind == "rate-limiting" || one.kind == "rate-limiting-advanced"
		switch {
		case p.get("enabled").no():
			if known {
				k.notes.Say(p.where(), "%s is not enabled: passed over", one.kind)
			}
			continue
		case one.kind == "request-size-limiting":
			k.notes.Say(p.where(), "%s is left out: it bounds bytes of a request, stint bounds requests", one.kind)
			continue
		case !known:
			k.others = append(k.others, p)
			if strings.Contains(one.kind, "limiting") || one.kind == "service-protection" {
				k.notes.Lose(p.where(), "%s is NOT KEPT: these rules are of rate-limiting and rate-limiting-advanced", one.kind)
			}
			continue
		}
		if v := k.named(p.get("route")); v != "" {
			one.route, one.name = v, v
		}
		if v := k.named(p.get("service")); v != "" {
			one.service, one.name = v, v
		}
		if v := k.named(p.get("consumer_group")); v != "" {
			one.consumers, one.group, one.name = k.members(v), true, v
		}
		if v := k.named(p.get("consumer")); v != "" {
			one.consumers, one.name = []string{v}, v
		}
		one.lacks = cmp.Or(k.knows(p, kongPluginFields), k.knows(one.config, kongConfigFields))
		for _, o := range k.plugins {
			if o.kind == one.kind && o.route == one.route && o.service == one.service && o.group == one.group && slices.Equal(o.consumers, one.consumers) {
				k.fail(p, "%s comes twice for the same requests, as at %s: Kong takes one", one.kind, o.at.where())
			}
		}
		k.plugins = append(k.plugins, one)
	}
}

// kongHosts returns the conditions of hosts, whether these have no stars, and why they may not be whole.
func kongHosts(hosts []string) (all [][]importers.Cond, plain int, lacks string) {
	if len(hosts) > 0 {
		plain = 1
	}
	for _, host := range hosts {
		host, port, _ := strings.Cut(host, ":")
		if strings.Contains(host, "*") {
			plain = 0
		}
		if port != "" {
			lacks = "this is of one port"
		}
		all = append(all, hostIs(host))
	}
	return all, plain, lacks
}

// route reads a route as one kongRoute for each path, since paths may differ in rank.
func (k *kong) route(n node, service string) {
	k.readPlugins(n.get("plugins"), kongPlugin{name: called(n), route: nameOf(n)})
	when, attributes, kinds := [][]importers.Cond{{}}, 0, 0
	all, plainHosts, lacks := kongHosts(n.get("hosts").texts())
	if lacks != "" {
		k.notes.Say(n.where(), "rules do not see the port of a host: the limits here hold at all ports")
	}
	if all != nil {
		when, attributes, kinds = and(when, all), attributes+1, 8
	}
	if slices.ContainsFunc(all, func(host []importers.Cond) bool { return host == nil }) { // one that rules cannot name
		when = nil
	}
	if methods := n.get("methods").texts(); methods != nil {
		k.getIsHead(methods)
		when, attributes, kinds = and(when, [][]importers.Cond{{is("method", methods...)}}), attributes+1, kinds+1
	}
	headers := n.get("headers").fields()
	for _, h := range headers {
		attribute, ok := header(h.name)
		values := h.value.texts()
		expr := slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "~*") })
		if !ok || expr || len(values) == 0 {
			when = nil
			continue
		}
		cond := is(attribute, escaped(values)...)
		cond.Spelled = slices.ContainsFunc(values, func(v string) bool { return strings.ToLower(v) != strings.ToUpper(v) })
		when = and(when, [][]importers.Cond{{cond}})
	}
	if len(headers) > 0 {
		attributes, kinds = attributes+1, kinds+4
	}
	for _, name := range []string{"snis", "sources", "destinations", "expression"} {
		if n.get(name).there() { // routes of connections, or in another language: what Kong tries before them is not sure
			when, attributes = nil, 1<<30
		}
	}
	paths := n.get("paths").texts()
	if len(paths) > 0 {
		attributes, kinds = attributes+1, kinds+2
	}
	lacks = cmp.Or(lacks, k.knows(n, kongRouteFields))
	route := func(of ...int) kongRoute {
		rank := append([]int{attributes, plainHosts, len(headers)}, of...)
		return kongRoute{nameOf(n), service, when, rank, append([]int{attributes, kinds}, rank[1:]...), n, lacks}
	}
	if len(paths) == 0 {
		k.routes = append(k.routes, route(0, 0, 0))
	}
	priority := int(k.number(n.get("regex_priority"), 0))
	for _, path := range paths {
		expr, regex := strings.CutPrefix(path, "~")
		one := route(0, 0, len(path))
		var cond []importers.Cond
		if regex || !importers.IsNamed(path) { // in older versions of Kong, any path may be an expression
			cond = k.pathFinds(n, "^"+strings.TrimPrefix(expr, "^"), false)
			one = route(1, priority, 0)
		} else {
			cond = pathBegins(path)
		}
		if one.when = nil; cond != nil {
			one.when = and(when, [][]importers.Cond{cond})
		}
		k.routes = append(k.routes, one)
	}
}

// holds reports whether a plugin applies to requests of a route.
func (p *kongPlugin) holds(r *kongRoute) bool {
	return (p.route == "" || p.route == r.route) && (p.service == "" || p.service == r.service)
}

// rank returns the rank of a plugin: of several of one kind, Kong runs that of the greatest.
func (p *kongPlugin) rank() int {
	set := func(is bool, rank int) int {
		if is {
			return rank
		}
		return 0
	}
	consumer := p.consumers != nil
	parts := set(p.route != "", 1) + set(p.service != "", 1) + set(consumer, 1)
	return parts*100 + set(consumer && !p.group, 9) + set(consumer && p.group, 7) + set(p.route != "", 3) + set(p.service != "", 2)
}

// plugin makes the rules of a plugin, for the requests that have no plugin of the same kind
// with a greater rank.
func (k *kong) plugin(p kongPlugin) {
	var in []int
	for i := range k.routes {
		if p.holds(&k.routes[i]) && !slices.ContainsFunc(k.plugins, func(o kongPlugin) bool {
			return o.kind == p.kind && o.consumers == nil && o.lacks == "" && o.holds(&k.routes[i]) && o.rank() > p.rank()
		}) {
			in = append(in, i)
		}
	}
	switch {
	case p.consumers != nil && len(p.consumers) == 0:
		k.notes.Lose(p.at.where(), "the group has no consumers in this file: this plugin is NOT KEPT for those that it has elsewhere")
		return
	case len(in) == 0:
		k.notes.Say(p.at.where(), "no request has this plugin: others go before it, or its route or service is not in the file")
		return
	}
	var named []string // consumers that have a plugin of their own
	for _, o := range k.plugins {
		if o.kind == p.kind && o.consumers != nil && o.lacks == "" && o.rank() > p.rank() {
			if o.route != "" || o.service != "" {
				k.notes.Lose(o.at.where(), "a plugin of one consumer for one route or service is NOT KEPT beside that at %s: both hold here", p.at.where())
				continue
			}
			named = append(named, o.consumers...)
		}
	}
	var limits []string
	by := "limit_by"
	if p.kind == "rate-limiting" {
		limits = k.fixed(p)
	} else {
		by, limits = "identifier", k.advanced(p)
	}
	r := importers.Rule{Name: strings.Trim(p.name+"-"+p.kind, "-"), Limits: limits, IPv6Prefix: 128}
	shared := p.config.get("policy").text() + p.config.get("strategy").text()
	if f := p.config.get("fault_tolerant"); f.no() {
		r.OnStoreFailure = "closed"
	}
	code, message := p.config.get("error_code"), p.config.get("error_message")
	if code.there() && code.text() != "429" || message.there() && message.text() != "API rate limit exceeded" {
		k.notes.Say(p.at.where(), "error_code and error_message are left out: a denial is 429 here, with a body of its own. denied of the rule sets both")
	}
	if shared == "redis" || shared == "cluster" {
		k.notes.Say(p.at.where(), "counters are shared by %s there: give the rules a store", shared)
	}
	var more []importers.Cond
	if p.consumers != nil {
		more = append(more, is(k.o.Consumer, escaped(p.consumers)...))
	}
	if len(named) > 0 {
		r.Unless = append(r.Unless, []importers.Cond{is(k.o.Consumer, escaped(named)...)})
	}
	if len(named) > 0 || p.consumers != nil {
		k.know(k.o.Consumer)
	}
	k.by(p, r, by, in, more)
}

// by makes rules with the key that a plugin counts by. Kong counts a request without that
// key by its address, so there is a second rule for such requests.
func (k *kong) by(p kongPlugin, r importers.Rule, field string, in []int, of []importers.Cond) {
	service := ""
	add := func(in []int, key []string, more ...importers.Cond) {
		one := r
		one.Key, one.Unless = key, slices.Clone(r.Unless)
		if slices.Equal(key, []string{"ip"}) && p.config.get(field).text() != "ip" {
			one.Name += "-by-ip"
		}
		k.add(p.at, one, in, append(more, of...)...)
		if space := p.config.get("namespace").text(); space != "" && p.kind == "rate-limiting-advanced" {
			k.added[len(k.added)-1].shares = space + "\n" + service
		}
	}
	has := func(attribute string) importers.Cond { return importers.Cond{Attribute: attribute, Set: true} }
	not := func(attribute string) importers.Cond { return importers.Cond{Attribute: attribute} }
	either := func(attribute string) {
		add(in, []string{attribute}, has(attribute))
		add(in, []string{"ip"}, not(attribute))
	}
	switch by := p.config.get(field).text(); by {
	case "ip":
		add(in, []string{"ip"})
	case "", "consumer":
		if k.know(k.o.Consumer); p.consumers != nil {
			add(in, []string{k.o.Consumer})
			return
		}
		either(k.o.Consumer)
	case "header":
		if k.notes.ByAddress(p.at.where(), p.config.get("header_name").text()) {
			add(in, []string{"ip"})
			return
		}
		if attribute, ok := header(p.config.get("header_name").text()); ok {
			k.writtenBefore(p.at, attribute)
			either(attribute)
			return
		}
		k.notes.Lose(p.at.where(), "%s: header without a header_name that rules take is NOT KEPT", field)
	case "path":
		path := exactPath(p.config.get("path").text())
		if path == nil {
			k.notes.Lose(p.at.where(), "%s: path without a path that rules can name is NOT KEPT", field)
			return
		}
		k.notes.Say(p.at.where(), "requests for other paths than %s are counted by address, as there", p.config.get("path").text())
		add(in, []string{}, path...)
		r.Unless = append(r.Unless, path)
		add(in, []string{"ip"})
	case "service":
		var services []string
		for _, i := range in {
			if s := k.routes[i].service; !slices.Contains(services, s) {
				services = append(services, s)
			}
		}
		name := r.Name
		for _, s := range services {
			service, r.Name = s, strings.Trim(name+"-"+s, "-")
			key := []string{}
			if s == "" {
				key = []string{"ip"}
			}
			add(slices.DeleteFunc(slices.Clone(in), func(i int) bool { return k.routes[i].service != s }), key)
		}
	default:
		k.notes.Lose(p.at.where(), "%s: %s is NOT KEPT: no rule can count by it", field, by)
	}
}

func escaped(all []string) (texts []string) {
	for _, s := range all {
		texts = append(texts, importers.Escape(s))
	}
	return texts
}

// know declares an attribute that callers must give, and notes it once.
func (k *kong) know(attribute string) {
	if strings.Contains(attribute, ".") || slices.Contains(k.file.Attributes, attribute) {
		return
	}
	k.file.Attributes = append(k.file.Attributes, attribute)
	k.notes.Say("", "who the consumer is must come with each request, as the attribute %s: Kong knew it from its authentication. Without it, a request is counted by address. --consumer names another attribute", attribute)
}

// fixed returns the limits of rate-limiting: windows of the clock that count what passes.
func (k *kong) fixed(p kongPlugin) (limits []string) {
	for _, unit := range [][2]string{{"second", "s"}, {"minute", "m"}, {"hour", "h"}, {"day", "d"}, {"month", ""}, {"year", ""}} {
		n := p.config.get(unit[0])
		if !n.there() {
			continue
		}
		v := k.number(n, 0)
		switch {
		case v == 0:
			k.fail(n, "%s: want a count of at least 1", unit[0])
		case unit[0] == "month":
			limits = append(limits, fmt.Sprintf("%d per month in UTC", v))
		case unit[0] == "year":
			limits = append(limits, fmt.Sprintf("%d per year in UTC", v))
		default:
			limits = append(limits, fmt.Sprintf("%d/%s fixed_window", v, unit[1]))
		}
	}
	if len(limits) == 0 {
		k.fail(p.at, "rate-limiting without a limit: want second, minute, hour, day, month or year")
	}
	return limits
}

// advanced returns the limits of rate-limiting-advanced.
func (k *kong) advanced(p kongPlugin) (limits []string) {
	counts, sizes := p.config.get("limit").list(), p.config.get("window_size").list()
	if len(counts) == 0 || len(counts) != len(sizes) {
		k.fail(p.at, "rate-limiting-advanced: want as many of limit as of window_size")
		return nil
	}
	kind := "sliding_counter"
	if p.config.get("window_type").text() == "fixed" {
		kind = "fixed_window"
		if len(counts) > 1 {
			k.notes.Say(p.at.where(), "what one of these windows denies is not counted by the others here")
		}
	} else if !p.config.get("disable_penalty").yes() {
		kind += " count_denied"
	}
	least := map[int64]int64{} // of windows of one length, the smallest count holds
	for i := range counts {
		count, errCount := strconv.ParseInt(counts[i].digits(), 10, 64)
		size, errSize := strconv.ParseInt(sizes[i].digits(), 10, 64)
		if errCount != nil || errSize != nil || count < 1 || size < 1 || size > 1<<33 {
			k.fail(counts[i], "limit %s with window_size %s: want whole numbers of at least 1", counts[i].text(), sizes[i].text())
			continue
		}
		if other, again := least[size]; !again || count < other {
			least[size] = count
		}
	}
	for _, size := range slices.Sorted(maps.Keys(least)) {
		limits = append(limits, fmt.Sprintf("%d/%s %s", least[size], per(time.Duration(size)*time.Second), kind))
	}
	for _, name := range []string{"consumer_groups", "throttling", "compound_identifier"} {
		if n := p.config.get(name); n.there() && len(n.list()) > 0 && !n.get("enabled").no() {
			k.notes.Lose(n.where(), "%s is NOT KEPT", name)
		}
	}
	return limits
}
