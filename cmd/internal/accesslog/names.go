package accesslog

import "strings"

// names are where attributes stand in JSON lines and in tables, the first of
// those that a line has, in lower case. A dot leads into an object: those with
// "request." are Caddy's, "downstream_…" and "response_code" Envoy's.
var names = map[string][]string{
	"time":              {"time_iso8601", "@timestamp", "msec", "timestamp", "time", "ts", "start_time", "time_local", "datetime", "date"},
	"ip":                {"request.client_ip", "client_ip", "request.remote_ip", "remote_addr", "remote_ip", "downstream_remote_address", "downstream_direct_remote_address", "client", "clientip", "ip", "source_ip"},
	"method":            {"request_method", "method", "request.method", "http_method"},
	"path":              {"x-envoy-original-path", "request_uri", "request.uri", "uri", "path", "url"},
	"host":              {"http_host", "host", "request.host", "authority", ":authority", "server_name"},
	"user":              {"remote_user", "user", "user_id"},
	"status":            {"status", "response_code", "status_code"},
	"bytes":             {"bytes_sent", "body_bytes_sent", "bytes", "size"},
	"header.user-agent": {"http_user_agent", "user_agent", "user-agent", "request.headers.user-agent"},
	"header.referer":    {"http_referer", "referer", "referrer", "request.headers.referer"},
}

// places returns the fields in which an attribute may stand, best first.
func (o *Options) places(attribute string) []string {
	if field, ok := o.Fields[attribute]; ok {
		return []string{strings.ToLower(field)}
	}
	if all, ok := names[attribute]; ok {
		return all
	}
	if header, ok := strings.CutPrefix(attribute, "header."); ok {
		plain := strings.ReplaceAll(header, "-", "_")
		return []string{"http_" + plain, attribute, "request.headers." + header, "headers." + header, header, plain}
	}
	return []string{strings.ToLower(attribute)}
}

// A meaning is how the text of a field becomes the value of an attribute.
type meaning uint8

const (
	asIs meaning = iota
	asTime
	asAddress // without the port
	asPath    // without the query
)

func meaningOf(attribute string) meaning {
	switch attribute {
	case "time":
		return asTime
	case "ip":
		return asAddress
	case "path":
		return asPath
	}
	return asIs
}

// address cuts the port off an address: 1.2.3.4:5678, [::1]:80.
func address(b []byte) []byte {
	colon := -1
	for i, c := range b {
		switch {
		case c == ']' && b[0] == '[':
			return b[1:i]
		case c == ':' && colon >= 0 && b[0] != '[':
			return b // IPv6
		case c == ':':
			colon = i
		}
	}
	if colon > 0 {
		return b[:colon]
	}
	return b
}
