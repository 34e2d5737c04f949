package gateways

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/nginxrules"
)

// annotation is the prefix of ingress-nginx's annotations.
const annotation = "nginx.ingress.kubernetes.io/"

// otherPrefix matches annotations of limits with another prefix, as in a controller with
// --annotations-prefix.
var otherPrefix = regexp.MustCompile(`/(limit-(rps|rpm|connections)|global-rate-limit|(allow|white|deny)list-source-range)$`)

// An ingress is an Ingress of Kubernetes.
type ingress struct {
	name   string
	class  string
	age    time.Time // when it was made, if the file says so
	at     node
	canary bool
	notes  map[string]node // annotations of ingress-nginx
	hosts  []string        // of its rules
	paths  []ingressPath
	lacks  string // an annotation for its servers that is not known
}

// The annotations that are read, or change neither which requests a path has nor its limits.
const (
	limitNotes = `limit-rps limit-rpm limit-burst-multiplier limit-connections limit-allowlist limit-whitelist`
	otherNotes = `*list-source-range server-alias use-regex rewrite-target canary* *-snippet affinity* app-root auth-* backend-protocol base-url-scheme
		add-base-url client-body-buffer-size connection-proxy-header cors-* custom-headers custom-http-errors default-backend
		disable-proxy-intercept-errors enable-* fastcgi-* force-ssl-redirect from-to-www-redirect grpc-backend http2-push-preload influxdb-*
		load-balance lua-resty-waf* mirror-* modsecurity-* opentelemetry-* opentracing-* permanent-redirect* preserve-trailing-slash proxy-*
		relative-redirects satisfy secure-* service-upstream session-cookie-* ssl-* temporal-redirect* upstream-* use-port-in-redirects x-forwarded-prefix`
)

// An ingressPath is a path of a host: a location of nginx.
type ingressPath struct {
	of         *ingress
	server            // where it is
	path, kind string // without a path: all requests of the host that no other path takes
	own        bool   // an annotation makes it a regular expression, if the server has it
	regex      bool   // its server has regular expressions, perhaps if unsure
	unsure     bool
	catchAll   bool // of an Ingress without rules: it goes before older ones
	at         node
}

// A server is a host of the Ingresses of one class, for controllers read no other class.
type server struct{ class, host string }

// IngressNginx converts the annotations of ingress-nginx.
func IngressNginx(docs []Document) ([]byte, importers.Notes, error) {
	c := newConverter(docs)
	settings, all := map[string]node{}, []*ingress(nil)
	for _, d := range docs {
		c.fronted(d.root, realIP)
		if d.root.get("kind").text() == "Ingress" {
			all = append(all, ingressOf(d.root))
			continue
		}
		c.ofNginxInc(d.root)
		if d.root.get("kind").text() == "ConfigMap" && ofController.MatchString(d.root.get("metadata", "name").text()) {
			c.configures(d.root.get("data"))
		}
		each(d.root, func(n node) bool { // a ConfigMap of the controller, or values of Helm
			c.narrowed(n, n.text())
			c.configures(n.get("controller", "config"))
			for _, f := range n.fields() {
				c.narrowed(f.value, "--"+f.name+"="+f.value.text())
				c.controls(f)
				settings[f.name] = f.value
			}
			return true
		})
	}
	slices.SortStableFunc(all, func(a, b *ingress) int { // as the controller takes them
		if made := a.age.Compare(b.age); made != 0 || a.age.IsZero() {
			return made
		}
		return strings.Compare(b.name, a.name)
	})
	for _, in := range all {
		in.lacks = c.otherAnnotations(in)
	}
	paths := ordered(c.aliased(all))
	c.roots(all, paths)
	ties, lacks := c.ties(paths), map[server]string{}
	for _, p := range paths {
		if p.of != nil {
			lacks[p.server] = cmp.Or(lacks[p.server], p.of.lacks)
		}
	}
	for _, p := range paths {
		one := place{when: c.location(p), at: p.at, class: p.class, lacks: lacks[p.server], moves: p.moves()}
		if p.unsure || p.regex && p.path != "/" {
			one.among = fmt.Sprintf("%q", p.server)
		}
		if p.of != nil {
			one.tie, one.limits = ties[p.spot()], p.of.limits()
		}
		c.places = append(c.places, one)
	}
	for i, p := range paths {
		c.places[i].folds = c.file.FoldCase && !p.regex && strings.ToUpper(p.path) != strings.ToLower(p.path)
	}
	for _, in := range all {
		var at []int
		for i, p := range paths {
			if p.of == in {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			c.ingress(in, at)
		}
	}
	for _, a := range c.added {
		c.denials(a.rule.Limits, settings, paths[a.in[0]].of.notes["custom-http-errors"])
	}
	return c.done()
}

// ofNginxInc notes the limits in an object of nginx's own controller.
func (c *converter) ofNginxInc(object node) {
	if strings.HasPrefix(object.get("apiVersion").text(), "k8s.nginx.org/") {
		c.foreign(object, "rateLimit policies")
	}
}

// roots notes the hosts without a path /: what no path takes has the limits of the Ingress that has the host first.
func (c *converter) roots(all []*ingress, paths []ingressPath) {
	seen := map[server]bool{}
	for _, in := range all {
		limited := slices.ContainsFunc(slices.Collect(maps.Keys(in.notes)), func(name string) bool {
			return importers.OneOf(name, "limit-rps limit-rpm limit-connections *-source-range")
		})
		for _, host := range in.hosts {
			at := server{in.class, host}
			if !in.canary && !seen[at] && host != "" && limited && !slices.ContainsFunc(paths, func(p ingressPath) bool {
				return p.server == at && p.path == "/" && p.kind != "Exact"
			}) {
				c.notes.Say(in.at.where(), "what no path of %s takes has these limits there, too, at the default backend: here it has none", host)
			}
			seen[at] = seen[at] || !in.canary
		}
	}
}

// realIP matches the directives of a snippet by which nginx takes clients from what stands in front.
var realIP = regexp.MustCompile(`\b(set_)?real_ip_\w+`)

// narrowing matches an argument of the controller by which it takes not every Ingress, or other annotations.
var narrowing = regexp.MustCompile(`--(watch-namespace(-selector)?|disable-catch-all|annotations-prefix)([= ]\S*|$)`)

// narrowed notes such an argument.
func (c *converter) narrowed(at node, text string) {
	if arg := narrowing.FindStringSubmatch(text); arg != nil && arg[3] != "=false" && (arg[3] != "=" || arg[1] == "disable-catch-all") {
		c.notes.Lose(at.where(), "%s is NOT KEPT: Ingresses or annotations that the controller leaves out count here", arg[1])
	}
}

// The settings of the controller that are read, or do not change limits.
const settingNames = `*-snippet add-headers allow-* annotation* access-log-* http-access-log-path stream-access-log-path backend-* bind-address* brotli-*
	client-* compute-full-forwarded-for custom-http-errors debug-connections default-* denylist-source-range disable-* enable-* error-log-*
	force-ssl-redirect forwarded-* generate-request-id geoip* global-allowed* global-auth-* grpc-* gzip-* hide-headers hsts* http-redirect-code http2-* http3-*
	ignore-invalid-headers jaeger-* zipkin-* datadog-* keep-alive* large-client-header-buffers limit-rate* limit-conn-status-code limit-req-status-code
		load-balance
	limit-conn-zone-variable log-format-* lua-shared-dicts map-hash-bucket-size max-worker-* nginx-status-* no-* opentelemetry-* opentracing-* otel-* otlp-* plugins
	proxy-* relative-* retry-non-idempotent reuse-port server-name-* server-tokens service-upstream skip-access-log-urls ssl-* strict-* syslog-*
	upstream-* use-* variables-hash-* whitelist-source-range worker-*`

// ofController matches names of the controller's ConfigMap.
var ofController = regexp.MustCompile(`ingress|nginx-(configuration|load-balancer)`)

// configures notes the settings of the controller that are not known. Those that begin with a digit are ports of TCP.
func (c *converter) configures(settings node) {
	for _, f := range settings.fields() {
		if (f.name[:1] < "0" || f.name[:1] > "9") && !importers.OneOf(f.name, settingNames) {
			c.unknown("setting", f.name, f.value)
		}
	}
}

// controls notes a setting of the controller that changes limits.
func (c *converter) controls(f field) {
	switch {
	case hasLimits.MatchString(f.value.text()), leads(f.name, f.value.text()) != "", strings.HasSuffix(f.name, "list-source-range"):
		c.notes.Lose(f.value.where(), "%s of all Ingresses is NOT KEPT", f.name)
	case f.name == "limit-conn-zone-variable":
		if v := f.value.text(); v != "$binary_remote_addr" && v != "$remote_addr" {
			c.notes.Lose(f.value.where(), "limit-conn-zone-variable is NOT KEPT: limits count by %s there, here by address", v)
		}
	case importers.OneOf(f.name, "use-proxy-protocol use-forwarded-headers enable-real-ip") && f.value.yes():
		c.proxied = append(c.proxied, setting{f.name, f.value})
	}
}

// denials notes how the controller answers those whom limits of an Ingress with custom-http-errors deny.
func (c *converter) denials(limits []string, settings map[string]node, own node) {
	for _, limit := range limits {
		name := "limit-req-status-code"
		if strings.HasSuffix(limit, "in flight") {
			name = "limit-conn-status-code"
		}
		code := cmp.Or(settings[name].text(), "503")
		if code != "429" {
			c.notes.Say("", "%s of the controller is %s: a denial is 429 here, unless rules have denied: {status: %s}", name, code, code)
		}
		for _, errors := range []node{settings["custom-http-errors"], own} {
			if slices.Contains(strings.Split(strings.ReplaceAll(errors.text(), " ", ""), ","), code) {
				c.notes.Lose(errors.where(), "custom-http-errors is NOT KEPT for %s: the default backend answers a denial there", code)
			}
		}
	}
}

// spot returns a text for the path, which the first Ingress that has it gets.
func (p *ingressPath) spot() string {
	kind := p.kind
	if p.regex {
		kind = ""
	}
	return fmt.Sprintf("%q %q %q %s", p.class, p.host, p.path, kind)
}

// limits returns the annotations of limits as a text.
func (in *ingress) limits() string {
	var all []string
	for name, n := range in.notes {
		if strings.Contains(name, "limit") || strings.HasSuffix(name, "source-range") {
			all = append(all, name+" "+n.text())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// ties returns the spots of which the files do not say which Ingress has them, and notes those with
// different limits.
func (c *converter) ties(paths []ingressPath) map[string]string {
	ties, first := map[string]string{}, map[string]*ingressPath{}
	for i := range paths {
		p := &paths[i]
		if p.of == nil {
			continue
		}
		spot := p.spot()
		o := first[spot]
		if o == nil {
			first[spot] = p
		} else if o.of != p.of && o.of.age.IsZero() { // those without an age come first
			ties[spot] = spot
			if o.of.limits() != p.of.limits() {
				c.notes.Lose(p.at.where(), "without metadata.creationTimestamp, which of this path and %s the controller takes is NOT KEPT: the limits of both hold", o.at.where())
			}
		}
	}
	return ties
}

// ingressOf reads an Ingress.
func ingressOf(n node) *ingress {
	in := &ingress{name: objectName(n), class: classOf(n), at: n, notes: map[string]node{}}
	in.age, _ = time.Parse(time.RFC3339, n.get("metadata", "creationTimestamp").text())
	for _, f := range n.get("metadata", "annotations").fields() {
		if name, ok := strings.CutPrefix(f.name, annotation); ok {
			in.notes[name] = f.value
		} else if strings.HasPrefix(f.name, "nginx.org/limit-req") || otherPrefix.MatchString(f.name) {
			in.notes[f.name] = f.value
		}
	}
	in.canary = in.notes["canary"].yes()
	target := in.notes["rewrite-target"].text()
	add := func(host string, n node, path, kind string) {
		own := in.notes["use-regex"].yes() || target != "" && target+path != "//" // the location / gets the target, too
		in.paths = append(in.paths, ingressPath{of: in, server: server{in.class, host}, path: path, kind: kind, own: own, at: n})
	}
	for _, r := range n.get("spec", "rules").list() {
		host := r.get("host").text()
		in.hosts = append(in.hosts, host)
		for _, p := range r.get("http", "paths").list() {
			path := p.get("path").text()
			switch {
			case p.get("backend", "resource").there(): // no controller takes it, but for a host
				add(host, p, "/", besidePaths)
			case path == "":
				add(host, p, "/", p.get("pathType").text())
			default:
				add(host, p, path, p.get("pathType").text())
			}
		}
		if len(r.get("http", "paths").list()) == 0 { // any other path / replaces it
			add(host, r, "/", besidePaths)
		}
	}
	for _, name := range []string{"defaultBackend", "backend"} {
		b := n.get("spec", name)
		switch {
		case !b.there(), b.get("resource").there():
		case len(in.hosts) == 0:
			add("", b, "/", "Prefix")
			in.paths[len(in.paths)-1].catchAll = true
		default: // it takes what no path of these hosts takes, and nothing of others
			for _, host := range in.hosts {
				add(host, b, "/", besidePaths)
			}
		}
	}
	return in
}

// besidePaths is the kind of the path / of a defaultBackend beside rules. It comes after all other paths.
const besidePaths = "default"

// objectName returns the name of an object of Kubernetes, with its namespace if it has one.
func objectName(n node) string {
	return strings.Trim(n.get("metadata", "namespace").text()+"."+n.get("metadata", "name").text(), ".")
}

// classOf returns the class of an object of Kubernetes, "" without one.
func classOf(n node) string {
	return strings.TrimSpace(n.get("metadata", "annotations", "kubernetes.io/ingress.class").text() + " " + n.get("spec", "ingressClassName").text())
}

// aliases returns the names that an Ingress gives the servers of its hosts, too.
func (in *ingress) aliases() (names []string) {
	for name := range strings.SplitSeq(in.notes["server-alias"].text(), ",") {
		if name = strings.TrimSpace(name); name != "" && !in.canary {
			names = append(names, name)
		}
	}
	return names
}

// aliased returns the paths of all Ingresses, and those of each server at its aliases, too. The host
// of a server is no alias. Where several servers claim one, or several Ingresses give a server
// different ones, it is not sure who has it: it takes nothing from others.
func (c *converter) aliased(all []*ingress) (paths []ingressPath) {
	hosts, given := map[server]bool{}, map[server][][]string{}
	owners := map[server][]string{} // the hosts that have a name, in lower case
	own := func(class, name, host string) {
		if at := (server{class, strings.ToLower(name)}); !slices.Contains(owners[at], host) {
			owners[at] = append(owners[at], host)
		}
	}
	for _, in := range all {
		names := in.aliases()
		for _, host := range in.hosts {
			at := server{in.class, host}
			hosts[at] = hosts[at] || !in.canary
			own(in.class, host, host)
			for _, name := range names {
				own(in.class, name, host)
			}
			if len(names) > 0 {
				given[at] = append(given[at], names)
			}
		}
	}
	for _, in := range all {
		for _, p := range in.paths {
			paths = append(paths, p)
			lists := given[p.server]
			names := slices.Concat(lists...)
			differ := slices.ContainsFunc(lists, func(l []string) bool { return !slices.Equal(l, lists[0]) })
			for i, name := range names {
				if name == p.host || slices.Contains(names[:i], name) {
					continue
				}
				if hosts[server{p.class, name}] {
					c.notes.Say(in.at.where(), "the server-alias %s is left out, as there: it is the host of an Ingress", name)
					continue
				}
				alias := p
				if alias.host = name; differ || len(owners[server{p.class, strings.ToLower(name)}]) > 1 {
					alias.class += " as " + p.host
				}
				paths = append(paths, alias)
			}
		}
	}
	return paths
}

// regexes returns the servers that have regular expressions, since a path is one, and those of which it is not
// sure: another Ingress may have the path, or it is of no location.
func regexes(all []ingressPath) (regex, unsure map[server]bool) {
	regex, unsure = map[server]bool{}, map[server]bool{}
	for _, p := range all {
		regex[p.server] = regex[p.server] || p.own
	}
	for at, is := range regex {
		if !is {
			continue
		}
		sure := slices.ContainsFunc(all, func(p ingressPath) bool {
			return p.server == at && !slices.ContainsFunc(all, func(o ingressPath) bool {
				return o.server == at && o.path == p.path && (!o.own || o.kind == besidePaths || o.of.notes["rewrite-target"].text() == o.path)
			})
		})
		root := slices.ContainsFunc(all, func(p ingressPath) bool { return p.server == at && p.path == "/" && p.kind == "Exact" })
		unsure[at] = !sure || root
	}
	return regex, unsure
}

// moves reports whether a path among regular expressions has two locations: /api/ and, unless an Exact path
// has it, /api. Others may come between.
func (p *ingressPath) moves() bool {
	return p.unsure || p.regex && !p.own && p.kind == "Prefix" && p.path != "/"
}

// ordered sorts paths as nginx tries them, by host, then the longer first. It adds a last one
// for each host: a request that no path of its host takes goes to no other host.
func ordered(all []ingressPath) []ingressPath {
	all = slices.DeleteFunc(all, func(p ingressPath) bool { return p.of.canary })
	regex, unsure := regexes(all)
	hosts := map[server]bool{}
	for _, p := range all {
		if p.host != "" && !hosts[p.server] {
			all = append(all, ingressPath{server: p.server, at: p.at})
		}
		hosts[p.server] = true
	}
	for i := range all {
		all[i].regex = regex[all[i].server] && all[i].path != ""
		all[i].unsure = all[i].regex && unsure[all[i].server]
		if all[i].kind == "" || all[i].kind == "ImplementationSpecific" { // as the controller reads it
			all[i].kind = "Prefix"
		}
	}
	exact := func(p ingressPath) bool { return p.kind == "Exact" && !p.regex }
	slices.SortStableFunc(all, func(a, b ingressPath) int {
		if a.host != b.host {
			star := func(host string) int { return strings.Count(host, "*") }
			switch {
			case a.host == "" || b.host == "":
				return len(b.host) - len(a.host)
			case star(a.host) != star(b.host):
				return star(a.host) - star(b.host)
			case len(a.host) != len(b.host):
				return len(b.host) - len(a.host)
			}
			return strings.Compare(a.host, b.host)
		}
		if exact(a) != exact(b) {
			if exact(a) {
				return -1
			}
			return 1
		}
		if len(a.path) != len(b.path) {
			return len(b.path) - len(a.path)
		}
		if (a.kind == besidePaths) != (b.kind == besidePaths) {
			if a.kind == besidePaths {
				return 1
			}
			return -1
		}
		if a.catchAll != b.catchAll {
			if a.catchAll {
				return -1
			}
			return 1
		}
		if a.regex && b.regex {
			return strings.Compare(b.path, a.path)
		}
		return 0
	})
	return all
}

// location returns the conditions of a path, nil if rules cannot express them.
func (c *converter) location(p ingressPath) [][]importers.Cond {
	when := [][]importers.Cond{{}}
	if p.host != "" {
		host := hostIs(p.host)
		if host == nil {
			return nil
		}
		when = [][]importers.Cond{host}
	}
	if p.path == "" || p.kind == besidePaths {
		return when
	}
	var paths [][]importers.Cond
	if p.regex {
		paths = append(paths, c.finds(p))
	}
	if !p.regex || p.unsure {
		paths = append(paths, plain(p))
	}
	if slices.ContainsFunc(paths, func(path []importers.Cond) bool { return path == nil }) {
		if !p.of.limited() {
			c.notes.Say(p.at.where(), "path %s is left out: rules cannot name its paths. It has no limits of its own; those around it hold here too", p.path)
		}
		return nil
	}
	return and(when, paths)
}

// finds returns the condition of a path that is a regular expression.
func (c *converter) finds(p ingressPath) (path []importers.Cond) {
	if head, below := strings.CutSuffix(p.path, "(/|$)(.*)"); below {
		path = pathBelow(head)
	} else {
		path = c.pathFinds(p.at, "^"+p.path, true)
	}
	if len(path) > 0 && !c.file.FoldCase {
		c.file.FoldCase = true
		c.notes.Say(p.at.where(), "upper and lower case make no difference in any path of these rules: this host has regular expressions, in which they make none")
	}
	return path
}

// plain returns the condition of a path that is no regular expression.
func plain(p ingressPath) []importers.Cond {
	switch p.kind {
	case "Exact":
		return exactPath(p.path)
	case "Prefix":
		return pathBelow(p.path)
	}
	return pathBegins(p.path)
}

// limited reports whether the Ingress may have limits.
func (in *ingress) limited() bool {
	return in.limits() != ""
}

// ingress makes the rules of an Ingress at places, by their indexes.
func (c *converter) ingress(in *ingress, at []int) {
	if in.canary {
		return
	}
	number := func(name string, without int64) int64 {
		n := in.notes[name]
		if !n.there() {
			return without
		}
		v, err := strconv.ParseInt(n.text(), 10, 32)
		if err != nil {
			c.notes.Lose(n.where(), "%s %q is NOT KEPT: it is no whole number", name, n.text())
			return without
		}
		return v
	}
	r := importers.Rule{Name: in.name, Key: []string{"ip"}, IPv6Prefix: 128}
	times := number("limit-burst-multiplier", 5)
	var from node
	for _, unit := range []string{"s", "m"} {
		if rate := number("limit-rp"+unit, 0); rate > 0 {
			from = in.notes["limit-rp"+unit]
			r.Limits = append(r.Limits, fmt.Sprintf("%d/%s burst %d", rate, unit, max(0, rate*times)+1))
		}
	}
	if n := number("limit-connections", 0); n > 0 {
		from = in.notes["limit-connections"]
		r.Limits = append(r.Limits, fmt.Sprintf("%d in flight", n))
	}
	for _, name := range []string{"limit-allowlist", "limit-whitelist"} {
		if n := in.notes[name]; n.text() != "" {
			if ips, ok := ranges(strings.Split(n.text(), ",")); ok {
				r.Unless = append(r.Unless, []importers.Cond{is("ip", ips...)})
			} else {
				c.notes.Say(n.where(), "%s is left out: it is no list of addresses and ranges", name)
			}
			break // the second is the older name of the first
		}
	}
	c.sources(in, at)
	c.add(from, r, at)
}

// sources makes rules that block addresses by the lists of an Ingress.
func (c *converter) sources(in *ingress, at []int) {
	for _, name := range []string{"denylist-source-range", "allowlist-source-range", "whitelist-source-range"} {
		n := in.notes[name]
		if n.text() == "" {
			continue
		}
		ips, ok := ranges(strings.Split(n.text(), ","))
		block := importers.Rule{Name: in.name + "-" + name, Block: true}
		switch {
		case !ok:
			c.notes.Lose(n.where(), "%s is NOT KEPT: it is no list of addresses and ranges", name)
		case in.notes["satisfy"].text() == "any":
			c.notes.Lose(n.where(), "%s is NOT KEPT beside satisfy: any, by which others pass with a password", name)
		case name == "denylist-source-range":
			c.add(n, block, at, is("ip", ips...))
		default:
			block.Unless = [][]importers.Cond{{is("ip", ips...)}}
			c.add(n, block, at)
		}
	}
}

// otherAnnotations notes the annotations of limits that are not kept, and returns what the paths of its hosts lack.
func (c *converter) otherAnnotations(in *ingress) (lacks string) {
	if in.canary {
		return ""
	}
	var names []string
	for name := range in.notes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n := in.notes[name]
		switch {
		case importers.OneOf(name, limitNotes):
		case name == "limit-rate" || name == "limit-rate-after":
			c.notes.Say(n.where(), "%s is left out: it bounds bytes of an answer, stint bounds requests", name)
		case strings.HasPrefix(name, "limit-") && strings.HasSuffix(name, "-code"):
			c.notes.Say(n.where(), "%s is left out: a denial is 429 here", name)
		case otherPrefix.MatchString(name):
			c.notes.Lose(n.where(), "%s is NOT KEPT: this reads what begins with %s. If your controller has --annotations-prefix, write that in its place", name, annotation)
		case strings.HasPrefix(name, "nginx.org/"):
			c.notes.Lose(n.where(), "%s is NOT KEPT: it is one of another controller", name)
		case strings.HasPrefix(name, "global-rate-limit"), strings.HasPrefix(name, "limit-"):
			c.notes.Lose(n.where(), "%s is NOT KEPT", name)
		case hasLimits.MatchString(n.text()):
			c.notes.Lose(n.where(), "%s has limits, which are NOT KEPT", name)
		case leads(name, n.text()) != "":
			lacks = c.unknown("way of", name+" by "+leads(name, n.text()), n)
		case !importers.OneOf(name, otherNotes):
			lacks = c.unknown("annotation", name, n)
		}
	}
	return lacks
}

// leads returns the directive of a snippet that may lead a request to another location; "" if there is none.
func leads(name, snippet string) string {
	if !strings.HasSuffix(name, "-snippet") || importers.OneOf(name, "auth-snippet modsecurity-snippet main-snippet stream-snippet") {
		return ""
	}
	return nginxrules.Leads(snippet, name == "server-snippet")
}

// hasLimits matches limits in nginx's configuration.
var hasLimits = regexp.MustCompile(`(^|[\s;{}])limit_(req|conn)(_zone|_dry_run)?\s`)
