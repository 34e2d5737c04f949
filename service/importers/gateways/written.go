package gateways

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// written notes a count by a header that the configuration may write or take away before the limit: rules see
// what the client sends.
func (c *converter) written(at node, header string, by node) {
	c.notes.Lose(at.where(), "a count by %s is NOT KEPT: there, what stands at %s may write it, and here clients choose it", header, by.where())
}

// writesNone are the middlewares of Traefik that write no header of a request but those that they name.
const writesNone = `addPrefix basicAuth buffering chain circuitBreaker compress contentType digestAuth encodedCharacters errors forwardAuth
	grpcWeb headers inFlightReq ipAllowList ipWhiteList passTLSClientCert rateLimit redirectRegex redirectScheme replacePath replacePathRegex
	retry stripPrefix stripPrefixRegex`

// writtenBefore notes a count by a header that a middleware may write.
func (t *traefik) writtenBefore(at node, header string) {
	same := func(name string) bool { return strings.EqualFold(strings.TrimSpace(name), header) }
	for _, name := range t.order {
		for _, kind := range t.middlewares[name].fields() {
			names := append(kind.value.anyCase("authResponseHeaders").texts(), kind.value.anyCase("headerField").text())
			for _, f := range kind.value.anyCase("customRequestHeaders").fields() {
				names = append(names, f.name)
			}
			names = strings.Split(strings.Join(names, ","), ",")
			if !importers.OneOf(kind.name, writesNone) || kind.value.anyCase("authResponseHeadersRegex").text() != "" ||
				kind.value.anyCase("removeHeader").yes() && same("Authorization") || slices.ContainsFunc(names, same) {
				t.written(at, header, kind.value)
			}
		}
	}
}

// The plugins of Kong that write no header of a request before the limits, and those that write only
// headers of kongWritten, unless they hide credentials.
const (
	kongSilent = `rate-limiting* response-ratelimiting request-size-limiting cors ip-restriction bot-detection request-termination request-validator
		response-transformer* post-function *-log syslog statsd* datadog loggly zipkin opentelemetry prometheus proxy-cache* grpc-* aws-lambda azure-functions`
	kongAuth    = `key-auth key-auth-enc basic-auth hmac-auth jwt acl ldap-auth ldap-auth-advanced oauth2 mtls-auth`
	kongWritten = `header.x-consumer-* header.x-credential-* header.x-anonymous-consumer header.x-authenticated-*`
)

// writtenBefore notes a count by a header that a plugin may write.
func (k *kong) writtenBefore(at node, attribute string) {
	for _, p := range k.others {
		kind, early := p.get("name").text(), p.get("ordering").there()
		silent := importers.OneOf(kind, kongSilent) || strings.HasPrefix(kind, "request-transformer") && !early // it comes after the limits
		auth := importers.OneOf(kind, kongAuth) && !importers.OneOf(attribute, kongWritten) && !p.get("config", "hide_credentials").yes()
		other := kind == "correlation-id" && p.get("config", "header_name").there() && attribute != "header."+strings.ToLower(p.get("config", "header_name").text())
		if attribute != k.o.Consumer && !silent && !auth && !other {
			k.written(at, strings.TrimPrefix(attribute, "header."), p)
		}
	}
}

// ofFilter matches the types of Envoy's filters for HTTP, with their names, and envoySilent are those that write no
// header of a request that a descriptor or a route may be made of, and change no route.
var ofFilter = regexp.MustCompile(`filters\.http\.(\w+)`)

const envoySilent = `router local_ratelimit ratelimit rate_limit_quota cors csrf fault health_check buffer compressor decompressor grpc_stats
	grpc_web grpc_http1_bridge stateful_session bandwidth_limit admission_control adaptive_concurrency rbac tap cache on_demand
	file_system_buffer kill_request set_metadata`

// silent reports whether a filter is one of these. One makes calls of gRPC of other requests if it is told so.
func silent(filter node, kind string) bool {
	told := false
	each(filter, func(n node) bool {
		told = told || n.anyCase("upgrade_protobuf_to_grpc").yes() || n.anyCase("ignore_query_parameters").yes()
		return true
	})
	return importers.OneOf(kind, envoySilent) && (kind != "grpc_http1_bridge" || !told)
}

// A writer is a filter of Envoy that may write headers of a request.
type writer struct {
	node
	kind string
}

// kindOf returns the name of a filter by its type; "" if a node is none.
func kindOf(n node) string {
	text := cmp.Or(n.anyCase("type_url").text(), n.get("@type").text())
	return slices.Concat(ofFilter.FindStringSubmatch(text), []string{"", ""})[1]
}

// before collects the filters that may write headers before the limit: of a connection manager those up to its last
// limit, and one that begins anew from a response; all in patches, which do not say their order.
func (e *envoyLocal) before(n node) bool {
	if kind := kindOf(n); kind != "" && !silent(n, kind) {
		e.writers = append(e.writers, writer{n, kind})
	}
	filters := n.anyCase("http_filters")
	if !filters.is(rulesfile.List) {
		return !n.anyCase("typed_extension_protocol_options").there() // a cluster
	}
	limit := false
	for _, f := range slices.Backward(filters.list()) {
		var kinds []string
		each(f, func(n node) bool { kinds = append(kinds, kindOf(n)); return true })
		if kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "" }); len(kinds) == 0 {
			kinds = slices.Concat(ofFilter.FindStringSubmatch(f.get("name").text()), []string{"", ""})[1:2]
		}
		_, is := filterIn(f)
		limit = limit || is
		for _, kind := range kinds {
			if !silent(f, kind) && (limit || kind == "custom_response") {
				e.writers = append(e.writers, writer{f, kind})
			}
		}
	}
	return false
}

// writtenBefore notes a descriptor by what a filter may write.
func (e *envoyLocal) writtenBefore(at node, attribute string) {
	header, ok := strings.CutPrefix(attribute, "header.")
	all := e.movers(node{})
	if ok {
		all = e.writers
	}
	if len(all) > 0 && attribute != "ip" {
		e.written(at, header, all[0].node)
	}
}

// movers returns what may change which of some routes a request has: filters, but for those that leave the route as it
// is found first, or change headers that no route asks for; and redirects that Envoy follows.
func (e *envoyLocal) movers(routes node) (all []writer) {
	byHeader := false
	each(routes, func(n node) bool {
		byHeader = byHeader || n.get("match", "headers").there()
		if n.anyCase("internal_redirect_policy").there() || n.anyCase("internal_redirect_action").text() == "HANDLE_INTERNAL_REDIRECT" {
			all = append(all, writer{node: n})
		}
		return true
	})
	for _, w := range e.writers {
		clears := false
		each(w.node, func(n node) bool {
			clears = clears || n.anyCase("clear_route_cache").yes() || n.anyCase("hide_credentials").yes() // those of the query, too
			return true
		})
		if !importers.OneOf(w.kind, "jwt_authn ext_authz basic_auth api_key_auth header_to_metadata") || clears && (byHeader || w.kind != "jwt_authn") {
			all = append(all, w)
		}
	}
	return all
}

// moved notes limits of routes that a request may have by what changes its route.
func (e *envoyLocal) moved(by []writer) {
	for _, w := range by {
		e.notes.Lose(w.where(), "this may change which route a request has: NOT KEPT are the limits of routes for what it changes")
	}
}

// alike reports whether all requests of a connection manager have the same limits, whichever of its routes they have:
// these are the places from the first on, and without whole, what none of its virtual hosts takes.
func (e *envoyLocal) alike(first int, whole bool, bases []base) bool {
	for _, f := range e.all {
		own := f.config.anyCase("token_bucket").there() || f.config.get("descriptors").there()
		lists := [][]int{f.in}
		for _, g := range f.groups {
			if f.config.get("descriptors").there() {
				lists = append(lists, g.in)
			}
		}
		for _, in := range lists {
			has, lacks := false, !whole && !slices.ContainsFunc(bases, func(b base) bool { return b.config.Node == f.config.Node })
			for i := first; i < len(e.places); i++ {
				here := slices.Contains(in, i)
				has, lacks = has || here, lacks || !here && !e.hidden(i)
			}
			if own && has && lacks {
				return false
			}
		}
	}
	return true
}
