package request

import "strings"

// Claimed reports whether servers may read a header as the client's address, as the scheme or
// port that it has connected by, or as the host or path that it asked for: the X-Forwarded family and similar headers
// of proxies and frameworks. The name must be in the form of [net/http.Header]. Stint proxy
// believes these headers only from trusted proxies, and removes them from other requests before
// rules see them.
func Claimed(name string) bool {
	override := OverrideOf(name)
	return strings.HasPrefix(name, "X-Forwarded") || claimed[name] || override != NoOverride && override != OverrideMethod
}

var claimed = map[string]bool{
	"X-Real-Ip":      true,
	"True-Client-Ip": true, "Cf-Connecting-Ip": true, "Cf-Connecting-Ipv6": true, "Fastly-Client-Ip": true, "Fly-Client-Ip": true,
	"Do-Connecting-Ip": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true, "X-Azure-Clientip": true, "X-Azure-Socketip": true,
	"X-Appengine-User-Ip": true, "X-Envoy-External-Address": true, "X-Original-Forwarded-For": true, "X-Originating-Ip": true,
	"X-Remote-Ip": true, "X-Remote-Addr": true, "Client-Ip": true, "Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true,
	"Forwarded-For": true, "Cf-Pseudo-Ipv4": true, "X-Proxyuser-Ip": true, "Cluster-Client-Ip": true, "X-Real-Client-Ip": true,
	"X-Original-Remote-Addr": true, "X-Vercel-Forwarded-For": true, "X-Nf-Client-Connection-Ip": true, "Incap-Client-Ip": true,
	"Ali-Cdn-Real-Ip": true,
	"Proxy":           true, // CGI makes it HTTP_PROXY, which HTTP clients use as their proxy
	"Front-End-Https": true, "X-Scheme": true, "X-Url-Scheme": true,
}
