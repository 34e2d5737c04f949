package nginxrules_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestUnknown: a directive that may lead to limits, have some, or write what they count by, is noted if the importer
// does not know it, in what may have limits alone.
func TestUnknown(t *testing.T) {
	const conf = `http { limit_req_zone $http_x_api_key zone=one:1m rate=1r/m; HTTP
		server { server_name a.example; SERVER location / { limit_req zone=one; } location /free { LOCATION } }
		server { server_name b.example; echo_exec /login; } }`
	for text, lost := range map[string]bool{
		"HTTP more_set_input_headers 'X-Api-Key: a';":             true,
		"SERVER more_clear_input_headers X-Api-Key;":              true,
		"SERVER set $http_x_api_key a;":                           true,
		"SERVER if ($host) { set $cookie_x a; }":                  true,
		"SERVER set_md5 $arg_x a;":                                true,
		"HTTP split_clients $uri $http_x_api_key { * a; }":        true,
		"SERVER rewrite_by_lua_block { ngx.exec('/login') }":      true,
		"LOCATION location /free/a { set_by_lua_file $a x; }":     true,
		"LOCATION echo_exec /login;":                              true,
		"LOCATION js_content m.f;":                                true,
		"LOCATION perl m::f;":                                     true,
		"LOCATION random_index on;":                               true,
		"LOCATION add_after_body /login;":                         true,
		"LOCATION proxy_pass http://a; error_page 497 /login;":    true,
		"LOCATION proxy_pass http://a; error_page 496 /login;":    true,
		"LOCATION proxy_pass http://a; error_page 414 /login;":    true,
		"LOCATION proxy_pass http://a; error_page 501 /login;":    true,
		"LOCATION mirror /login;":                                 true,
		"LOCATION limit_upstream_conn limit=2;":                   true,
		"LOCATION location /free/a { set_real_ip_from 1.2.3.4; }": true,
		"SERVER set $HTTP_X_API_KEY a;":                           true,
		"SERVER set_unescape_uri $ARGS a;":                        true,
		"HTTP map $uri $a { ~(?<http_x_api_key>.) a; }":           true,
		"SERVER } server { server_name $hostname;":                true,
		"SERVER } server { server_name [::1];":                    true,
		"LOCATION auth_request_set $http_x_api_key a;":            true,
		"LOCATION if ($uri ~ '(?<http_x_api_key>.)') { }":         true,
		"LOCATION memcached_pass a; error_page 404 /login;":       true,
		"SERVER auth_request_set $a $http_x_api_key;":             false,
		"SERVER set $a $http_x_api_key; set_md5 $b $arg_x;":       false,
		"HTTP upstream a { server b; hash $arg_x; strange; }":     false,
		"LOCATION proxy_cache_bypass $http_pragma;":               false,
		"LOCATION more_set_headers 'X-Api-Key: a';":               false,
		"HTTP header_filter_by_lua_block { ngx.header.a = 1 }":    false,
		"SERVER ssl_certificate a; gzip on; add_header a b;":      false,
	} {
		at, directive, _ := strings.Cut(text, " ")
		_, notes := converted(t, map[string]string{"nginx.conf": strings.NewReplacer(at, directive, "HTTP", "", "SERVER", "", "LOCATION", "").Replace(conf)})
		if said := strings.Contains(strings.Join(notes, "\n"), "lost: "); said != lost {
			t.Errorf("%s: lost %v, want %v: %q", text, said, lost, notes)
		}
	}
}

// TestGlobs: a pattern of include takes what it takes in nginx: a star no dot at the beginning, and [!a] what is not a.
func TestGlobs(t *testing.T) {
	const site = "server { server_name %[1]s; location / { limit_req zone=one burst=%[2]d; } }"
	yaml, notes := converted(t, map[string]string{
		"nginx.conf":    "http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; include sites/[!_]*.conf; include sites/*.off; include sites/.*.on; }",
		"sites/a.conf":  fmt.Sprintf(site, "a.example", 2),
		"sites/_b.conf": fmt.Sprintf(site, "b.example", 3),
		"sites/.c.off":  fmt.Sprintf(site, "a.example", 4),
		"sites/.d.on":   fmt.Sprintf(site, "d.example", 5),
	})
	for burst, want := range map[int]bool{2: true, 3: false, 4: false, 5: true} {
		if got := strings.Contains(yaml, fmt.Sprintf("burst %d ", burst)); got != want {
			t.Errorf("burst %d: %v, want %v in\n%s%q", burst, got, want, yaml, notes)
		}
	}
}
