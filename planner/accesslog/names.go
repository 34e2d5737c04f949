package accesslog

import "strings"

// names are the fields that may hold an attribute in JSON lines, logfmt, tables and patterns, in
// lower case. The first one that a line has counts. A dot leads into an object.
var names = map[string][]string{
	"time": {
		"time_iso8601", "@timestamp", "msec", "timestamp", "time", "ts", "start_time", "time_local", "datetime", "startutc",
		"requesttime", "request_time_iso8601", "started_at", "edgestarttimestamp", "time_generated", "__realtime_timestamp", "date", "_time",
	},
	"ip": {
		"request.client_ip", "client_ip", "request.remote_ip", "remote_addr", "remote_ip", "downstream_remote_address",
		"downstream_direct_remote_address", "clienthost", "httprequest.remoteip", "httprequest.clientip", "properties.clientip",
		"client.ip", "source.ip", "source.address", "client.address", "req.remoteaddress", "req.ip", "clientip", "client", "ip",
		"source_ip", "c-ip", "fwd", "remoteip", "remoteaddress", "remote", "id.orig_h",
	},
	"method": {
		"request_method", "method", "request.method", "http_method", "requestmethod", "httprequest.requestmethod", "httprequest.httpmethod",
		"properties.httpmethod", "http.request.method", "req.method", "cs-method", "clientrequestmethod", "httpmethod",
	},
	"path": {
		"x-envoy-original-path", "request_uri", "request.uri", "uri", "path", "url", "requestpath", "httprequest.requesturl", "httprequest.uri",
		"properties.requesturi", "url.path", "url.original", "req.url", "cs-uri-stem", "clientrequesturi", "resourcepath",
	},
	"host": {
		"http_host", "host", "request.host", "authority", ":authority", "requesthost", "properties.host", "url.domain", "req.headers.host",
		"x-host-header", "cs-host", "cs(host)", "clientrequesthost", "server_name",
	},
	"user": {"remote_user", "user", "user_id", "clientusername", "user.name", "cs-username", "username"},
	"status": {
		"status", "response_code", "status_code", "downstreamstatus", "httprequest.status", "properties.httpstatuscode", "properties.httpstatus",
		"http.response.status_code", "res.statuscode", "sc-status", "edgeresponsestatus", "response.status",
	},
	"bytes": {
		"bytes_sent", "body_bytes_sent", "bytes", "size", "downstreamcontentsize", "httprequest.responsesize", "properties.responsebytes",
		"http.response.body.bytes", "sc-bytes", "edgeresponsebytes",
	},
	"header.user-agent": {
		"http_user_agent", "user_agent", "user-agent", "request.headers.user-agent", "request_user-agent", "httprequest.useragent",
		"properties.useragent", "user_agent.original", "req.headers.user-agent", "cs(user-agent)", "clientrequestuseragent", "useragent",
	},
	"header.referer": {
		"http_referer", "referer", "referrer", "request.headers.referer", "request_referer", "httprequest.referer", "http.request.referrer",
		"req.headers.referer", "cs(referer)", "clientrequestreferer",
	},
	"header.x-forwarded-for": {
		"http_x_forwarded_for", "x_forwarded_for", "x-forwarded-for", "request.headers.x-forwarded-for", "request_x-forwarded-for",
		"req.headers.x-forwarded-for", "cs(x-forwarded-for)", "xff",
	},
}

// fieldsFor returns the fields that may hold an attribute, best first.
func (o *Options) fieldsFor(attribute string) []string {
	if field, ok := o.Fields[attribute]; ok {
		return []string{strings.ToLower(field)}
	}
	if all, ok := names[attribute]; ok {
		return all
	}
	if header, ok := strings.CutPrefix(attribute, "header."); ok {
		plain := strings.ReplaceAll(header, "-", "_")
		return []string{"http_" + plain, attribute, "request.headers." + header, "headers." + header, "request_" + header, "cs(" + header + ")", header, plain}
	}
	return []string{strings.ToLower(attribute)}
}

// A meaning says how the text of a field becomes the value of an attribute.
type meaning uint8

const (
	asIs meaning = iota
	asTime
	asAddress // without the port
	asPath    // without the query
	asRequest // GET /path HTTP/1.1
	asDate    // the day of a time whose day and time of day are two fields
	asClock   // the time of day of such a time
	asLogger  // the name of the logger that wrote the line
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

// of converts the text of a field to the value of an attribute.
func (m meaning) of(text []byte) []byte {
	switch m {
	case asAddress:
		return address(text)
	case asPath:
		return pathOf(text)
	}
	return text
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

// addressed reports whether a value can be that of an address field: an address, or a host name, as
// servers write it that look names up.
func addressed(b []byte) bool {
	letter := false
	for _, c := range b {
		switch {
		case c-'0' <= 9, c == '.', c == '-', c == '_':
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			letter = true
		case c == ':' || c == '%':
			return isAddress(b)
		default:
			return false
		}
	}
	return letter || isAddress(b)
}
