package gateways_test

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rules"
)

// What the documents of each program say of a request is written here once more, apart
// from the importers: which of its limits a request has, and when it passes. Random
// configurations are asked random requests in turn; imported rules must answer alike.

// An asked request is one, at a time.
type asked struct {
	at                       int64
	host, path, ip, consumer string
	header                   string // X-Key
}

// Attribute returns what rules look at.
func (a asked) Attribute(name string) (string, bool) {
	v := map[string]string{"host": a.host, "path": a.path, "ip": a.ip, "consumer": a.consumer, "header.x-key": a.header, "method": "GET"}[name]
	return v, v != ""
}

// A program is a random configuration, and what its documents say of requests in turn.
type program struct {
	kind, text string
	passes     func(a asked) bool
}

// judge asks both the same.
func judge(t *testing.T, programs func(r *rand.Rand) program) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	passed, denied := 0, 0
	for range 300 {
		p := programs(random)
		yaml, notes, err := converted(p.kind, p.text)
		if err != nil || notes.Lost() > 0 {
			t.Fatalf("%s\n%v %v", p.text, err, notes)
		}
		file, err := rules.Decode("rules.yaml", []byte(yaml))
		if err != nil {
			t.Fatalf("%s\n%v\n%s", p.text, err, yaml)
		}
		now := int64(1e18)
		store := memstore.New(memstore.Options{Now: func() int64 { return now }})
		limits, err := policy.New(store, file.Rules, policy.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, yaml)
		}
		for range 120 {
			if now += int64(random.IntN(700)) * 1e6; random.IntN(12) == 0 {
				now += int64(random.IntN(90)) * 1e9
			}
			a := asked{now, pick(random, "a.example.com", "b.example.com", "c.example.org"), pick(random, "/", "/api", "/api/x", "/apix", "/api/v1/y", "/login", "/other"),
				pick(random, "192.0.2.1", "192.0.2.2", "10.1.1.1"), pick(random, "", "anna", "bert"), pick(random, "", "k1", "k2")}
			var result policy.Result
			if err := limits.Decide(context.Background(), a, 1, &result); err != nil {
				t.Fatal(err)
			}
			want := p.passes(a)
			if got := result.Decision.Allowed; got != want {
				t.Fatalf("%s\n%s\n%+v: passes %v, want %v", p.text, yaml, a, got, want)
			}
			if want {
				passed++
			} else {
				denied++
			}
		}
		_ = store.Close()
	}
	if passed < 3000 || denied < 500 {
		t.Errorf("%d passed, %d denied: this sees one side only", passed, denied)
	}
}

func pick(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }

// A bucket is tokens that come evenly.
type bucket struct {
	tokens *big.Rat
	at     int64
}

// filled returns the bucket of a key, as full as it is at a time: it holds size and gets count in every period.
func filled(all map[string]*bucket, key string, at int64, size, count int64, every time.Duration) *bucket {
	b := all[key]
	if b == nil {
		b = &bucket{big.NewRat(size, 1), at}
		all[key] = b
	}
	b.tokens.Add(b.tokens, big.NewRat((at-b.at)*count, int64(every)))
	if full := big.NewRat(size, 1); b.tokens.Cmp(full) > 0 {
		b.tokens = full
	}
	b.at = at
	return b
}

// take takes one of each bucket, or none if one of them is empty.
func take(all ...*bucket) bool {
	one := big.NewRat(1, 1)
	if slices.ContainsFunc(all, func(b *bucket) bool { return b.tokens.Cmp(one) < 0 }) {
		return false
	}
	for _, b := range all {
		b.tokens.Sub(b.tokens, one)
	}
	return true
}

// TestIngressNginx: "limit-rps: number of requests accepted from a given IP each second.
// The burst limit is set to this limit multiplied by the burst multiplier, the default
// multiplier is 5"; limits are of an Ingress and an address. The host is looked up first,
// then an exact path, then the longest prefix of whole segments.
func TestIngressNginx(t *testing.T) {
	type path struct {
		host, path string
		exact      bool
		in         int
	}
	judge(t, func(r *rand.Rand) program {
		var text strings.Builder
		var paths []path
		var rate, burst [4]int64 // by Ingress
		seen := map[path]bool{}
		for i := range 1 + r.IntN(4) {
			fmt.Fprintf(&text, "---\nkind: Ingress\nmetadata:\n  name: i%d\n  annotations:\n    nginx.ingress.kubernetes.io/limit-whitelist: 10.0.0.0/8\n", i)
			if r.IntN(3) > 0 {
				rate[i] = 1 + r.Int64N(3)
				burst[i] = 5 * rate[i]
				fmt.Fprintf(&text, "    nginx.ingress.kubernetes.io/limit-rpm: \"%d\"\n", rate[i])
				if r.IntN(2) == 0 {
					times := 1 + r.Int64N(3)
					burst[i] = rate[i] * times
					fmt.Fprintf(&text, "    nginx.ingress.kubernetes.io/limit-burst-multiplier: \"%d\"\n", times)
				}
			}
			text.WriteString("spec:\n  rules:\n")
			for range 1 + r.IntN(3) {
				p := path{pick(r, "a.example.com", "b.example.com", ""), pick(r, "/", "/api", "/api/v1", "/login"), r.IntN(3) == 0, 0}
				if seen[p] || p.exact && seen[path{p.host, p.path, false, 0}] || !p.exact && seen[path{p.host, p.path, true, 0}] {
					continue
				}
				seen[p] = true
				fmt.Fprintf(&text, "  - {host: %q, http: {paths: [{path: %s, pathType: %s}]}}\n", p.host, p.path, map[bool]string{true: "Exact", false: "Prefix"}[p.exact])
				p.in = i
				paths = append(paths, p)
			}
		}
		buckets := map[string]*bucket{}
		return program{"ingress", text.String(), func(a asked) bool {
			host := a.host
			if !slices.ContainsFunc(paths, func(p path) bool { return p.host == host }) {
				host = ""
			}
			var best, around *path
			for i := range paths {
				p := &paths[i]
				fits := p.path == a.path || !p.exact && strings.HasPrefix(a.path+"/", strings.TrimSuffix(p.path, "/")+"/")
				if p.host != host || !fits {
					continue
				}
				if best == nil || p.exact && !best.exact || p.exact == best.exact && len(p.path) > len(best.path) {
					best = p
				}
				if !p.exact && (around == nil || len(p.path) > len(around.path)) {
					around = p
				}
			}
			if best == nil || strings.HasPrefix(a.ip, "10.") {
				return true
			}
			// nginx: as many may be ahead of the rate as burst says, and the one that comes.
			of := func(p *path) *bucket {
				return filled(buckets, fmt.Sprint(p.in, a.ip), a.at, burst[p.in]+1, rate[p.in], time.Minute)
			}
			var all []*bucket
			if rate[best.in] > 0 {
				all = append(all, of(best))
			}
			// Rules take an exact path for that with a slash at its end, so that stricter limits around it hold, too.
			if best.exact && best.path != "/" && around != nil && around.in != best.in && rate[around.in] > 0 &&
				(rate[best.in] == 0 || rate[best.in] > rate[around.in] || burst[best.in] > burst[around.in]) {
				all = append(all, of(around))
			}
			return take(all...)
		}}
	})
}

// TestTraefik: "the average and period parameters define the rate at which the bucket
// refills, and the burst is the size of the bucket". Routers are "sorted, by default, in
// descending order using rules length".
func TestTraefik(t *testing.T) {
	type router struct {
		rule, host, path string
		limited          bool
		priority         int
	}
	judge(t, func(r *rand.Rand) program {
		average, burst, every := 1+r.Int64N(9), 1+r.Int64N(6), time.Duration(1+r.IntN(60))*time.Second
		by := pick(r, "requestHost: true", "requestHeaderName: X-Key", "ipStrategy: {}")
		var text strings.Builder
		fmt.Fprintf(&text, "http:\n  middlewares:\n    one: {rateLimit: {average: %d, burst: %d, period: %v, sourceCriterion: {%s}}}\n  routers:\n", average, burst, every, by)
		var all []router
		for i := range 1 + r.IntN(5) {
			one := router{host: pick(r, "", "a.example.com", "b.example.com"), path: pick(r, "", "/api", "/api/v1", "/"), limited: r.IntN(3) > 0}
			var parts []string
			if one.host != "" {
				parts = append(parts, "Host(`"+one.host+"`)")
			}
			if one.path != "" || parts == nil {
				parts = append(parts, "PathPrefix(`"+pick(r, one.path)+"`)")
			}
			if parts[len(parts)-1] == "PathPrefix(``)" {
				one.path, parts[len(parts)-1] = "/", "PathPrefix(`/`)"
			}
			one.rule = strings.Join(parts, " && ")
			if one.priority = len(one.rule); slices.ContainsFunc(all, func(o router) bool { return o.priority == one.priority }) {
				one.priority = 100 + i
			}
			fmt.Fprintf(&text, "    r%d: {rule: %q, service: s, priority: %d, middlewares: [%s]}\n", i, one.rule, one.priority, map[bool]string{true: "one"}[one.limited])
			all = append(all, one)
		}
		buckets := map[string]*bucket{}
		return program{"traefik", text.String(), func(a asked) bool {
			var best *router
			for i := range all {
				if o := &all[i]; (o.host == "" || o.host == a.host) && strings.HasPrefix(a.path, o.path) && (best == nil || o.priority > best.priority) {
					best = o
				}
			}
			used := slices.ContainsFunc(all, func(o router) bool { return o.limited })
			switch {
			case !used: // the importer says so, and makes one rule for every request
				best = nil
			case best == nil || !best.limited:
				return true
			}
			source := a.ip
			switch by {
			case "requestHost: true":
				source = a.host
			case "requestHeaderName: X-Key":
				source = a.header
			}
			return take(filled(buckets, fmt.Sprint(best, source), a.at, burst, average, every))
		}}
	})
}

// TestKong: the plugin of the most exact scope holds: of a consumer, of a route, of a
// service, of all. "If the entity can't be determined, the system falls back to ip".
// Windows are of the clock; what is denied is not counted, but for sliding windows of
// rate-limiting-advanced.
func TestKong(t *testing.T) {
	type plugin struct {
		at string // route00, service1, anna, ""
		kongCounter
	}
	judge(t, func(r *rand.Rand) program {
		kind := pick(r, "rate-limiting", "sliding", "fixed")
		var plugins []*plugin
		one := func(at string, often int) string {
			if r.IntN(often) > 0 {
				return "[]"
			}
			p := &plugin{at, kongCounter{by: pick(r, "ip", "consumer", "header", "service"), sliding: kind == "sliding", limit: 1 + r.Int64N(6), window: 60, counts: map[string]int64{}}}
			plugins = append(plugins, p)
			if kind == "rate-limiting" {
				return fmt.Sprintf("[{name: rate-limiting, config: {minute: %d, limit_by: %s, header_name: X-Key}}]", p.limit, p.by)
			}
			p.window, p.penalty = 1+r.Int64N(50), kind == "sliding" && r.IntN(2) == 0
			return fmt.Sprintf("[{name: rate-limiting-advanced, config: {limit: [%d], window_size: [%d], window_type: %s, identifier: %s, header_name: X-Key, disable_penalty: %v}}]", p.limit, p.window, kind, p.by, !p.penalty)
		}
		type route struct{ host, path, service, name string }
		var routes []route
		var text strings.Builder
		text.WriteString("services:\n")
		for i := range 2 {
			service := fmt.Sprint("service", i)
			fmt.Fprintf(&text, "- name: %s\n  plugins: %s\n  routes:\n", service, one(service, 2))
			for k := range 1 + r.IntN(2) {
				o := route{pick(r, "", "a.example.com"), pick(r, "/api", "/api/v1", "/login", "/"), service, fmt.Sprint("route", i, k)}
				if slices.ContainsFunc(routes, func(x route) bool { return x.host == o.host && x.path == o.path }) {
					o.path = fmt.Sprint("/free", i, k)
				}
				host := ""
				if o.host != "" {
					host = "hosts: [" + o.host + "], "
				}
				fmt.Fprintf(&text, "  - {name: %s, %spaths: [%s], plugins: %s}\n", o.name, host, o.path, one(o.name, 2))
				routes = append(routes, o)
			}
		}
		fmt.Fprintf(&text, "consumers:\n- {username: anna, plugins: %s}\nplugins: %s\n", one("anna", 3), one("", 2))
		return program{"kong", text.String(), func(a asked) bool {
			var best route
			for _, o := range routes {
				more := func(x route) int { return len(x.host)*1000 + len(x.path) }
				if (o.host == "" || o.host == a.host) && strings.HasPrefix(a.path, o.path) && more(o) > more(best) {
					best = o
				}
			}
			for i, scope := range []string{a.consumer, best.name, best.service, ""} {
				for _, p := range plugins {
					if p.at == scope && (scope != "" || i == 3) {
						return p.passes(a, best.service)
					}
				}
			}
			return true
		}}
	})
}

// TestFreed: a route without limits frees no request that its gateway gives to a route with a limit,
// though rules read a path without the slash at its end, and GET as HEAD too.
func TestFreed(t *testing.T) {
	traefik := "http:\n  services: {s: {}}\n  middlewares: {one: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n  routers:\n    a: {rule: %q, priority: 9, service: s}\n    b: {rule: 'PathPrefix(`/`)', priority: 1, service: s, middlewares: [one]}\n"
	inTraefik := `{kind: Middleware, metadata: {name: l, namespace: x}, spec: {rateLimit: {average: 1, period: 1h, burst: 1}}}
---
{kind: Ingress, metadata: {name: a, namespace: x, annotations: {traefik.ingress.kubernetes.io/router.middlewares: x-l@kubernetescrd%s}}, spec: {rules: [{host: a.example, http: {paths: [{path: %s, pathType: Prefix}]}}]}}
---
{kind: Ingress, metadata: {name: b, namespace: x}, spec: {rules: [{%shttp: {paths: [{path: %s, pathType: %s}]}}]}}
`
	ingress := `{kind: Ingress, metadata: {name: a}, spec: {rules: [{http: {paths: [{path: %s, pathType: %s}]}}]}}
---
{kind: Ingress, metadata: {name: b, annotations: {nginx.ingress.kubernetes.io/limit-rpm: "1", nginx.ingress.kubernetes.io/limit-burst-multiplier: "0"}}, spec: {rules: [{http: {paths: [{path: /, pathType: Prefix}]}}]}}
`
	backend := `{kind: Ingress, metadata: {name: d, annotations: {nginx.ingress.kubernetes.io/limit-rpm: "1", nginx.ingress.kubernetes.io/limit-burst-multiplier: "0"}}, spec: {defaultBackend: {service: {name: x}}, rules: [{host: a.example, http: {paths: [{path: /p, pathType: Prefix}]}}]}}
`
	local := `{"@type": x/filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: x, filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}, token_bucket: {max_tokens: 1, tokens_per_fill: 1, fill_interval: 3600s}}`
	envoy := "route_config:\n  virtual_hosts:\n  - domains: ['*']\n    routes:\n    - match: {%s}\n    - match: {prefix: /}\n      typed_per_filter_config: {x: " + local + "}\n"
	wide := strings.ReplaceAll(local, "s: 1,", "s: 50,")
	const anyRoute = "route_config: {virtual_hosts: [{domains: ['*'], routes: [{match: {prefix: /}}]}]}\n"
	const sharing = "---\nhttp_filters: [{name: x, typed_config: %s}]\nrds: {route_config_name: r}\n"
	descriptors := strings.NewReplacer("token_bucket: {", "always_consume_default_token_bucket: false, rate_limits: [{actions: [{request_headers: {header_name: '%s', descriptor_key: k}}]}], descriptors: [{entries: [{key: k, value: '%s'}], token_bucket: {max_tokens: 9, fill_interval: 1s}}], token_bucket: {").Replace(local) + "\n"
	hosts := func(of, domains, more string) string {
		return of + ": {" + more + "virtual_hosts: [{domains: " + domains + ", routes: [{match: {prefix: /}}]}, {domains: ['*'], routes: [{match: {prefix: /}, typed_per_filter_config: {x: " + local + "}}]}]}\n"
	}
	const ranked = "services: [{name: s, routes: [{name: a, %s}, {name: b, %s, plugins: [{name: rate-limiting, config: {hour: 1, limit_by: ip}}]}]}]\n"
	kong := "services: [{name: s, routes: [{name: a, paths: [%q]}, {name: b, paths: [/], plugins: [{name: rate-limiting, config: {hour: 1, limit_by: ip}}]}]}]\n"
	ofClass := func(name, class, notes, host, path string) string {
		return fmt.Sprintf("---\n{kind: Ingress, metadata: {name: %s, annotations: {%s}}, spec: {ingressClassName: %s, rules: [{host: %q, http: {paths: [{path: %s, pathType: Prefix}]}}]}}\n", name, notes, class, host, path)
	}
	const once = `nginx.ingress.kubernetes.io/limit-rpm: "1", nginx.ingress.kubernetes.io/limit-burst-multiplier: "0"`
	const regex = "nginx.ingress.kubernetes.io/use-regex: 'true'"
	const alias = "nginx.ingress.kubernetes.io/server-alias: "
	aged := func(name, made, notes, path, kind string) string {
		return fmt.Sprintf("---\n{kind: Ingress, metadata: {name: %s, creationTimestamp: '%sT00:00:00Z', annotations: {%s}}, spec: {rules: [{host: a.example, http: {paths: [{path: %q, pathType: %s}]}}]}}\n", name, made, notes, path, kind)
	}
	pathless := func(notes string) string {
		return fmt.Sprintf("---\n{kind: Ingress, metadata: {name: p, creationTimestamp: '2026-01-05T00:00:00Z', annotations: {%s}}, spec: {rules: [{host: a.example}]}}\n", notes)
	}
	route := "kind: Middleware\nmetadata: {name: one}\nspec: {rateLimit: {average: 1, period: 1h, burst: 1}}\n---\nkind: IngressRoute\nmetadata: {name: r}\nspec: {routes: [{match: 'PathPrefix(`/`)', middlewares: [{name: one}]}]}\n"
	other := "---\nkind: IngressRoute\nmetadata: {name: o, annotations: {kubernetes.io/ingress.class: %s}}\nspec: {%s, routes: [{match: 'PathPrefix(`/free`)'}]}\n"
	entry := "http:\n  services: {s: {}}\n  middlewares: {one: {rateLimit: {average: 1, period: 1h, burst: 1}}}\n  routers:\n    a: {rule: 'PathPrefix(`/free`)', service: s, %s}\n    b: {rule: 'PathPrefix(`/`)', service: s, middlewares: [one], %s}\n"
	off := "services:\n- {name: s, routes: [{name: b, paths: [/], plugins: [{name: rate-limiting, config: {hour: 1, limit_by: ip}}]}]}\n"
	for _, c := range []struct{ kind, text, limited, free string }{
		{"envoy", "http_filters: [{name: w, disabled: true, typed_config: " + wide + "}, {name: l, typed_config: " + local + "}]\n" + anyRoute, "/", ""},
		{"envoy", "http_filters: [{name: x, typed_config: " + wide + "}, {name: x, typed_config: " + local + "}]\n" + anyRoute, "/", ""},
		{"envoy", "http_filters: [{name: l, typed_config: " + local + "}, {name: w, typed_config: " + local + "}]\n" + strings.Replace(anyRoute, "/}", "/}, typed_per_filter_config: {w: "+wide+"}", 1), "/", ""},
		{"envoy", "http_filters: [{name: l, typed_config: " + wide + "}, {name: w, typed_config: " + local + "}]\n" + strings.NewReplacer("/}", "/}, typed_per_filter_config: {w: "+wide+"}", "domains", "typed_per_filter_config: {l: "+local+"}, domains").Replace(anyRoute), "/", ""},
		{"envoy", "http_filters: [{name: l, typed_config: " + local + "}]\n" + strings.Replace(anyRoute, "/}", "/}, typed_per_filter_config: {w: "+wide+"}", 1), "/", ""},
		{"envoy", "http_filters: [{name: l, typed_config: " + local + "}]\n" + strings.Replace(anyRoute, "/}", "/}, typed_per_filter_config: {l: "+wide+"}", 1), "", "/"},
		{"envoy", fmt.Sprintf(sharing, local) + fmt.Sprintf(sharing, wide) + "---\nname: r\nvirtual_hosts: [{domains: ['*'], routes: [{match: {prefix: /}}]}]\n", "/", ""},
		{"envoy", fmt.Sprintf(sharing, local) + fmt.Sprintf(sharing, local) + "---\nname: r\nvirtual_hosts: [{domains: ['*'], routes: [{match: {prefix: /}, typed_per_filter_config: {x: " + wide + "}}]}]\n", "", "/"},
		{"ingress", ofClass("a", "in", "", "a.example", "/") + ofClass("b", "out", once, "a.example", "/"), "/", ""},
		{"ingress", ofClass("a", "out", once, "a.example", "/") + ofClass("b", "in", "", "a.example", "/free"), "/free", ""},
		{"ingress", ofClass("a", "out", once, "a.example", "/") + ofClass("b", "out", "", "a.example", "/free"), "/", "/free"},
		{"ingress", ofClass("a", "out", once, "", "/") + ofClass("b", "in", "", "a.example", "/x"), "/y", ""},
		{"ingress", ofClass("a", "in", regex, "a.example", "/X") + ofClass("b", "out", once, "a.example", "/") + ofClass("c", "out", "", "a.example", "/8"), "/", "/8"},
		{"ingress", aged("a", "2026-01-01", once+", nginx.ingress.kubernetes.io/rewrite-target: /", "/", "Prefix") + aged("b", "2026-01-02", "", "/api", "Prefix"), "/apix", "/api/x"},
		{"ingress", aged("a", "2026-01-01", once, "/", "Prefix") + aged("b", "2026-01-02", "", "/api", "Prefix") + aged("c", "2026-01-03", regex, "/", "Prefix"), "/apix", ""},
		{"ingress", aged("a", "2026-01-01", once, "/", "Prefix") + aged("b", "2026-01-02", "", "/api", "Prefix") + pathless(regex), "/API/x", ""},
		{"ingress", aged("a", "2026-01-01", regex, "/zz", "Prefix") + aged("b", "2026-01-02", "", "/api", "Prefix") + aged("c", "2026-01-03", once, "/api", "Exact"), "/apix", ""},
		{"ingress", aged("a", "2026-01-01", once, "/API", "Prefix") + aged("b", "2026-01-02", regex, "/api", "Prefix"), "/API/x", ""},
		{"ingress", aged("a", "2026-01-01", regex, "/(.*)", "Prefix") + aged("b", "2026-01-02", "", "/free", "Prefix") + aged("c", "2026-01-01", once, "/", "Prefix"), "", "/freely"},
		{"ingress", pathless("") + aged("b", "2026-01-01", once, "/", "Prefix"), "/", ""},
		{"ingress", aged("a", "2026-01-01", once, "/free", "Prefix") + pathless(""), "/free", "/"},
		{"ingress", strings.Replace(aged("a", "2026-01-01", "", "/", "Prefix"), "host: a.example, ", "", 1) + strings.Replace(pathless(once), "rules: [{host: a.example}]", "defaultBackend: {service: {name: s}}", 1), "/", ""},
		{"ingress", ofClass("a", "x", alias+"a.example", "b.example", "/") + ofClass("b", "x", once, "a.example", "/"), "/", ""},
		{"ingress", ofClass("a", "x", alias+"a.example", "b.example", "/") + ofClass("b", "x", once+", "+alias+"a.example", "c.example", "/"), "/", ""},
		{"ingress", ofClass("a", "x", alias+"a.example", "b.example", "/") + ofClass("b", "x", alias+"c.example", "b.example", "/free") + ofClass("c", "x", once, "*.example", "/"), "/free", ""},
		{"ingress", ofClass("a", "x", alias+"a.example", "b.example", "/") + ofClass("b", "x", once, "b.example", "/login"), "/login", "/"},
		{"ingress", aged("a", "2026-01-02", "", "/", "Prefix") + aged("b", "2026-01-01", once, "/", "Prefix"), "/", ""},
		{"ingress", aged("a", "2026-01-01", once, "/", "Prefix") + aged("b", "2026-01-02", "", "/", "Prefix"), "/", ""},
		{"ingress", aged("a", "2026-01-01", "", "/", "Prefix") + aged("b", "2026-01-02", once, "/", "Prefix"), "", "/"},
		{"ingress", aged("a", "2026-01-01", "", "/", "Prefix") + aged("b", "2026-01-01", once, "/", "Prefix"), "/", ""},
		{"ingress", aged("a", "2026-01-01", "", "/p", "ImplementationSpecific") + aged("b", "2026-01-02", once, "/p", "Prefix"), "", "/p/x"},
		{"ingress", aged("a", "2026-01-01", once, "/", "ImplementationSpecific") + aged("b", "2026-01-02", "", "/", "Prefix"), "/", ""},
		{"ingress", aged("a", "2026-01-01", "nginx.ingress.kubernetes.io/use-regex: 'true'", "/.*b", "ImplementationSpecific") + aged("b", "2026-01-02", once, "/a.*", "ImplementationSpecific"), "/ab", "/b"},
		{"traefik", fmt.Sprintf(other, "''", "parentRefs: []") + "---\n" + strings.ReplaceAll(route, "/`", "/free`"), "/free", ""},
		{"traefik", route + ofClass("a", "nginx", "", "a.example", "/free"), "/free", ""},
		{"traefik", strings.ReplaceAll(route, "/`", "/`) && Host(`a.example`") + strings.Replace(ofClass("a", "''", alias+"a.example", "very.long.name.example", "/very/long"), "/very/long", "/", 1), "/", ""},
		{"traefik", route + fmt.Sprintf(other, "internal", "parentRefs: []"), "/free", ""},
		{"traefik", route + fmt.Sprintf(other, "''", "tls: {}"), "/free", ""},
		{"traefik", route + fmt.Sprintf(other, "''", "entryPoints: [web]"), "/free", ""},
		{"traefik", route + fmt.Sprintf(other, "''", "parentRefs: []"), "/", "/free"},
		{"traefik", "http:\n  middlewares: {one: {rateLimit: {average: 1, period: 1h, burst: 1}}, all: {chain: {middlewares: [one]}}}\n  routers: {a: {rule: 'PathPrefix(`/`)', middlewares: [one, all]}}\n", "/", ""},
		{"traefik", strings.Replace(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "service: s, ", "", 1), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "/", "/free"},
		{"traefik", strings.ReplaceAll(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "service: s, p", "service: t, p"), "/free", ""},
		{"traefik", strings.ReplaceAll(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "service: s, p", "service: s@docker, p"), "/free", ""},
		{"traefik", strings.ReplaceAll(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "service: s, p", "service: ping@internal, p"), "/", "/free"},
		{"traefik", strings.Replace(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "s: {}", "s: {}, t: {weighted: {services: [{name: s}, {name: u}]}}", 1), "/", "/free"},
		{"traefik", strings.NewReplacer("s: {}", "s: {}, t: {weighted: {services: [{name: s}, {name: u}]}}", "service: s, p", "service: t, p").Replace(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []")), "/free", ""},
		{"traefik", strings.Replace(fmt.Sprintf(entry, "parentRefs: []", "parentRefs: []"), "services: {s: {}}", "x: y", 1), "/", "/free"},
		{"traefik", fmt.Sprintf(entry, "tls: {}", "parentRefs: []"), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "parentRefs: []", "tls: {}"), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "tls:", "tls: {}"), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "tls: {options: x}", "tls: {}"), "/", "/free"},
		{"traefik", fmt.Sprintf(entry, "entryPoints: [web]", "entryPoints: [web, secure]"), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "entryPoints: [web]", "parentRefs: []"), "/free", ""},
		{"traefik", fmt.Sprintf(entry, "entryPoints: [web, secure]", "entryPoints: [web]"), "/", "/free"},
		{"traefik", strings.ReplaceAll(fmt.Sprintf(entry, "entryPoints: [web]", "parentRefs: []"), "/free", "/"), "/", ""},
		{"traefik", fmt.Sprintf(traefik, "Path(`/p`)"), "/p/", ""},
		{"traefik", fmt.Sprintf(traefik, "Path(`/p/`)"), "/p", ""},
		{"traefik", fmt.Sprintf(traefik, "PathPrefix(`/p/`)"), "/p", "/p/x"},
		{"traefik", fmt.Sprintf(traefik, "PathPrefix(`/p`)"), "/x", "/p/"},
		{"traefik", fmt.Sprintf(traefik, "PathRegexp(`^/p$`)"), "/p/", ""},
		{"traefik", fmt.Sprintf(traefik, "PathRegexp(`^/p/`)"), "/p", "/p/x"},
		{"traefik", fmt.Sprintf(traefik, "PathRegexp(`^/p/.*`)"), "/p", "/p/x"},
		{"traefik", fmt.Sprintf(traefik, "PathRegexp(`^/p/([a-z]+)?$`)"), "/p", ""},
		{"kong", fmt.Sprintf(kong, "~/p/(.*)$"), "/p", "/p/x"},
		{"traefik", fmt.Sprintf(traefik, "Host(`a.example`, `b.example`)"), "/", ""},
		{"traefik", strings.Replace(fmt.Sprintf(traefik, "Host(`a.example`, `b.example`)"), "priority: 9", "priority: 9, ruleSyntax: v2", 1), "", "/"},
		{"traefik", fmt.Sprintf(traefik, "HostRegexp(`{x:[a-z]+}.example`)"), "/", ""},
		{"traefik", fmt.Sprintf(traefik, "Method(`GET`)"), "HEAD /", ""},
		{"traefik", fmt.Sprintf(inTraefik, ", traefik.ingress.kubernetes.io/router.priority: '99'", "/", "host: a.example, ", "/free", "Prefix"), "/free", ""},
		{"traefik", fmt.Sprintf(inTraefik, "", "/p", "", "/", "Prefix"), "/px", "/x"},
		{"traefik", fmt.Sprintf(inTraefik, "", "/", "", "/longer/than/the/host", "Prefix"), "/longer/than/the/host", ""},
		{"traefik", strings.Replace(fmt.Sprintf(inTraefik, "", "/", "host: a.example, ", "/free", "Prefix"), "host: a.example", "host: '*.example'", 1), "/free", ""},
		{"traefik", fmt.Sprintf(inTraefik, "", "/", "host: a.example, ", "/free", "Prefix"), "/fre", "/free"},
		{"traefik", fmt.Sprintf(inTraefik, "", "/", "host: a.example, ", "/free", "Exact"), "/free/x", ""},
		{"ingress", backend, "/other", ""},
		{"ingress", fmt.Sprintf(ingress, "/p", "Exact"), "/p/", ""},
		{"ingress", fmt.Sprintf(ingress, "/p", "Prefix"), "/px", "/p/"},
		{"ingress", fmt.Sprintf(ingress, "/p", "ImplementationSpecific"), "/px", "/p/x"},
		{"envoy", fmt.Sprintf(envoy, "path: /p"), "/p/", ""},
		{"envoy", fmt.Sprintf(envoy, "prefix: /p/"), "/p", "/p/x"},
		{"envoy", fmt.Sprintf(envoy, "path_separated_prefix: /p"), "/px", "/p"},
		{"envoy", fmt.Sprintf(envoy, "safe_regex: {regex: '/p/?'}"), "/p/x", "/p/"},
		{"envoy", fmt.Sprintf(envoy, "prefix: /, headers: [{name: ':method', string_match: {exact: GET}}]"), "HEAD /", ""},
		{"envoy", hosts("route_config", "['a.example:8080']", ""), "/", ""},
		{"envoy", hosts("route_config", "[a.example]", ""), "/", ""},
		{"envoy", hosts("route_config", "['*.example:8080', '*:8080']", ""), "/", ""},
		{"envoy", hosts("route_config", "[a.example, 'a.example:8080', 'b.example:*']", ""), "/", ""},
		{"envoy", hosts("route_config", "[a.example, 'a.example:*']", ""), "", "/"},
		{"envoy", hosts("route_config", "['a.*']", ""), "", "/"},
		{"envoy", hosts("route_config", "[a.example, 'b.example:80']", "ignorePortInHostMatching: true, "), "", "/"},
		{"envoy", "stripAnyHostPort: true\nhttp_filters: [{name: x}]\n" + hosts("route_config", "[a.example]", ""), "", "/"},
		{"envoy", fmt.Sprintf(envoy, "prefix: /, headers: [{name: ':authority', string_match: {exact: a.example}}]"), "/", ""},
		{"envoy", fmt.Sprintf(descriptors, ":path", "/login"), "/login/", ""},
		{"envoy", fmt.Sprintf(descriptors, ":authority", "a.example"), "/", ""},
		{"envoy", fmt.Sprintf(descriptors, ":method", "GET"), "HEAD /", ""},
		{"kong", fmt.Sprintf(kong, "/p/"), "/p", "/p/x"},
		{"kong", off + "- {name: off, enabled: false, routes: [{name: f, paths: [/free]}]}\n", "/free", ""},
		{"kong", "routes: [{name: f, paths: [/free], service: {name: off}}]\n" + off + "- {name: off, enabled: false}\n", "/free", ""},
		{"kong", off + "- {name: on, enabled: true, routes: [{name: f, paths: [/free]}]}\n", "/", "/free"},
		{"kong", off + "- {name: x, routes: [{name: f, headers: {X-V: ['~*^foo']}}, {name: g, expression: 'http.path ^= \"/free\"'}]}\n", "/free", ""},
		{"kong", fmt.Sprintf(kong, "~/p$"), "/p/", ""},
		{"kong", "_format_version: '2.1'\n" + fmt.Sprintf(ranked, "paths: [/p]", "hosts: ['*.example']"), "/p", ""},
		{"kong", "_format_version: '3.0'\n" + fmt.Sprintf(ranked, "paths: [/p]", "hosts: ['*.example']"), "/p", ""},
		{"kong", fmt.Sprintf(ranked, "hosts: ['a.example:8080']", "paths: [/]"), "/", ""},
		{"kong", fmt.Sprintf(ranked, "paths: [/p]", "hosts: [a.example]"), "/p", ""},
		{"kong", fmt.Sprintf(ranked, "methods: [GET]", "paths: [/p]"), "/p", "/"},
		{"kong", fmt.Sprintf(ranked, "hosts: ['*.example']", "paths: [/p]"), "/p", "/"},
		{"kong", fmt.Sprintf(ranked, "paths: [~/p]", "paths: [~/pp]"), "/pp", "/p"},
		{"kong", fmt.Sprintf(ranked, "paths: [~/pp]", "paths: [~/p]"), "/pp", ""},
	} {
		yaml, notes, err := converted(c.kind, c.text)
		if err != nil || notes.Lost() > 0 {
			t.Errorf("%s\n%v %v", c.text, err, notes)
			continue
		}
		for request, want := range map[string]int{c.limited: 1, c.free: 3} {
			if passed := ofThree(t, yaml, request); request != "" && passed != want {
				t.Errorf("%d of %s pass, want %d of 3, by\n%s\n%s\n%v", passed, request, want, c.text, yaml, notes)
			}
		}
	}
}

// ofThree returns how many of three requests pass: for a path, which may have a method and a host before it,
// or in turn for several with commas between.
func ofThree(t *testing.T, yaml, request string) (passed int) {
	t.Helper()
	file, err := rules.Decode("rules.yaml", []byte(yaml))
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	limits, err := policy.New(store, file.Rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns := strings.Split(request, ",")
	for i := range 3 {
		method, path, ok := strings.Cut(turns[i%len(turns)], " ")
		if !ok {
			method, path = "GET", method
		}
		host, path, _ := strings.Cut(path, "/")
		var result policy.Result
		if err := limits.Decide(t.Context(), policy.Map{"path": "/" + path, "method": method, "host": cmp.Or(host, "a.example"), "ip": "192.0.2.1", "header.x-envoy-downstream-service-cluster": "adm", "header.x-inner": "1"}, 1, &result); err != nil {
			t.Fatal(err)
		}
		if result.Decision.Allowed {
			passed++
		}
	}
	return passed
}

// A kongCounter is what a plugin counts.
type kongCounter struct {
	by               string
	sliding, penalty bool
	limit, window    int64 // the latter in seconds
	counts           map[string]int64
}

func (p *kongCounter) passes(a asked, service string) bool {
	id := map[string]string{"consumer": a.consumer, "header": a.header, "service": service}[p.by]
	if id == "" {
		id = "address " + a.ip
	}
	length := p.window * 1e9
	window := a.at / length
	key := func(window int64) string { return fmt.Sprint(id, " ", window) }
	rate := new(big.Rat).SetInt64(p.counts[key(window)] + 1)
	if p.sliding {
		rate.Add(rate, big.NewRat(p.counts[key(window-1)]*(length-a.at%length), length))
	}
	passes := rate.Cmp(big.NewRat(p.limit, 1)) <= 0
	if passes || p.penalty {
		p.counts[key(window)]++
	}
	return passes
}

// TestEnvoyLocal: the configuration of a route goes before that of its virtual host, and
// this before that of the filter. The first route that matches has a request. A bucket
// holds max_tokens and gets tokens_per_fill in every fill_interval; one of a descriptor
// without a value is of each value, and with always_consume_default_token_bucket false,
// a request that has such a descriptor takes nothing from the other.
func TestEnvoyLocal(t *testing.T) {
	type config struct {
		max, fill int64
		every     time.Duration
		keyed     bool // by X-Key
		buckets   map[string]*bucket
	}
	judge(t, func(r *rand.Rand) program {
		one := func(often int, indent string) (*config, string) {
			if r.IntN(often) > 0 {
				return nil, ""
			}
			c := &config{1 + r.Int64N(5), 1 + r.Int64N(5), time.Duration(1+r.IntN(30)) * time.Second, r.IntN(3) == 0, map[string]*bucket{}}
			bucket := fmt.Sprintf("token_bucket: {max_tokens: %d, tokens_per_fill: %d, fill_interval: %v}", c.max, c.fill, c.every)
			text := `{"@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: x, filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}, ` + bucket
			if c.keyed {
				text += ", always_consume_default_token_bucket: false, rate_limits: [{actions: [{request_headers: {header_name: x-key, descriptor_key: k}}]}], descriptors: [{entries: [{key: k}], " + bucket + "}]"
			}
			return c, indent + text + "}\n"
		}
		type route struct {
			prefix string
			own    *config
		}
		type host struct {
			domain string
			own    *config
			routes []route
		}
		var text strings.Builder
		base, own := one(2, "  typed_config: ")
		if base == nil {
			own = "  typed_config: {}\n"
		}
		text.WriteString("http_filters:\n- name: envoy.filters.http.local_ratelimit\n" + own + "route_config:\n  ignore_port_in_host_matching: true\n  virtual_hosts:\n")
		var hosts []host
		for _, domain := range []string{"*", "a.example.com"} {
			h := host{domain: domain}
			h.own, own = one(3, "")
			fmt.Fprintf(&text, "  - domains: [%q]\n    typed_per_filter_config: {envoy.filters.http.local_ratelimit: %s}\n    routes:\n", domain, strings.TrimSpace(own))
			for range 1 + r.IntN(3) {
				o := route{prefix: pick(r, "/api/v1", "/api", "/", "/login")}
				o.own, own = one(2, "")
				fmt.Fprintf(&text, "    - match: {prefix: %s}\n      typed_per_filter_config: {envoy.filters.http.local_ratelimit: %s}\n", o.prefix, strings.TrimSpace(own))
				h.routes = append(h.routes, o)
			}
			hosts = append(hosts, h)
		}
		return program{"envoy", text.String(), func(a asked) bool {
			h := hosts[0]
			if a.host == hosts[1].domain {
				h = hosts[1]
			}
			c := base
			if i := slices.IndexFunc(h.routes, func(o route) bool { return strings.HasPrefix(a.path, o.prefix) }); i >= 0 {
				if h.own != nil {
					c = h.own
				}
				if h.routes[i].own != nil {
					c = h.routes[i].own
				}
			}
			switch {
			case c == nil:
				return true
			case c.keyed && a.header != "":
				return take(filled(c.buckets, "key "+a.header, a.at, c.max, c.fill, c.every))
			}
			return take(filled(c.buckets, "", a.at, c.max, c.fill, c.every))
		}}
	})
}

// FuzzConvert: whatever a configuration is, what is made of it are rules, and making them
// again makes the same.
func FuzzConvert(f *testing.F) {
	kinds := []string{"ingress", "traefik", "envoy", "kong"}
	for i, kind := range kinds {
		for _, config := range configurations(f, kind) {
			f.Add(byte(i), config)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, text string) {
		name := kinds[int(kind)%len(kinds)]
		yaml, notes, err := converted(name, text)
		if err != nil {
			return
		}
		if _, err := rules.Decode("rules.yaml", []byte(yaml)); err != nil {
			t.Errorf("%v in\n%s", err, yaml)
		}
		again, more, err := converted(name, text)
		if err != nil || again != yaml || !slices.Equal(notes, more) {
			t.Errorf("another time: %v\n%s\n%s", err, yaml, again)
		}
	})
}
