package gateways

import (
	"regexp"
	"slices"
	"strings"

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
// header of a request that a descriptor may be made of.
var ofFilter = regexp.MustCompile(`filters\.http\.(\w+)\.`)

const envoySilent = `router local_ratelimit ratelimit rate_limit_quota cors csrf fault health_check buffer compressor decompressor grpc_stats
	grpc_web grpc_http1_bridge stateful_session bandwidth_limit admission_control adaptive_concurrency rbac tap cache on_demand
	file_system_buffer kill_request`

// writtenBefore notes a descriptor by a header that a filter may write.
func (e *envoyLocal) writtenBefore(at node, attribute string) {
	if header, ok := strings.CutPrefix(attribute, "header."); ok && len(e.writers) > 0 {
		e.written(at, header, e.writers[0])
	}
}
