package gateways_test

import (
	"fmt"
	"strings"
	"testing"
)

// once is a middleware that lets one request pass, and a service.
const once = "http:\n  services: {s: {}}\n  middlewares: {one: {rateLimit: {average: 1, period: 1h, burst: 1}}, gzip: {compress: {}}}\n  routers:\n"

// TestTraefikRouters: what changes which requests a router has, or adds limits, frees nothing, and
// is said if a limit may be lost.
func TestTraefikRouters(t *testing.T) {
	const container = "services:\n  app:\n    labels: [%s'traefik.http.routers.app.rule=PathPrefix(`/`)', traefik.http.routers.app.middlewares=one, traefik.http.middlewares.one.ratelimit.average=1, traefik.http.middlewares.one.ratelimit.period=1h]\n  other:\n    labels: ['traefik.http.routers.other.rule=PathPrefix(`/free`)', %s]\n"
	labels := func(app, other string) string {
		return strings.Replace(strings.Replace(container, "%s", app, 1), "%s", other, 1)
	}
	const alone = once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n---\nservices:\n  other:\n    labels: ['traefik.http.routers.other.rule=PathPrefix(`/free`)']\n"
	const served = "{kind: Middleware, metadata: {name: one}, spec: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n---\n{kind: Service, metadata: {name: app}, spec: {ports: [{name: web, port: 80}]}}\n---\n{kind: Service, metadata: {name: out}, spec: {type: ExternalName}}\n---\n{kind: IngressRoute, metadata: {name: p}, spec: {routes: [{match: 'Path(`/x`) || Path(`/free`)', priority: 1, middlewares: [{name: one}], services: [{name: app}]}]}}\n---\n"
	route := func(service, more string) string {
		return "{kind: IngressRoute, metadata: {name: c}, spec: {routes: [{match: 'PathPrefix(`/free`)', " + more + "services: [{name: " + service + "}]}]}}\n"
	}
	const objects = "{kind: Middleware, metadata: {name: one}, spec: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n---\n{kind: IngressRoute, metadata: {name: p}, spec: {routes: [{match: 'Host(`a.example`)', middlewares: [{name: one}]}]}}\n---\n"
	atEntry := func(points, more string) string {
		return once + "    p: {rule: 'PathPrefix(`/x`)', service: s, entryPoints: [web, traefik]}\n---\nentryPoints: {" + points + "}\n" + more + "\n"
	}
	for name, c := range map[string]struct {
		text, limited, free, lost string
	}{
		"child": {once + "    p: {rule: 'Host(`a.example`)', middlewares: [one]}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s}\n",
			"/free /x", "b.example/free", ""},
		"child, longer": {once + "    p: {rule: 'PathPrefix(`/`)', middlewares: [one]}\n    c: {rule: 'Host(`a.example`) && PathPrefix(`/free`)', parentRefs: [p@file], service: s}\n",
			"/free /x", "", ""},
		"limited child": {once + "    p: {rule: 'Host(`a.example`)'}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s, middlewares: [one]}\n",
			"/free", "b.example/free /x", ""},
		"limited child, another router between": {once + "    p: {rule: 'Host(`a.example`)', priority: 100}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s, middlewares: [one]}\n    o: {rule: 'PathPrefix(`/free/x`)', service: s, priority: 50}\n",
			"/free /free/x", "b.example/free", ""},
		"siblings": {once + "    p: {rule: 'Host(`a.example`)'}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s}\n    d: {rule: 'PathPrefix(`/`)', parentRefs: [p], service: s, middlewares: [one]}\n",
			"/x", "/free b.example/x", ""},
		"the parent takes": {once + "    p: {rule: 'Host(`a.example`)'}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s}\n    d: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n",
			"b.example/x", "/free /x", ""},
		"the child lacks its service": {once + "    p: {rule: 'Host(`a.example`)'}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: other}\n    d: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n",
			"b.example/x /free /x", "", ""},
		"a service and children": {once + "    p: {rule: 'Host(`a.example`)', service: s}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s}\n    d: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n",
			"b.example/x /free /x", "", ""},
		"grandchild": {once + "    p: {rule: 'Host(`a.example`)', middlewares: [one]}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p]}\n    d: {rule: 'PathPrefix(`/free/x`)', parentRefs: [c], service: s}\n",
			"/free/x /free /x", "b.example/free/x", ""},
		"a circle":             {once + "    p: {rule: 'Host(`a.example`)', parentRefs: [c]}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [p], service: s}\n    d: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n", "/free /x", "", "the parent c@file is in none"},
		"parent elsewhere":     {once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [other], service: s}\n", "/free", "", "the parent other@file is in none"},
		"child as object":      {objects + "{kind: IngressRoute, metadata: {name: c}, spec: {parentRefs: [{name: p}], routes: [{match: 'PathPrefix(`/free`)', services: [{name: app}]}]}}", "/free /x", "b.example/free", ""},
		"field of a router":    {once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n    c: {rule: 'PathPrefix(`/free`)', service: s, some: y}\n", "/free", "", "the field some is not known here: NOT KEPT"},
		"field of two routers": {once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one], some: x}\n    c: {rule: 'PathPrefix(`/free`)', service: s, some: y}\n", "/free /x", "", "the field some is not known here: NOT KEPT"},
		"field of a route":     {objects + "{kind: IngressRoute, metadata: {name: c}, spec: {routes: [{match: 'Host(`a.example`) && PathPrefix(`/free`)', some: y, services: [{name: app}]}]}}", "/free", "", "the field some is not known here: NOT KEPT"},
		"annotation":           {objects + "{kind: Ingress, metadata: {name: i, annotations: {traefik.ingress.kubernetes.io/router.some: y}}, spec: {rules: [{host: a.example, http: {paths: [{path: /free, pathType: Prefix}]}}]}}", "/free", "", "the annotation router.some is not known here: NOT KEPT"},
		"field of a limit":     {strings.Replace(once, "burst: 1", "burst: 1, some: y", 1) + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n", "/free", "", "the field some is not known here: NOT KEPT"},
		"field of a source":    {strings.Replace(once, "burst: 1", "burst: 1, sourceCriterion: {some: y}", 1) + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one]}\n", "/free", "", "the field some is not known here: NOT KEPT"},

		"limit of a service": {strings.Replace(once, "s: {}", "s: {middlewares: [one]}", 1) + "    p: {rule: 'PathPrefix(`/free`)', service: s}\n    b: {rule: 'PathPrefix(`/x`)', service: s, middlewares: [one]}\n", "/x", "/free", "yaml:2: the middleware one is NOT KEPT here"},
		"else of a service":  {strings.Replace(once, "s: {}", "s: {middlewares: [gzip]}", 1) + "    b: {rule: 'PathPrefix(`/x`)', service: s, middlewares: [one]}\n", "/x", "/free", ""},
		"of a service in an IngressRoute": {objects + "{kind: IngressRoute, metadata: {name: c}, spec: {routes: [{match: 'PathPrefix(`/free`)', services: [{name: app, middlewares: [{name: one}]}]}]}}",
			"/x", "b.example/free", "yaml:5: the middleware one is NOT KEPT here"},
		"of a Service":            {objects + "{kind: Service, metadata: {name: app, annotations: {traefik.ingress.kubernetes.io/service.middlewares: 'default-one@kubernetescrd'}}}", "/x", "", "the middleware default-one@kubernetescrd is NOT KEPT here"},
		"of a service in a label": {labels("", "traefik.http.services.x.middlewares=one"), "/", "/free", "the middleware one is NOT KEPT here"},

		"enabled by default":        {labels("", "x=y"), "/", "/free", ""},
		"enabled":                   {labels("traefik.enable=true, ", "traefik.enable=true"), "/", "/free", ""},
		"not enabled":               {labels("", "traefik.enable=false"), "/ /free", "", ""},
		"not enabled as another is": {labels("traefik.enable=true, ", "x=y"), "/ /free", "", ""},
		"not by default":            {alone + "---\nproviders: {docker: {exposedByDefault: false}}\n", "/ /free", "", ""},
		"not by default, in words":  {alone + "  traefik: {command: ['--providers.docker.exposedbydefault=false']}\n", "/ /free", "", ""},
		"constraints":               {alone + "---\nproviders: {docker: {constraints: 'Label(`x`, `z`)'}}\n", "/ /free", "", ""},
		"by default, beside a file": {alone, "/", "/free", ""},
		"two services":              {labels("", "traefik.http.services.a.loadbalancer.server.port=80, traefik.http.services.b.loadbalancer.server.port=81"), "/ /free", "", ""},
		"one of two services":       {labels("", "traefik.http.services.a.loadbalancer.server.port=80, traefik.http.services.b.loadbalancer.server.port=81, traefik.http.routers.other.service=a"), "/", "/free", ""},

		"children of two parents elsewhere": {once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one], parentRefs: [some]}\n    c: {rule: 'PathPrefix(`/free`)', parentRefs: [other], service: s}\n", "/free", "", "the parent other@file is in none"},
		"constraints on both":               {labels("", "x=y") + "---\nproviders: {docker: {constraints: 'Label(`x`, `z`)'}}\n", "/ /free", "", ""},

		"a Service":                  {served + route("app, port: 80", ""), "/x", "/free", ""},
		"a Service by a port's name": {served + route("app, port: web", ""), "/x", "/free", ""},
		"no Service of its name":     {served + route("other", ""), "/x /free", "", ""},
		"no port of a Service":       {served + route("app, port: 81", ""), "/x /free", "", ""},
		"an ExternalName":            {served + route("out", ""), "/x /free", "", ""},
		"an ExternalName, allowed":   {served + route("out", "") + "---\n{kind: Deployment, spec: {args: [--providers.kubernetescrd.allowexternalnameservices]}}\n", "/x", "/free", ""},
		"of another namespace":       {served + route("app, namespace: x", ""), "/x /free", "", ""},
		"of another, allowed":        {served + route("app, namespace: x", "") + "---\nproviders: {kubernetesCRD: {allowCrossNamespace: true}}\n", "/x", "/free", ""},
		"another kind":               {served + route("app", "kind: Other, "), "/x /free", "", ""},
		"an Ingress without Service": {served + "{kind: Ingress, metadata: {name: i}, spec: {rules: [{host: a.example, http: {paths: [{path: /free, pathType: Prefix, backend: {service: {name: other, port: {number: 80}}}}]}}]}}", "/x /free", "", ""},
		"an Ingress with one":        {served + "{kind: Ingress, metadata: {name: i}, spec: {rules: [{host: a.example, http: {paths: [{path: /free, pathType: Prefix, backend: {service: {name: app, port: {name: web}}}}]}}]}}", "/x", "/free", ""},
		"an Ingress for a resource":  {served + "{kind: Ingress, metadata: {name: i}, spec: {rules: [{host: a.example, http: {paths: [{path: /free, pathType: Prefix, backend: {resource: {kind: x, name: y}}}]}}]}}", "/x /free", "", ""},

		"one count in Redis": {strings.Replace(once, "burst: 1", "burst: 1, redis: {endpoints: [x]}", 1) + "    a: {rule: 'PathPrefix(`/a`)', service: s, middlewares: [one]}\n    b: {rule: 'PathPrefix(`/b`)', service: s, middlewares: [one]}\n    c: {rule: 'PathPrefix(`/b/free`)', service: s}\n", "/a /b", "/x /b/free", ""},

		"ping at an entry point":            {atEntry("web: {http: {middlewares: [one@file]}}", "ping: {entryPoint: web}"), "/x", "/ping", "yaml:8: the limits of the entry point web are NOT KEPT"},
		"metrics at an entry point":         {atEntry("web: {http: {middlewares: [one@file]}}", "metrics: {prometheus: {entryPoint: web}}"), "/x", "", "the limits of the entry point web are NOT KEPT"},
		"redirections of an entry point":    {atEntry("web: {http: {middlewares: [one@file], redirections: {entryPoint: {to: tls}}}}", "ping: {}"), "/x", "", "the limits of the entry point web are NOT KEPT"},
		"the entry point of ping":           {atEntry("traefik: {http: {middlewares: [one@file]}}", "ping: {}"), "/x", "", "the limits of the entry point traefik are NOT KEPT"},
		"ping at another, or by a router":   {atEntry("web: {http: {middlewares: [one@file]}}, b: {}", "ping: {entryPoint: b}\nmetrics: {prometheus: {entryPoint: web, manualRouting: true}}"), "/x", "", ""},
		"ping at one with other middleware": {atEntry("web: {http: {middlewares: [gzip@file]}}", "ping: {entryPoint: web}"), "/x", "", ""},

		"entry points by default": {once + "    p: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one], entryPoints: [web, other]}\n    c: {rule: 'PathPrefix(`/free`)', service: s}\n---\nentryPoints: {web: {asDefault: true}, other: {}}\n", "/ /free", "", ""},
	} {
		t.Run(name, func(t *testing.T) { frees(t, "traefik", c.text, c.limited, c.free, c.lost) })
	}
}

// frees asks three requests for each of some paths under imported rules: one passes of those that are limited,
// and all of those that are free. lost is in a note NOT KEPT; without it there is none.
func frees(t *testing.T, kind, text, limited, free, lost string) {
	t.Helper()
	yaml, notes, err := converted(kind, text)
	if err != nil || (notes.Lost() > 0) != (lost != "") {
		t.Fatalf("%s\n%v %v", text, err, notes)
	}
	said := ""
	for _, n := range notes {
		if n.Lost {
			said += n.String() + "\n"
		}
	}
	if !strings.Contains(said, lost) {
		t.Errorf("%s\n%s\nwant: %s", text, said, lost)
	}
	for want, requests := range map[int]string{1: limited, 3: free} {
		for request := range strings.FieldsSeq(requests) {
			if passed := ofThree(t, yaml, request); passed != want {
				t.Errorf("%d of %s pass, want %d of 3, by\n%s\n%s\n%v", passed, request, want, text, yaml, notes)
			}
		}
	}
}

// With Redis, Traefik counts a middleware by its name, for all its routers.
func TestTraefikRedis(t *testing.T) {
	for more, want := range map[string]int{"": 2, ", redis: {endpoints: [x]}": 1} {
		yaml, notes, err := converted("traefik", strings.Replace(once, "burst: 1", "burst: 1"+more, 1)+"    a: {rule: 'PathPrefix(`/a`)', service: s, middlewares: [one]}\n    b: {rule: 'PathPrefix(`/b`)', service: s, middlewares: [one]}\n")
		if got := strings.Count(yaml, "limits:"); err != nil || notes.Lost() > 0 || got != want {
			t.Errorf("%d rules, want %d:\n%s\n%v %v", got, want, yaml, notes, err)
		}
	}
}

// Routers that are all children of all others, and of one root, are said not to be kept.
func TestTraefikFamilies(t *testing.T) {
	names := "p"
	for i := range 20 {
		names += fmt.Sprintf(", c%d", i)
	}
	text := once + "    p: {rule: 'PathPrefix(`/`)', middlewares: [one]}\n"
	for i := range 20 {
		text += fmt.Sprintf("    c%d: {rule: 'PathPrefix(`/free%[1]d`)', parentRefs: [%s], service: s}\n", i, names)
	}
	yaml, notes, err := converted("traefik", text)
	if err != nil || notes.Lost() == 0 {
		t.Fatal(notes, err)
	}
	if passed := ofThree(t, yaml, "/free1"); passed != 1 {
		t.Errorf("%d of 3 pass, by\n%s", passed, yaml)
	}
}
