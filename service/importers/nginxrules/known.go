package nginxrules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// The directives of nginx and its usual modules that a conversion reads, and those that change neither where a
// request goes, nor its limits, nor what these count by. Any other may. A star stands for the rest of a name.
const (
	readNames = `allow auth_request break deny error_page geo if include index internal limit_conn* limit_except limit_rate* limit_req*
		listen location map merge_slashes real_ip_header real_ip_recursive return rewrite server server_name set set_real_ip_from try_files
		underscores_in_headers ignore_invalid_headers`
	harmlessNames = `absolute_redirect access_log api add_header* add_trailer* addition_types aio* alias ancient_* auth_basic* auth_delay
		auth_digest* auth_jwt* auth_pam* auth_request_set autoindex* body_filter_by_lua* brotli* charset* chunked_transfer_encoding client_*
		connection_pool_size create_full_put_path dav_* default_type directio* disable_symlinks echo empty_gif error_log etag expires
		fancyindex* fastcgi_* flv geoip* grpc_* gunzip* gzip* header_filter_by_lua* http2* http3* health_check* if_modified_since image_filter* init_by_lua*
		init_worker_by_lua* js_body_filter js_fetch_* js_header_filter js_import js_include js_path js_preload_object js_set js_shared_dict_zone
		js_var keepalive* large_client_header_buffers limit_upload_rate* lingering_* log_by_lua* log_format log_not_found log_subrequest
		lua_* map_hash_* match max_ranges memcached_* min_delete_depth mirror_request_body modern_* modsecurity* more_clear_headers more_set_headers
		mp4* msie_* open_* opentelemetry* opentracing* otel_* output_buffers override_charset passenger_* perl_modules perl_require perl_set
		port_in_redirect postpone_* proxy_* quic_* read_ahead referer_hash_* request_pool_size reset_timedout_connection resolver*
		rewrite_log root satisfy scgi_* secure_link* send_* sendfile* server_name_in_redirect server_names_hash_* server_tokens set_decode_* set_encode_* set_escape_uri set_formatted_* set_hashed_upstream
		set_hmac_* set_if_empty set_local_today set_md5* set_misc_* set_quote_* set_random set_secure_random_* set_sha1* set_unescape_uri slice
		source_charset split_clients ssl* status_zone stub_status sub_filter* subs_filter* subrequest_output_buffer_size tcp_* types* tls_*
		uninitialized_variable_warn upload_progress* upstream userid* uwsgi_* valid_referers variables_hash_* vhost_traffic_status_zone
		vhost_traffic_status_display* xslt_*`
)

// Harmless reports whether a directive changes neither where requests go, nor their limits, nor what these count by.
func Harmless(name string) bool { return importers.OneOf(name, harmlessNames) }

// ofClient matches variables that a client writes, unless a directive does, and captures those that an expression does.
var (
	ofClient = regexp.MustCompile(`(?i)^\$((http|arg|cookie)_|args$)`)
	captures = regexp.MustCompile(`(?i)\(\?P?[<'](http|arg|cookie)_`)
)

// known reports whether what a directive does to limits is known. Variables that are written are those of headers,
// arguments and cookies, which rules read as clients send them.
func (d *Directive) known() bool {
	written := ""
	switch first := slices.Concat(d.Args, []string{""})[0]; {
	case d.Name == "split_clients":
		written = d.last()
	case d.Name == "set" && strings.EqualFold(first, "$args"): // steps read it
	case strings.HasPrefix(d.Name, "set"), strings.HasSuffix(d.Name, "_set"), d.Name == "js_var":
		written = first
	}
	found := func(text string) bool { return captures.MatchString(text) }
	return importers.OneOf(d.Name, readNames, harmlessNames) && !ofClient.MatchString(written) && !slices.ContainsFunc(d.Args, found) &&
		!slices.ContainsFunc(d.Block, func(e Directive) bool { return d.Name == "map" && found(e.Name) })
}

// strange returns the directives that are not known, those in the blocks of requests too.
func strange(all []Directive) (found []*Directive) {
	for i := range all {
		if d := &all[i]; !d.known() {
			found = append(found, d)
		} else if importers.OneOf(d.Name, "location if limit_except") {
			found = append(found, strange(d.Block)...)
		}
	}
	return found
}

// unknown notes the directives for requests with limits that are not known.
func (c *converter) unknown(block []Directive) {
	for _, d := range strange(block) {
		c.lose(d, "%s is not known here: NOT KEPT are the limits that it may lead to or have, and counts by what it may write", strings.Join(append([]string{d.Name}, d.Args[:min(1, len(d.Args))]...), " "))
	}
}

// Leads returns the first directive of a snippet that may lead a request to another location, or is not known; "" if
// there is none. One of a server stands before nginx looks for a location.
func Leads(snippet string, ofServer bool) string {
	r := Reader{Read: func(string) ([]byte, error) { return nil, errors.New("not read") }, Glob: func(string) ([]string, error) { return nil, nil }}
	all, err := r.block(&lexer{text: snippet}, 0)
	if err != nil {
		return "what is no configuration"
	}
	return leads(all, ofServer)
}

func leads(all []Directive, ofServer bool) string {
	for i := range all {
		d := &all[i]
		flag, to := d.last(), slices.Concat(d.Args, []string{"", ""})[1]
		away := flag == "permanent" || flag == "redirect" || strings.HasPrefix(to, "http") || strings.HasPrefix(to, "$scheme") || flag == "break" && !ofServer
		if !d.known() || strings.HasSuffix(d.Name, "_pass") && again(d.last()) || importers.OneOf(d.Name, "auth_request error_page include index try_files") || d.Name == "rewrite" && !away {
			return d.Name
		}
		if found := leads(d.Block, ofServer && d.Name != "location"); found != "" && importers.OneOf(d.Name, "location if limit_except") {
			return found
		}
	}
	return ""
}
