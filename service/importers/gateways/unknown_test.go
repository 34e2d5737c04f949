package gateways_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestUnknown: a route with a field that the importer does not know, or with a condition that rules do not
// have, frees nothing, and a note NOT KEPT names the field.
func TestUnknown(t *testing.T) {
	const local = "{x: {'@type': x/filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: x, filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}, token_bucket: {max_tokens: %d, fill_interval: 3600s}}}"
	one, many := fmt.Sprintf(local, 1), fmt.Sprintf(local, 50)
	hosts := func(routes, vhost, host, route string) string {
		return fmt.Sprintf("route_config:\n  ignorePortInHostMatching: true\n  %svirtual_hosts:\n  - {domains: ['a.example'], routes: [{match: {%s prefix: /free}, %s route: {}}, {match: {prefix: /}, typed_per_filter_config: %s}]%s}\n  - {domains: ['*'], routes: [{match: {prefix: /}, typed_per_filter_config: %s}]}\n", routes, host, route, one, vhost, one)
	}
	routes := func(match, more string) string {
		return fmt.Sprintf("route_config:\n  internal_only_headers: [X-Inner]\n  virtual_hosts:\n  - domains: ['*']\n    routes:\n    - match: {%s}\n      typed_per_filter_config: %s\n    - match: {prefix: /}\n      typed_per_filter_config: %s%s\n", match, many, one, more)
	}
	descriptor := func(action, limit, of string) string {
		return "route_config: {virtual_hosts: [{domains: ['*'], rate_limits: [{actions: [{header_value_match: {descriptor_value: v, headers: [{name: x-inner, present_match: true}]}}]}], routes: [{match: {prefix: /}, route: {rate_limits: [" + action + "]}, typed_per_filter_config: " +
			strings.Replace(one, "stat_prefix: x", "stat_prefix: x, always_consume_default_token_bucket: false, "+limit+" descriptors: [{"+of+" entries: [{key: header_match, value: v}], token_bucket: {max_tokens: 50, fill_interval: 3600s}}]", 1) + "}]}]}\n"
	}
	const generic = "{actions: [{generic_key: {descriptor_value: v}}]}"
	several := func(path, a, b string) string {
		return "http_filters: [{name: x, typed_config: " + strings.Replace(one[len("{x: "):len(one)-1], "stat_prefix: x", "stat_prefix: x, always_consume_default_token_bucket: false, descriptors: [{entries: [{key: generic_key, value: v}], token_bucket: {max_tokens: 50, fill_interval: 3600s}}]", 1) +
			fmt.Sprintf("}]\nroute_config: {virtual_hosts: [{domains: ['*'], routes: [{match: {path_separated_prefix: %s}, route: {rate_limits: [%s]}}, {match: {prefix: /}, route: {rate_limits: [%s]}}]}]}\n", path, a, b)
	}
	const byHeader = "{%s actions: [{header_value_match: {%s descriptor_value: v, headers: [{name: x-inner, present_match: true}]}}]}"
	off := func(service, route string) string {
		return fmt.Sprintf("services: [{name: s, %s routes: [{name: a, %s paths: [/free]}]}]\nroutes: [{name: b, paths: [/], plugins: [{name: rate-limiting, config: {hour: 1, limit_by: ip}}]}]\n", service, route)
	}
	kong := func(plugin, config string) string {
		return fmt.Sprintf("plugins: [{name: rate-limiting, config: {hour: 1, limit_by: ip}}]\nroutes: [{name: b, paths: [/], plugins: [{name: rate-limiting, %s config: {hour: 50, limit_by: ip %s}}]}]\n", plugin, config)
	}
	shared := func(a, b int, space string) string {
		const one = "  plugins: [{name: rate-limiting-advanced, config: {limit: [%d], window_size: [3600], identifier: ip, window_type: fixed, namespace: %s}}]\n"
		return fmt.Sprintf("routes:\n- {name: a, paths: [/a],\n"+one+"  }\n- {name: b, paths: [/b],\n"+one+"  }\n", a, "x", b, space)
	}
	ingress := func(note, host, limited, path, backend string) string {
		const one = "{kind: Ingress, metadata: {name: %s, annotations: {%s}}, spec: {rules: [{host: %q, http: {paths: [{path: %s, pathType: Prefix, backend: {%s}}]}}]}}\n---\n"
		if note != "" {
			note = "nginx.ingress.kubernetes.io/" + note
		}
		return fmt.Sprintf(one, "f", note, host, path, backend) + fmt.Sprintf(one, "l", "nginx.ingress.kubernetes.io/limit-rpm: '1', nginx.ingress.kubernetes.io/limit-burst-multiplier: '0'", limited, "/", "service: {name: s}")
	}
	// chain is a manager with filters before and behind the limit, and routes.
	chain := func(before, behind, routes string) string {
		limit := strings.Replace(one[len("{x: "):len(one)-1], "token_bucket: {max_tokens: 1, fill_interval: 3600s}", "token_bucket: {max_tokens: 50, fill_interval: 3600s}", 1)
		return "use_remote_address: true\nhttp_filters: [" + before + "{name: x, typed_config: " + limit + "}" + behind + ", {name: envoy.filters.http.router}]\nroute_config: {virtual_hosts: [{domains: ['*'], routes: [" + routes + "]}]}\n"
	}
	filter := func(name, config string) string {
		return "{name: f, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http." + name + ".v3.X" + config + "}}"
	}
	byPath := "{match: {path_separated_prefix: /a}, typed_per_filter_config: " + one + "}, {match: {prefix: /}, route: {}}"
	byName := "{match: {prefix: /, headers: [{name: x-plan, present_match: true}]}, typed_per_filter_config: " + one + "}, {match: {prefix: /}, route: {}}"
	const all = "{match: {prefix: /a}, route: {}}, {match: {prefix: /}, route: {}}"
	const clears, moved = ", p: {clear_route_cache: true}", "this may change which route a request has: NOT KEPT"
	writes := func(filter string) string {
		return "---\nname: x\ntyped_config: {'@type': type.googleapis.com/envoy.extensions.filters.http." + filter + ".v3.X}\n"
	}
	counts := func(header, plugin string) string {
		return "plugins: [{name: rate-limiting, config: {hour: 1, limit_by: header, header_name: " + header + "}}, {name: " + plugin + "}]\nroutes: [{name: b, paths: [/]}]\n"
	}
	identity := func(by, middleware string) string {
		return "http:\n  services: {s: {}}\n  middlewares: {w: {" + middleware + "}, one: {rateLimit: {average: 1, period: 1h, burst: 1, sourceCriterion: {" + by + "}}}}\n  routers: {p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [w, one]}}\n"
	}
	const service = "service: {name: s}"
	const fronts = once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n---\n"
	const unknown = "the field some is not known here: NOT KEPT"
	const unnamed = "are NOT KEPT here: rules cannot name these requests"
	for name, c := range map[string]struct {
		kind, text, limited, free, lost string
	}{
		"envoy: of a route":                  {"envoy", hosts("", "", "", "some: y,"), "/other /free", "", "envoy.yaml:4: " + unknown},
		"envoy: of a virtual host":           {"envoy", hosts("", ", some: y", "", ""), "/other /free", "", "envoy.yaml:4: " + unknown},
		"envoy: a matcher":                   {"envoy", hosts("", ", matcher: {x: y}", "", ""), "/other /free", "", "the field matcher is not known here: NOT KEPT"},
		"envoy: of a match":                  {"envoy", hosts("", "", "some: y,", ""), "/free /other", "", "envoy.yaml:4: " + unknown},
		"envoy: of an action":                {"envoy", strings.Replace(hosts("", "", "", ""), "route: {}", "route: {some: y}", 1), "/other /free", "", unknown},
		"envoy: of routes":                   {"envoy", hosts("vhost_header: x-host\n  ", "", "", ""), "/other /free", "", "envoy.yaml:3: the field vhost_header is not known here: NOT KEPT"},
		"envoy: of a limit":                  {"envoy", strings.Replace(routes("path: /x", ""), "stat_prefix: x", "stat_prefix: x, some: y", 1), "/x", "", unknown},
		"envoy: of a bucket":                 {"envoy", strings.Replace(routes("path: /x", ""), "max_tokens: 50", "max_tokens: 50, some: y", 1), "/x", "", unknown},
		"envoy: of a header's match":         {"envoy", routes("prefix: /, headers: [{name: x-inner, some: y, present_match: true}]", ""), "/", "", unknown},
		"envoy: of a manager":                {"envoy", "http_filters: [{name: x}]\nsome: y\n" + hosts("", "", "", ""), "/other /free", "", unknown},
		"envoy: of a filter":                 {"envoy", "http_filters: [{name: x, config_discovery: {}}]\n" + hosts("", "", "", ""), "/other", "/free", "the field config_discovery is not known here: NOT KEPT"},
		"envoy: tls":                         {"envoy", routes("prefix: /, tls_context: {presented: true}", ""), "/", "", unnamed},
		"envoy: metadata":                    {"envoy", routes("prefix: /, dynamicMetadata: [{filter: x}]", ""), "/", "", unnamed},
		"envoy: filter state":                {"envoy", routes("prefix: /, filter_state: [{key: x}]", ""), "/", "", unnamed},
		"envoy: cookies":                     {"envoy", routes("prefix: /, cookies: [{name: x}]", ""), "/", "", unnamed},
		"envoy: tls, free":                   {"envoy", strings.Replace(routes("prefix: /, tls_context: {presented: true}", ""), many, "{}", 1), "/", "", ""},
		"envoy: a header that Envoy sets":    {"envoy", routes("prefix: /, headers: [{name: x-envoy-internal, string_match: {exact: 'true'}}]", ""), "/", "", unnamed},
		"envoy: of inner servers":            {"envoy", routes("prefix: /, headers: [{name: x-envoy-downstream-service-cluster, string_match: {exact: adm}}]", ""), "/", "", ""},
		"envoy: of servers made inner":       {"envoy", routes("prefix: /, headers: [{name: x-inner, present_match: true}]", ""), "/", "", ""},
		"envoy: another header":              {"envoy", strings.Replace(routes("prefix: /, headers: [{name: x-inner, present_match: true}]", ""), "X-Inner", "x-y", 1), "", "/", ""},
		"envoy: descriptors":                 {"envoy", descriptor(fmt.Sprintf(byHeader, "", ""), "", ""), "", "/", ""},
		"envoy: of a descriptor":             {"envoy", descriptor(fmt.Sprintf(byHeader, "", ""), "", "some: y,"), "/", "", unknown},
		"envoy: of rate_limits":              {"envoy", descriptor(fmt.Sprintf(byHeader, "some: y,", ""), "", ""), "/", "", unknown},
		"envoy: of an action of a limit":     {"envoy", descriptor(fmt.Sprintf(byHeader, "", "some: y,"), "", ""), "/", "", unknown},
		"envoy: another stage":               {"envoy", descriptor(fmt.Sprintf(byHeader, "stage: 1,", ""), "", ""), "/", "", "no rate_limits in the file make it"},
		"envoy: the same stage":              {"envoy", descriptor(fmt.Sprintf(byHeader, "stage: 1,", ""), "stage: 1,", ""), "", "/", ""},
		"envoy: no limits of the host":       {"envoy", descriptor("", "vh_rate_limits: IGNORE,", ""), "/", "", "no rate_limits in the file make it"},
		"envoy: limits of the host":          {"envoy", descriptor("", "", ""), "", "/", ""},
		"envoy: descriptors of all":          {"envoy", several("/b", generic, generic), "", "/ /b", ""},
		"envoy: made by a query":             {"envoy", several("/b", "{actions: [{query_parameters: {query_parameter_name: q, descriptor_key: generic_key}}]}", generic), "/", "", "the limit of generic_key=v is NOT KEPT for what rate_limits at"},
		"envoy: made without a header":       {"envoy", several("/b", "{actions: [{request_headers: {header_name: x, descriptor_key: y, skip_if_absent: true}}, {genericKey: {descriptor_value: v}}]}", generic), "/", "", "the limit of generic_key=v is NOT KEPT"},
		"envoy: made by what does not match": {"envoy", several("/b", "{actions: [{header_value_match: {descriptor_key: generic_key, descriptor_value: v, expect_match: false, headers: [{name: x-inner, present_match: true}]}}]}", generic), "/", "", "the limit of generic_key=v is NOT KEPT"},
		"envoy: made by code":                {"envoy", several("/b", "{actions: [{extension: {name: x}}]}", generic), "/", "", "the limit of generic_key=v is NOT KEPT"},
		"envoy: others made":                 {"envoy", several("/b", "{actions: [{query_parameters: {query_parameter_name: q, descriptor_key: other}}]}, {actions: [{genericKey: {descriptor_value: w}}]}, {actions: [{generic_key: {descriptor_value: v}}, {metadata: {descriptor_key: generic_key}}]}, {actions: [{destination_cluster: {}}]}", generic), "/", "", ""},
		"envoy: of one route":                {"envoy", several("/b", generic, ""), "/", "", ""},
		"envoy: of another route":            {"envoy", several("/b", "", generic), "/b", "", ""},
		"envoy: unlike, one bucket":          {"envoy", several("/b", generic, strings.Replace(generic, "]}", ", {remote_address: {}}]}, {actions: [{header_value_match: {descriptor_key: generic_key, descriptor_value: v, headers: [{name: x-inner, present_match: true}]}}]}", 1)), "/", "", "one count with that of envoy.yaml:1 is NOT KEPT"},
		"envoy: written":                     {"envoy", descriptor(fmt.Sprintf(byHeader, "", ""), "", "") + writes("header_mutation"), "", "/", "a count by x-inner is NOT KEPT: there, what stands at envoy.yaml:4 may write it"},
		"envoy: not written":                 {"envoy", descriptor(fmt.Sprintf(byHeader, "", ""), "", "") + writes("cors"), "", "/", ""},
		"envoy: Envoy's own":                 {"envoy", strings.ReplaceAll(descriptor(fmt.Sprintf(byHeader, "", ""), "", ""), "x-inner", "x-request-id"), "/", "", "no rate_limits in the file make it"},
		"envoy: moved":                       {"envoy", chain(filter("grpc_json_transcoder", "")+",", "", byPath), "/a", "/b", "envoy.yaml:2: " + moved},
		"envoy: moved by code":               {"envoy", chain(filter("lua", "")+",", "", byPath), "/a", "/b", moved},
		"envoy: moved by a custom one":       {"envoy", chain("{name: mine, typed_config: {'@type': a.b.C}},", "", byPath), "/a", "/b", moved},
		"envoy: moved by claims":             {"envoy", chain(filter("jwt_authn", clears)+",", "", byName), "", "/a", moved},
		"envoy: claims, by path":             {"envoy", chain(filter("jwt_authn", clears)+",", "", byPath), "/a", "/b", ""},
		"envoy: claims, not cleared":         {"envoy", chain(filter("jwt_authn", "")+",", "", byName), "", "/a", ""},
		"envoy: moved by authorization":      {"envoy", chain(filter("ext_authz", ", clear_route_cache: true")+",", "", byPath), "/a", "/b", moved},
		"envoy: authorization":               {"envoy", chain(filter("ext_authz", "")+","+filter("cors", "")+",", "", byPath), "/a", "/b", ""},
		"envoy: moved by a bridge":           {"envoy", chain(filter("grpc_http1_bridge", ", upgrade_protobuf_to_grpc: true")+",", "", byName), "", "/a", moved},
		"envoy: without queries":             {"envoy", chain(filter("grpc_http1_bridge", ", ignoreQueryParameters: true")+",", "", byPath), "/a", "/b", moved},
		"envoy: a bridge":                    {"envoy", chain(filter("grpc_http1_bridge", "")+",", "", byName), "", "/a", ""},
		"envoy: passwords":                   {"envoy", chain(filter("basic_auth", ", forward_username_header: x-plan")+","+filter("header_to_metadata", "")+",", "", byName), "", "/a", ""},
		"envoy: keys":                        {"envoy", chain(filter("api_key_auth", "")+",", "", byPath), "/a", "/b", ""},
		"envoy: keys that it hides":          {"envoy", chain(filter("api_key_auth", ", forwarding: {hide_credentials: true}")+",", "", byPath), "/a", "/b", moved},
		"envoy: moved behind the limit":      {"envoy", chain("", ","+filter("lua", ""), byPath), "/a", "/b", ""},
		"envoy: from a response":             {"envoy", chain("", ","+filter("custom_response", ""), byPath), "/a", "/b", moved},
		"envoy: moved among alike":           {"envoy", chain(filter("lua", "")+",", "", all), "", "/a /b", ""},
		"envoy: moved, another host":         {"envoy", strings.Replace(chain(filter("lua", "")+",", "", "{match: {prefix: /}, typed_per_filter_config: "+one+"}"), "'*'", "a.example", 1), "", "", moved},
		"envoy: a redirect it follows":       {"envoy", chain("", "", strings.Replace(byPath, "route: {}", "route: {internal_redirect_policy: {}}", 1)), "/a", "/b", moved},
		"envoy: written behind":              {"envoy", strings.Replace(chain("", ","+filter("lua", ""), "{match: {prefix: /}, route: {rate_limits: ["+fmt.Sprintf(byHeader, "", "")+"]}}"), "stat_prefix: x", "stat_prefix: x, descriptors: [{entries: [{key: header_match, value: v}], token_bucket: {max_tokens: 50, fill_interval: 3600s}}]", 1), "", "/", ""},
		"envoy: a path that is written":      {"envoy", strings.Replace(chain(filter("lua", "")+",", "", "{match: {prefix: /}, route: {rate_limits: [{actions: [{request_headers: {header_name: ':path', descriptor_key: p}}]}]}}"), "stat_prefix: x", "stat_prefix: x, descriptors: [{entries: [{key: p}], token_bucket: {max_tokens: 50, fill_interval: 3600s}}]", 1), "", "/", "a count by path is NOT KEPT"},
		"envoy: of a listener": {"envoy", routes("path: /x", "\nlistener_filters: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit}}]"),
			"/", "", "a limit of connections is NOT KEPT"},

		"envoy: an older name": {"envoy", "http_filters: [{name: x, typed_config: " + one[len("{x: "):len(one)-1] + "}]\n" + strings.ReplaceAll(routes("path: /y", ""), "{x: ", "{envoy.filters.http.local_ratelimit: "), "/y", "", "envoy.filters.http.local_ratelimit for the filter x is NOT KEPT"},

		"kong: of a service":            {"kong", off("some: y,", ""), "/free", "", unknown},
		"kong: of a route":              {"kong", off("", "some: y,"), "/free", "", unknown},
		"kong: nothing":                 {"kong", off("", "strip_path: true,"), "/", "/free", ""},
		"envoy: a key set by runtime":   {"envoy", strings.ReplaceAll(routes("path: /x", "\nlayered_runtime: {layers: [{static_layer: {rl: {e.f: 100}}}]}"), "filter_enforced: {", "filter_enforced: {runtime_key: rl.e.f, "), "/ /x", "", "filter_enforced by rl.e.f is NOT KEPT: the runtime at envoy.yaml:10"},
		"envoy: any key set by runtime": {"envoy", strings.ReplaceAll(routes("path: /x", "\nlayered_runtime: {layers: [{rtds_layer: {name: a}}]}"), "filter_enabled: {", "filter_enabled: {runtime_key: a, "), "/ /x", "", "filter_enabled by a is NOT KEPT"},
		"envoy: a key, and another set": {"envoy", strings.ReplaceAll(routes("path: /x", "\nlayered_runtime: {layers: [{static_layer: {rl: {e: 1}, re2: 2}}, {admin_layer: {}}]}"), "filter_enforced: {", "filter_enforced: {runtime_key: rl.f, "), "/ /x", "", ""},

		"kong: of a plugin":       {"kong", kong("condition: x,", ""), "/", "", "kong.yaml:2: the field condition is not known here"},
		"kong: of a config":       {"kong", kong("", ", some: y"), "/", "", unknown},
		"kong: no plugin's":       {"kong", kong("ordering: {},", ", redis_ssl: true"), "", "/", ""},
		"kong: written":           {"kong", counts("X-Consumer-Username", "key-auth"), "/", "", "a count by x-consumer-username is NOT KEPT"},
		"kong: not written":       {"kong", counts("X-K", "key-auth"), "/", "", ""},
		"kong: taken away":        {"kong", counts("X-K", "key-auth, config: {hide_credentials: true}"), "/", "", "a count by x-k is NOT KEPT"},
		"kong: written after":     {"kong", counts("X-K", "request-transformer"), "/", "", ""},
		"kong: written by order":  {"kong", counts("X-K", "request-transformer, ordering: {before: {access: [rate-limiting]}}"), "/", "", "a count by x-k is NOT KEPT"},
		"kong: written by code":   {"kong", counts("X-K", "pre-function"), "/", "", "a count by x-k is NOT KEPT"},
		"kong: a namespace":       {"kong", shared(1, 1, "x"), "/a,/b", "", ""},
		"kong: two namespaces":    {"kong", shared(1, 1, "y"), "/a /b", "", ""},
		"kong: unlike, one count": {"kong", shared(1, 2, "x"), "/a", "", "one count with that of kong.yaml:3 is NOT KEPT"},

		"ingress: another host":       {"ingress", ingress("", "a.example", "", "/", service), "b.example/", "/", ""},
		"ingress: canary":             {"ingress", ingress("canary: 'true'", "a.example", "", "/", service), "/", "", ""},
		"ingress: annotation":         {"ingress", ingress("some: y", "a.example", "a.example", "/free", service), "/ /free", "", "ingress.yaml:1: the annotation some is not known here: NOT KEPT"},
		"ingress: known":              {"ingress", ingress("proxy-body-size: 8m", "a.example", "a.example", "/free", service), "/", "/free", ""},
		"ingress: no service":         {"ingress", ingress("", "a.example", "a.example", "/free", "resource: {kind: x}"), "/ /free", "", ""},
		"ingress: no service of host": {"ingress", ingress("", "a.example", "", "/free", "resource: {kind: x}"), "b.example/", "/ /free", ""},
		"ingress: leads on":           {"ingress", ingress("server-snippet: 'rewrite ^/free /login last;'", "a.example", "a.example", "/free", service), "/ /free", "", "the way of server-snippet by rewrite is not known here: NOT KEPT"},
		"ingress: leads on by errors": {"ingress", ingress("configuration-snippet: 'error_page 404 /login;'", "a.example", "a.example", "/free", service), "/ /free", "", "the way of configuration-snippet"},
		"ingress: leads in again":     {"ingress", ingress("server-snippet: 'location /free { proxy_pass http://127.0.0.1/login; }'", "a.example", "a.example", "/free", service), "/ /free", "", "the way of server-snippet by proxy_pass is not known here: NOT KEPT"},
		"ingress: to a host":          {"ingress", ingress("server-snippet: 'location /free { proxy_pass https://b.example; }'", "a.example", "a.example", "/free", service), "/ /free", "", "the way of server-snippet by proxy_pass"},
		"ingress: to a service":       {"ingress", ingress("server-snippet: 'location /x { proxy_pass http://app.shop.svc.cluster.local; } location /y { proxy_pass http://127.0.0.1:3000; }'", "a.example", "a.example", "/free", service), "/", "/free", ""},
		"ingress: leads away":         {"ingress", ingress("configuration-snippet: 'rewrite ^ https://b.example permanent; rewrite ^/a /b break;'", "a.example", "a.example", "/free", service), "/", "/free", ""},
		"ingress: addresses":          {"ingress", ingress("configuration-snippet: 'set_real_ip_from 10.0.0.0/8;'", "a.example", "a.example", "/free", service), "/", "/free", "ingress.yaml:1: set_real_ip_from is NOT KEPT"},
		"ingress: addresses of all":   {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {http-snippet: 'real_ip_header X-Real-IP;'}}", "/", "/free", "ingress.yaml:5: real_ip_header is NOT KEPT"},
		"ingress: a boolean":          {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {use-forwarded-headers: T}}", "/", "/free", "use-forwarded-headers is NOT KEPT"},
		"ingress: Helm":               {"ingress", ingress("", "a.example", "a.example", "/free", service) + "controller: {config: {use-forwarded-headers: '1'}}", "/", "/free", "use-forwarded-headers is NOT KEPT"},
		"ingress: errors":             {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {custom-http-errors: '404, 503'}}", "/", "/free", "custom-http-errors is NOT KEPT for 503"},
		"ingress: other errors":       {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {custom-http-errors: '404', use-forwarded-headers: f}}", "/", "/free", ""},
		"ingress: errors of one":      {"ingress", strings.Replace(ingress("", "a.example", "a.example", "/free", service), "limit-rpm:", "custom-http-errors: '503', nginx.ingress.kubernetes.io/limit-rpm:", 1), "/", "/free", "custom-http-errors is NOT KEPT for 503"},
		"ingress: leads all on":       {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {server-snippet: 'rewrite ^/login /free last;'}}", "/", "/free", "server-snippet of all Ingresses is NOT KEPT"},
		"ingress: one namespace":      {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: Deployment, spec: {args: [--watch-namespace=x]}}", "/", "/free", "watch-namespace is NOT KEPT"},
		"ingress: no catch-all":       {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{controller: {extraArgs: {disable-catch-all: ''}}}", "/", "/free", "disable-catch-all is NOT KEPT"},
		"ingress: all namespaces":     {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: Deployment, spec: {args: [--watch-namespace=, --disable-catch-all=false]}}", "/", "/free", ""},
		"ingress: leads on by Lua":    {"ingress", ingress(`configuration-snippet: "access_by_lua_block { ngx.exec('/login') }"`, "a.example", "a.example", "/free", service), "/ /free", "", "the way of configuration-snippet by access_by_lua_block"},
		"ingress: stays":              {"ingress", ingress(`configuration-snippet: 'more_set_headers "A: b; rewrite ^ /login;"; if ($a) { return 403; }'`, "a.example", "a.example", "/free", service), "/", "/free", ""},
		"ingress: a key of all":       {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {limit-conn-zone-variable: $server_name}}", "/", "/free", "limit-conn-zone-variable is NOT KEPT: limits count by $server_name there"},
		"ingress: the usual key":      {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {limit-conn-zone-variable: $binary_remote_addr}}", "/", "/free", ""},
		"ingress: a template":         {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, data: {nginx.tmpl: 'limit_req zone=a;'}}", "/", "/free", "nginx.tmpl of all Ingresses is NOT KEPT"},
		"ingress: a setting":          {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, metadata: {name: ingress-nginx-controller}, data: {block-cidrs: 1.2.3.4, proxy-body-size: 8m}}", "/", "/free", "ingress.yaml:5: the setting block-cidrs is not known here: NOT KEPT"},
		"ingress: a setting of Helm":  {"ingress", ingress("", "a.example", "a.example", "/free", service) + "ingress-nginx: {controller: {replicas: 2, config: {some: y}}}", "/", "/free", "the setting some is not known here: NOT KEPT"},
		"ingress: known settings":     {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, metadata: {name: ingress-nginx-controller}, data: {hsts: 'true', log-format-upstream: '$host $limit_req_status', ssl-protocols: x, '9000': a/b:1}}", "/", "/free", ""},
		"ingress: others' settings":   {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: ConfigMap, metadata: {name: app}, data: {some: y}}", "/", "/free", ""},
		"ingress: another prefix":     {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{kind: Deployment, spec: {args: [--annotations-prefix=x]}}", "/", "/free", "annotations-prefix is NOT KEPT"},
		"ingress: or a password":      {"ingress", ingress("satisfy: any, nginx.ingress.kubernetes.io/allowlist-source-range: 10.0.0.0/8", "a.example", "a.example", "/free", service), "/", "/free", "allowlist-source-range is NOT KEPT beside satisfy: any"},
		"kong: a whole number":        {"kong", strings.ReplaceAll(kong("", ""), "hour: 1,", "hour: 1.0,"), "", "/", ""},
		"kong: several, whole":        {"kong", strings.ReplaceAll(shared(1, 1, "x"), "[1]", "[1.0]"), "/a,/b", "", ""},
		"traefik: no period":          {"traefik", strings.ReplaceAll(fronts, "period: 1h", "period: 0"), "/", "", ""},
		"traefik: a name":             {"traefik", fronts + "services: {rateLimit: {image: a}}", "/", "", ""},
		"traefik: in a service":       {"traefik", fronts + "services: {a: {environment: {X: ratelimit}}}", "/", "", "ratelimit stands where this reads no limits: NOT KEPT"},
		"ingress: of nginxinc":        {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{apiVersion: k8s.nginx.org/v1, kind: Policy, spec: {rateLimit: {rate: 1r/s}}}", "/", "/free", "rateLimit of a Policy is NOT KEPT"},
		"ingress: a VirtualServer":    {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{apiVersion: k8s.nginx.org/v1, kind: VirtualServer, spec: {policies: [{name: a}]}}", "/", "/free", "policies of a VirtualServer is NOT KEPT"},
		"ingress: its snippets":       {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{apiVersion: k8s.nginx.org/v1, kind: VirtualServer, spec: {server-snippets: limit_req zone=a;}}", "/", "/free", "server-snippets of a VirtualServer is NOT KEPT"},
		"ingress: without limits":     {"ingress", ingress("", "a.example", "a.example", "/free", service) + "{apiVersion: k8s.nginx.org/v1, kind: VirtualServer, spec: {host: b.example, routes: [{path: /}]}}", "/", "/free", ""},
		"kong: a group elsewhere":     {"kong", kong("", "") + "consumer_groups: [{name: g, plugins: [{name: rate-limiting, config: {hour: 1}}]}]\n", "", "/", "the group has no consumers in this file"},
		"kong: flat":                  {"kong", "_format_version: '3.0'\nconsumer_group_consumers: [{consumer: c, consumer_group: g}]\n" + kong("", ""), "", "/", "kong.yaml:2: the field consumer_group_consumers is not known here"},
		"kong: defaults":              {"kong", "_format_version: '3.0'\n_info: {select_tags: [a], defaults: {route: {methods: [POST]}}}\n" + kong("", ""), "", "/", "the field defaults is not known here"},
		"kong: all of a file":         {"kong", "_format_version: '3.0'\n_transform: true\nupstreams: []\nkeyauth_credentials: []\n" + kong("", ""), "", "/", ""},
		"traefik: sent away, perhaps": {"traefik", "http:\n  services: {s: {}}\n  middlewares: {w: {redirectRegex: {regex: a, replacement: b}}, one: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n  routers: {p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [w, one]}, f: {rule: 'PathPrefix(`/free`)', service: gone}}\n", "/ /free", "", ""},
		"traefik: or with TLS":        {"traefik", "http:\n  services: {s: {}}\n  middlewares: {w: {redirectScheme: {scheme: https}}, one: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n  routers: {p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [w, one]}, f: {rule: 'PathPrefix(`/free`)', service: gone}}\n", "/ /free", "", ""},
		"kong: into nginx":            {"kong", kong("", "") + "---\nenv: [{name: KONG_NGINX_PROXY_SET_REAL_IP_FROM, value: 10.0.0.0/8}]\n", "", "/", "the setting KONG_NGINX_PROXY_SET_REAL_IP_FROM is not known here: NOT KEPT"},
		"kong: harmless":              {"kong", kong("", "") + "---\nnginx_proxy_proxy_buffers = 8 16k\nnginx_http_client_body_buffer_size = 8k\n", "", "/", ""},
		"ingress: other letters":      {"ingress", ingress("use-regex: 'true'", "r.example", "r.example", "/x", service) + ingress("", "a.example", "a.example", "/free", service), "/", "/free", "ingress.yaml:5: a limit is NOT KEPT for this path in other letters"},
		"kong: conf":                  {"kong", kong("", "") + "---\ntrusted_ips = 10.0.0.0/8\n", "", "/", "kong.yaml:4: trusted_ips is NOT KEPT"},
		"kong: variables":             {"kong", kong("", "") + "---\nenv: [{name: KONG_REAL_IP_HEADER, value: X-Real-IP}]\n", "", "/", "KONG_REAL_IP_HEADER is NOT KEPT"},
		"kong: Helm":                  {"kong", kong("", "") + "---\nenv: {trusted_ips: 10.0.0.0/8}\n", "", "/", "trusted_ips is NOT KEPT"},
		"traefik: written":            {"traefik", identity("requestHeaderName: X-K", "headers: {customRequestHeaders: {x-k: ''}}"), "/", "", "a count by X-K is NOT KEPT: there, what stands at traefik.yaml:3 may write it"},
		"traefik: another written":    {"traefik", identity("requestHeaderName: X-K", "headers: {customRequestHeaders: {x-l: ''}}"), "/", "", ""},
		"traefik: host written":       {"traefik", identity("requestHost: true", "headers: {customRequestHeaders: {Host: a}}"), "/", "", "a count by Host is NOT KEPT"},
		"traefik: by authentication":  {"traefik", identity("requestHeaderName: X-K", "forwardAuth: {authResponseHeaders: [X-L, X-K]}"), "/", "", "a count by X-K is NOT KEPT"},
		"traefik: of a user":          {"traefik", identity("requestHeaderName: X-K", "basicAuth: {headerField: X-K}"), "/", "", "a count by X-K is NOT KEPT"},
		"traefik: a plugin":           {"traefik", identity("requestHeaderName: X-K", "plugin: {x: {y: z}}"), "/", "", "a count by X-K is NOT KEPT"},
		"traefik: arguments":          {"traefik", fronts + "services: {t: {command: ['--entryPoints.web.proxyProtocol.trustedIPs=10.0.0.1']}}", "/", "", "entryPoints.web.proxyProtocol is NOT KEPT"},
		"traefik: variables":          {"traefik", fronts + "{kind: Deployment, spec: {env: [{name: TRAEFIK_ENTRYPOINTS_WEB_PROXYPROTOCOL_INSECURE, value: t}]}}", "/", "", "TRAEFIK_ENTRYPOINTS_WEB_PROXYPROTOCOL is NOT KEPT"},
		"traefik: Helm":               {"traefik", fronts + "ports: {web: {proxyProtocol: {trustedIPs: [10.0.0.1]}}, x: {proxyProtocol: {trustedIPs: [], insecure: false}}}", "/", "", "proxyProtocol is NOT KEPT"},
		"envoy: an object of others":  {"envoy", routes("path: /x", "\n---\n{kind: BackendTrafficPolicy, spec: {rateLimit: {type: Local}}}"), "/", "", "rateLimit of a BackendTrafficPolicy is NOT KEPT"},
		"traefik: no service":         {"traefik", "{kind: Middleware, metadata: {name: one}, spec: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n---\n{kind: IngressRoute, metadata: {name: p}, spec: {routes: [{match: 'PathPrefix(`/`)', middlewares: [{name: one}]}]}}\n---\n" + ingress("", "a.example", "c.example", "/free", "resource: {kind: x}"), "/free", "", ""},
	} {
		t.Run(name, func(t *testing.T) { frees(t, c.kind, c.text, c.limited, c.free, c.lost) })
	}
}
