package gateways

import (
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// labels returns the labels of a compose file as a tree. A label has the path and the value,
// as in traefik.http.middlewares.NAME.ratelimit.average=30; a list has commas in its value.
func (t *traefik) labels(n node) node {
	root := &rulesfile.Node{Kind: rulesfile.MapKind}
	for _, service := range n.get("services").fields() {
		own := &rulesfile.Node{Kind: rulesfile.MapKind}
		set := func(name string, value node) {
			setLabel(root, name, value)
			setLabel(own, name, value)
		}
		for _, all := range []node{service.value.get("labels"), service.value.get("deploy", "labels")} {
			for _, f := range all.fields() {
				set(f.name, f.value)
			}
			for _, item := range all.list() {
				if name, value, ok := strings.Cut(item.text(), "="); ok {
					set(name, node{&rulesfile.Node{Kind: rulesfile.String, Value: value, Line: item.Line}, item.file})
				}
			}
			if all.there() {
				t.known[all.Node] = true
			}
		}
		t.container(node{own, n.file}.get("traefik"))
	}
	return node{root, n.file}.get("traefik")
}

// listed are the names of labels that are lists.
var listed = []string{"middlewares", "entrypoints", "excludedips"}

func setLabel(at *rulesfile.Node, name string, value node) {
	path := strings.Split(strings.TrimSpace(name), ".")
	if !strings.EqualFold(path[0], "traefik") {
		return
	}
	path[0] = "traefik"
	for _, word := range path {
		i := slices.IndexFunc(at.Fields, func(f rulesfile.Field) bool { return strings.EqualFold(f.Name, word) })
		if i < 0 {
			i = len(at.Fields)
			at.Fields = append(at.Fields, rulesfile.Field{Name: word, Line: value.Line, Value: &rulesfile.Node{Line: value.Line}})
		}
		at.Kind, at = rulesfile.MapKind, at.Fields[i].Value
	}
	at.Kind, at.Value = rulesfile.String, strings.ReplaceAll(value.text(), "$$", "$") // compose writes $ as $$
	if slices.Contains(listed, strings.ToLower(path[len(path)-1])) {
		at.Kind, at.Items = rulesfile.List, nil
		for one := range strings.SplitSeq(at.Value, ",") {
			at.Items = append(at.Items, &rulesfile.Node{Kind: rulesfile.String, Value: strings.TrimSpace(one), Line: value.Line})
		}
	}
}

// ofLimits matches the words of Traefik's limits.
var ofLimits = regexp.MustCompile(`(?i)ratelimit|inflightreq|extensionref|traefik\.http\.|[._]http[._]middlewares`)

// ofEntries matches the arguments and variables by which entry points take clients from what stands in front.
var ofEntries = regexp.MustCompile(`(?i)(traefik_)?entrypoints[._]\S*proxyprotocol`)

// unread notes where words of limits stand in nodes that were not read.
func (t *traefik) unread(n node) {
	each(n, func(n node) bool {
		if t.known[n.Node] {
			return false
		}
		t.word(n, n.text())
		for _, f := range n.fields() {
			if !t.known[f.value.Node] {
				t.word(f.value, f.name)
			}
		}
		return true
	})
}

func (t *traefik) word(at node, text string) {
	if word := ofLimits.FindString(text); word != "" {
		t.notes.Lose(at.where(), "%s stands where this reads no limits: NOT KEPT, with the limit that it may be", word)
	}
}

// A reference is a reference of a Gateway API route to an object of Traefik.
type reference struct {
	at   node
	name string // the name of a middleware
}

// references reads the references of a route.
func (t *traefik) references(n node, space string) {
	each(n.get("spec"), func(n node) bool {
		if n.get("type").text() == "ExtensionRef" {
			t.refs = append(t.refs, reference{n, space + "-" + n.get("extensionRef", "name").text() + "@kubernetescrd"})
		}
		return true
	})
}

// routes notes the limits of Gateway API routes as lost, since it does not read their matches.
func (t *traefik) routes() {
	for _, r := range t.refs {
		if m, known := t.middlewares[r.name]; !known || t.mayLimit(m) {
			t.notes.Lose(r.at.where(), "the ExtensionRef to %s is NOT KEPT, with the limit that it may have: Gateway API routes are not read", r.name)
		}
	}
}

// mayLimit reports whether a middleware may be a limit.
func (t *traefik) mayLimit(m node) bool {
	return m.anyCase("rateLimit").there() || m.anyCase("inFlightReq").there() || m.anyCase("chain").there() || m.anyCase("plugin").there()
}
