package nginxrules_test

import (
	"strings"
	"testing"
)

// TestItself: what is handed on to a server of the same configuration that has limits is NOT KEPT, and what goes to
// other ports, sockets or machines is.
func TestItself(t *testing.T) {
	const conf = `http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; HTTP
		server { listen 80; server_name a.example; location / { PASS; } }
		server { listen 127.0.0.1:8081; listen unix:/run/in.sock; listen 10.0.0.1:8090-8099; server_name in.example *.in.example; location / { proxy_pass http://app:3000; } location /inner/ { limit_req zone=one; } }
		server { listen 8082; location / { proxy_pass http://app:3000; } } }`
	for text, lost := range map[string]bool{
		"proxy_pass http://127.0.0.1:8081/inner/":      true,
		"proxy_pass http://127.0.0.1:8081$request_uri": true,
		"proxy_pass http://localhost:8081":             true,
		"proxy_pass http://[::1]:8081/":                true,
		"proxy_pass http://10.0.0.1:8095":              true,
		"proxy_pass http://unix:/run/in.sock:/inner/":  true,
		"grpc_pass 127.0.0.1:8081":                     true,
		"uwsgi_pass unix:/run/in.sock":                 true,
		"proxy_pass http://x.in.example:8081":          true,
		"proxy_pass http://u/inner$request_uri; HTTP upstream u { server 127.0.0.1:8081 weight=2; }": true,
		"proxy_pass http://U; HTTP upstream u { server app:81; server unix:/run/in.sock; }":          true,
		"proxy_pass http://$a:8081":                                                                                                                 true,
		"set $a 127.0.0.1:8081; proxy_pass http://$a":                                                                                               true,
		"set $p 8081; proxy_pass http://127.0.0.1:$p":                                                                                               true,
		"proxy_pass http://$a; HTTP map $host $a { default u; } upstream u { server 127.0.0.1:8081; }":                                              true,
		"proxy_pass $a; HTTP map $host $a { default http://localhost:8081/inner/; }":                                                                true,
		"if ($http_x) { proxy_pass http://127.0.0.1:8081; }":                                                                                        true,
		"proxy_pass http://127.0.0.1:$server_port; HTTP server { listen 80; server_name b.example; limit_req zone=one; }":                           true,
		"proxy_pass http://127.0.0.1$request_uri; HTTP server { server_name b.example; limit_req zone=one; }":                                       true,
		"proxy_pass https://127.0.0.1; HTTP server { listen 443 ssl; server_name b.example; limit_req zone=one; }":                                  true,
		"proxy_pass http://127.0.0.1:$arg_p/inner/":                                                                                                 true,
		"proxy_pass http://127.0.0.1:$port/inner/; HTTP server { server_name ~^p(?<port>.+)$; }":                                                    true,
		"proxy_pass http://127.0.0.1:$1/inner/":                                                                                                     true,
		"set $p $cookie_p; proxy_pass http://localhost:$p":                                                                                          true,
		"proxy_pass http://$up/inner/; HTTP map $http_host $up { default app; ~^(?<pp>[0-9]+) 127.0.0.1:$pp; }":                                     true,
		"proxy_pass http://$http_host":                                                                                                              true,
		"proxy_pass http://$host; HTTP server { server_name b.example; limit_req zone=one; }":                                                       true,
		"proxy_pass https://$host$request_uri; HTTP server { server_name b.example; limit_req zone=one; }":                                          true,
		"proxy_pass http://$s; HTTP server { server_name ~^(?<s>.+)$; }":                                                                            true,
		"proxy_pass http://$s.internal:3000; HTTP server { server_name ~^(?<s>.+)$; }":                                                              true,
		"set $x $arg_x; set $a http://app:3000; proxy_pass $a":                                                                                      false,
		"set $p 3000; proxy_pass http://127.0.0.1:$p":                                                                                               false,
		"proxy_pass http://app:$arg_p":                                                                                                              true,
		"proxy_pass http://in.example; HTTP upstream in.example { server 172.18.0.3:8000; } server { server_name in.example; limit_req zone=one; }": false,
		"location ~ ^/x(?<rest>.*)$ { proxy_pass http://127.0.0.1$rest; }":                                                                          true,
		"rewrite ^/(.*)$ $1 break; proxy_pass http://app$uri":                                                                                       true,
		"proxy_pass http://127.0.0.1:80$arg_p/inner/":                                                                                               true,
		"proxy_pass http://app$1; HTTP upstream app1 { server 127.0.0.1:8081; }":                                                                    true,
		"auth_request_set $be $upstream_http_x_be; proxy_pass http://$be":                                                                           true,
		"set $a app; set $p 3000; set $s https; proxy_pass $s://$a:$p":                                                                              false,
		"proxy_pass $scheme://app:3000":                                                                                                             false,
		"proxy_pass http://app$uri$is_args$args":                                                                                                    false,
		"proxy_pass http://app:3000/x$arg_p":                                                                                                        false,
		"proxy_pass http://127.1:8081":                                                                                                              true,
		"proxy_pass http://2130706433:08081":                                                                                                        true,
		"proxy_pass http://0:8081":                                                                                                                  true,
		"proxy_pass http://unix:/run/x/../in.sock:/":                                                                                                true,
		"proxy_pass http://127.0.0.1:8082":                                                                                                          false,
		"proxy_pass http://127.0.0.1:3000":                                                                                                          false,
		"proxy_pass http://app:8081":                                                                                                                false,
		"proxy_pass http://10.0.0.2:8081":                                                                                                           false,
		"if ($arg_p = '') { set $arg_p 3000; } proxy_pass http://127.0.0.1:$arg_p/inner/":                                                           true,
		"proxy_pass http://127.0.0.1:8081$p/inner/; HTTP map $http_x $p { a 2; }":                                                                   true,
		"if ($http_x) { set $p 2; } proxy_pass http://127.0.0.1:8081$p/inner/":                                                                      true,
		"proxy_pass http:/$uri":                                                                                                                     true,
		"proxy_pass http:$request_uri":                                                                                                              true,
		"proxy_pass $scheme:/$request_uri":                                                                                                          true,
		"proxy_pass http://unix:/run$uri:/inner/":                                                                                                   true,
		"try_files $arg_u =404; proxy_pass http://app$uri":                                                                                          true,
		"auth_request 081/inner; proxy_pass http://127.0.0.1:8$uri":                                                                                 true,
		"mirror 081/inner; proxy_pass http://127.0.0.1:8$uri":                                                                                       true,
		"auth_request off; proxy_pass http://app$uri":                                                                                               false,
		"try_files $uri $uri/ @app; proxy_pass http://app$uri":                                                                                      false,
		"location ~ ^/g/(?<p>.*)$ { set $app app:3000; proxy_pass http://$p$app; }":                                                                 true,
		"set $u_x app; set $u $arg_u; proxy_pass http://${u}_x":                                                                                     true,
		"set $h 127.0.0.1; proxy_pass http://$h:8081; HTTP upstream 127.0.0.1 { server app:3000; }":                                                 true,
		"set $p 3000; set_unescape_uri $p $arg_p; proxy_pass http://127.0.0.1:$p":                                                                   true,
		"proxy_pass http://127.0.0.1; HTTP server { listen *; server_name b.example; limit_req zone=one; }":                                         true,
		"proxy_pass http://127.0.0.1; HTTP server { listen localhost; server_name b.example; limit_req zone=one; }":                                 true,
		"proxy_pass http://in.example.:8081":                                                                                                        true,
		"set $h 10.0.0.5; set $p 8096; proxy_pass http://$h:$p$request_uri":                                                                         false,
		"set $h 10.0.0.5; proxy_pass http://$h:8096/$arg_x":                                                                                         false,
		"set $h 10.0.0.5; set $p 8096; proxy_pass http://$h:$p/api/$1$is_args$args":                                                                 false,
		"set $h 10.0.0.5; proxy_pass http://$h:$arg_x/":                                                                                             true,
		"set $s http; proxy_pass $s:/$uri":                                                                                                          true,
		"set $s http; proxy_pass $s:$request_uri":                                                                                                   true,
		"proxy_pass http://unix:/run/up.sock:/; HTTP server { listen UNIX:/run/up.sock; limit_req zone=one; }":                                      true,
		"proxy_pass http://[::ffff:10.0.0.1]:8090":                                                                                                  true,
		"proxy_pass http://[2001:db8:0::1]:8083; HTTP server { listen [2001:db8::1]:8083; limit_req zone=one; }":                                    true,
		"proxy_pass http://ip6-localhost:8081":                                                                                                      true,
		"proxy_pass http://x.names:8081; HTTP server { listen 8081; server_name ~^(?<s>[a-z]+)\\.names$; limit_req zone=one; }":                     true,
		"proxy_pass http://127.0.0.1:8084; HTTP } stream { server { listen 8084; proxy_pass 127.0.0.1:8081; }":                                      true,
		"set $upstream_app app; set $upstream_port 443; set $upstream_proto https; proxy_pass $upstream_proto://$upstream_app:$upstream_port":       false,
		"proxy_pass http://$host":                                                                                                                   true,
		"proxy_pass http://u; HTTP upstream u { server app1; server app2 backup; keepalive 8; }":                                                    false,
		"set $a app:3000; proxy_pass http://$a; HTTP map $http_upgrade $b { default upgrade; '' close; }":                                           false,
		"fastcgi_pass unix:/run/php.sock":                                                                                                           false,
		"grpc_pass grpc://app:50051":                                                                                                                false,
	} {
		pass, more, _ := strings.Cut(text, "; HTTP ")
		_, notes := converted(t, map[string]string{"nginx.conf": strings.NewReplacer("PASS", pass, "HTTP", more, "};", "}").Replace(conf)})
		if said := strings.Contains(strings.Join(notes, "\n"), "lost: "); said != lost {
			t.Errorf("%s: lost %v, want %v: %q", text, said, lost, notes)
		}
	}
}

// TestMaybeItself: an address that the file does not have may be of this machine, where a server listens at all.
func TestMaybeItself(t *testing.T) {
	for to, want := range map[string]bool{"192.0.2.2:8081": true, "192.0.2.2": false, "app:8081": false, "[2001:db8::1]:8081": true} {
		_, notes := converted(t, map[string]string{"nginx.conf": `http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;
			server { listen 80; location / { proxy_pass http://` + to + `; } } server { listen 8081; limit_req zone=one; } }`})
		if said := strings.Join(notes, "\n"); strings.Contains(said, "is of this machine") != want || strings.Contains(said, "lost: ") {
			t.Errorf("%s: %q", to, notes)
		}
	}
}
