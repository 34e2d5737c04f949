package nginxrules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/importers/gateways"
)

// nginx, with the configuration that ingress-nginx documents for its annotations, denies as many
// requests as the rules that are made of these annotations.
func TestSameAsIngressNginx(t *testing.T) {
	const ingress = `
kind: Ingress
metadata:
  name: %[1]s
  annotations:
    nginx.ingress.kubernetes.io/limit-rpm: "%[2]d"
    nginx.ingress.kubernetes.io/limit-burst-multiplier: "%[3]d"
spec:
  rules:
  - host: shop.example.com
    http: {paths: [{path: %[4]s, pathType: Prefix}, {path: %[4]s/deep, pathType: Exact}]}
---`
	var yaml, zones, locations strings.Builder
	for _, in := range []struct {
		name          string
		rpm, multiply int
		path          string
	}{{"one", 2, 2, "/api"}, {"two", 1, 1, "/api/v1"}, {"three", 1, 1, "/login"}} {
		fmt.Fprintf(&yaml, ingress, in.name, in.rpm, in.multiply, in.path)
		fmt.Fprintf(&zones, "limit_req_zone $binary_remote_addr zone=%s_rpm:1m rate=%dr/m;\n", in.name, in.rpm)
		for _, location := range []string{in.path + "/", "= " + in.path, "= " + in.path + "/deep"} {
			fmt.Fprintf(&locations, "location %s { limit_req zone=%s_rpm burst=%d nodelay; empty_gif; }\n", location, in.name, in.rpm*in.multiply)
		}
	}
	docs, err := gateways.Read("ingress.yaml", []byte(yaml.String()))
	if err != nil {
		t.Fatal(err)
	}
	file, notes, err := gateways.IngressNginx(docs)
	if err != nil || notes.Lost() > 0 {
		t.Fatal(err, notes)
	}
	port := nginx(t, `
error_log stderr crit; pid %[1]s/nginx.pid; events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	include zones.conf;
	limit_req_status 429;
	server {
		listen 127.0.0.1:%[2]d;
		server_name shop.example.com;
		include locations.conf;
		location / { empty_gif; }
	}
}
`, map[string]string{"zones.conf": zones.String(), "locations.conf": locations.String()})
	var all []request
	want := make(map[request]int)
	for range 9 {
		for _, path := range []string{"/api", "/api/x", "/apix", "/api/deep", "/api/v1", "/api/v1/x", "/login", "/login/x", "/"} {
			r := request{"shop.example.com", path, ""}
			all = append(all, r)
			if ask(t, port, r) {
				want[r]++
			}
		}
	}
	got := denies(t, string(file), all)
	for _, r := range all[:9] {
		if got[r] != want[r] {
			t.Errorf("%v: the rules deny %d of 9, nginx %d\n%s", r, got[r], want[r], file)
		}
	}
	if len(want) < 5 {
		t.Errorf("denied: %v: this sees one side only", want)
	}
}
