package envoyrules_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
)

// odd are texts that are no names of attributes, or look like what rules have beside them.
var odd = []string{
	"Acme Inc", "x*y", "*", "(a|b)", "a,b", "a", "b", `a\`, `a\,b`, "user", "user.2", "path", "PATH", "entry.path", "descriptor.2", "descriptor.keys",
	"domain", "é", "ja\tno", "\x00", "\u2028", "'\"", "{}", "%41", "true", "1", "-", ".", "header", "body./x", strings.Repeat("long-", 60),
	"user-agent|Mozilla/5.0 (X11)", "x-user|^premium-.*$",
}

func scalar(kind rulesfile.Kind, value string) *rulesfile.Node {
	return &rulesfile.Node{Kind: kind, Value: value}
}

func object(fields ...any) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.MapKind}
	for i := 0; i < len(fields); i += 2 {
		n.Fields = append(n.Fields, rulesfile.Field{Name: fields[i].(string), Value: fields[i+1].(*rulesfile.Node)})
	}
	return n
}

// entry is a descriptor, with those below it or with a limit by the day.
func entry(key, value string, count int, below ...*rulesfile.Node) *rulesfile.Node {
	n := object("key", scalar(rulesfile.String, key), "value", scalar(rulesfile.String, value))
	if count > 0 {
		limit := object("unit", scalar(rulesfile.String, "day"), "requests_per_unit", scalar(rulesfile.Number, fmt.Sprint(count)))
		n.Fields = append(n.Fields, rulesfile.Field{Name: "rate_limit", Value: limit})
	}
	n.Fields = append(n.Fields, rulesfile.Field{Name: "descriptors", Value: &rulesfile.Node{Kind: rulesfile.List, Items: below}})
	return n
}

// document is the rules of descriptors; what cannot be held is as in the domain before.
func document(t *testing.T, before *envoyrules.Domain, all []*rulesfile.Node) (text string, d *envoyrules.Domain, wrong []string) {
	t.Helper()
	d, _ = envoyrules.Decode("x", object("domain", scalar(rulesfile.String, "d"), "descriptors", &rulesfile.Node{Kind: rulesfile.List, Items: all}))
	wrong = d.Keep(before)
	yaml, _, err := envoyrules.Convert(t.Context(), []*envoyrules.Domain{d}, envoyrules.Options{Compatible: true})
	if err != nil {
		t.Fatal(err)
	}
	return string(yaml), d, wrong
}

// TestAnyText: keys and values may be any text, and each limit counts what its descriptor
// names and nothing else.
func TestAnyText(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		var all []*rulesfile.Node
		var paths [][][2]string
		seen := map[string]bool{}
		for range 8 {
			path := [][2]string{{pick(random, odd...), pick(random, odd...)}}
			for range random.IntN(3) {
				path = append(path, [2]string{pick(random, odd...), pick(random, odd...)})
			}
			if id := fmt.Sprintf("%q", path[0]); seen[id] || strings.Contains(path[0][0]+path[0][1], "*") {
				continue
			}
			seen[fmt.Sprintf("%q", path[0])] = true
			paths = append(paths, path)
			var n *rulesfile.Node
			for i, p := range slices.Backward(path) {
				switch {
				case i == len(path)-1:
					n = entry(p[0], p[1], len(paths))
				default:
					n = entry(p[0], p[1], 0, n)
				}
			}
			all = append(all, n)
		}
		yaml, _, wrong := document(t, nil, all)
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		s := service(t, yaml)
		for i, path := range paths {
			answer, err := s.Decide(t.Context(), request(path), false)
			if err != nil {
				t.Fatal(err)
			}
			if trimmed := slices.ContainsFunc(path, func(p [2]string) bool { return p[1] != strings.Trim(p[1], " \t") }); trimmed {
				continue // such values are refused, whatever the rules
			}
			if got := answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); int(got) != i+1 {
				t.Fatalf("%s\n%q is held to %d, want %d", yaml, path, got, i+1)
			}
		}
	}
}

// TestUsageStays edits a configuration of routes whose names begin alike: what each route
// has used stays with it, whatever comes, goes or moves beside it.
func TestUsageStays(t *testing.T) {
	route := func(n int) *rulesfile.Node {
		name := fmt.Sprintf("httproute/production/customer-facing-shop-frontend/rule/%d/match/0/shop_example_com", n)
		return entry(name, name, 0, entry("rule-0-match-0", "", 50))
	}
	ask := func(s *rls.Service, n int) int {
		name := fmt.Sprintf("httproute/production/customer-facing-shop-frontend/rule/%d/match/0/shop_example_com", n)
		answer, err := s.Decide(t.Context(), request([][2]string{{name, name}, {"rule-0-match-0", "x"}}), false)
		if err != nil {
			t.Fatal(err)
		}
		return int(answer.GetStatuses()[0].GetLimitRemaining())
	}
	random := rand.New(rand.NewPCG(5, 6))
	routes, used, next := []int{0, 1, 2}, map[int]int{}, 3
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }})
	for range 20 {
		switch k := random.IntN(len(routes)); random.IntN(3) {
		case 0:
			routes, next = slices.Insert(routes, k, next), next+1
		case 1:
			if len(routes) > 1 {
				routes = slices.Delete(routes, k, k+1)
			}
		default:
			n := routes[k]
			routes = slices.Insert(slices.Delete(routes, k, k+1), random.IntN(len(routes)), n)
		}
		var all []*rulesfile.Node
		for _, n := range routes {
			all = append(all, route(n))
		}
		yaml, _, _ := document(t, nil, all)
		s := serviceIn(t, yaml, store)
		for _, n := range routes {
			for range 1 + n%3 {
				used[n]++
				if left := ask(s, n); left != max(50-used[n], 0) {
					t.Fatalf("routes %v: %d has %d left, want %d", routes, n, left, 50-used[n])
				}
			}
		}
	}
}

// TestKeep: what is wrong is as it was before, by its path, or as if it were not there,
// and nothing else suffers.
func TestKeep(t *testing.T) {
	bad := func(key, value string) *rulesfile.Node {
		n := entry(key, value, 1)
		n.Fields[2].Value.Fields[0].Value.Value = "fortnight"
		return n
	}
	deep := entry("leaf", "", 9)
	for range 70 {
		deep = entry("k", "v", 0, deep)
	}
	_, before, _ := document(t, nil, []*rulesfile.Node{entry("a", "", 11), entry("b", "x", 12, entry("c", "", 13)), entry("e", "1", 14)})
	yaml, _, wrong := document(t, before, []*rulesfile.Node{
		bad("a", ""), entry("b", "x", 21), entry("b", "x", 22), bad("new", ""), entry("", "y", 23), entry("twice", "", 24), entry("twice", "", 25), deep,
		func() *rulesfile.Node {
			n := bad("e", "1")
			n.Fields[3].Value.Items = []*rulesfile.Node{entry("f", "", 26)}
			return n
		}(),
		entry("good", "", 27),
	})
	var counts []string
	for line := range strings.Lines(yaml) {
		if _, limit, ok := strings.Cut(line, `limits: ["`); ok {
			count, _, _ := strings.Cut(limit, "/")
			counts = append(counts, count)
		}
	}
	if got, want := fmt.Sprint(counts), "[11 12 13 14 26 27]"; got != want || len(wrong) != 9 {
		t.Errorf("limits %s, want %s; refused:\n%s\n%s", got, want, strings.Join(wrong, "\n"), yaml)
	}
}

// TestKeepWider: a new descriptor that is refused, or has one below it that is, takes nothing from
// the wider ones beside it. Without wider ones, what is below it is held.
func TestKeepWider(t *testing.T) {
	text := func(value string) *rulesfile.Node { return scalar(rulesfile.String, value) }
	limits := map[string]*rulesfile.Node{
		"unknown unit":     object("unit", text("99"), "requests_per_unit", scalar(rulesfile.Number, "5")),
		"no unit":          object("requests_per_unit", scalar(rulesfile.Number, "5")),
		"unlimited, unit":  object("unit", text("day"), "unlimited", scalar(rulesfile.Bool, "true")),
		"replaces itself":  object("unit", text("day"), "name", text("n"), "replaces", &rulesfile.Node{Kind: rulesfile.List, Items: []*rulesfile.Node{object("name", text("n"))}}),
		"too long a count": object("unit", text("year"), "requests_per_unit", scalar(rulesfile.Number, "5"), "unit_multiplier", scalar(rulesfile.Number, "4000000000")),
	}
	wide := func(count int) []*rulesfile.Node {
		return []*rulesfile.Node{entry("a", "s*", count+2), entry("a", "", count, entry("b", "", count+1), entry("c", "", count+3))}
	}
	_, before, _ := document(t, nil, append(wide(60), entry("a", "free", 0)))
	for name, limit := range limits {
		bad := func(key, value string, below ...*rulesfile.Node) *rulesfile.Node {
			n := entry(key, value, 1, below...)
			n.Fields[2].Value = limit
			return n
		}
		for shape, one := range map[string]*rulesfile.Node{
			"with a child":                    bad("a", "q", entry("b", "", 7)),
			"with a child without a limit":    bad("a", "q", entry("b", "", 0)),
			"with a star":                     bad("a", "q*", entry("b", "", 7)),
			"with a star for all":             bad("a", "*", entry("b", "", 7)),
			"alone":                           bad("a", "q"),
			"a child of one without a limit":  entry("a", "q", 0, bad("b", "")),
			"a child of one with a limit":     entry("a", "q", 5, bad("b", "")),
			"a grandchild":                    entry("a", "q", 5, entry("b", "", 7, bad("e", ""))),
			"the same twice below a new one":  entry("a", "q", 5, entry("b", "", 7), entry("b", "", 8)),
			"a child with one more beside it": entry("a", "q", 5, bad("b", "x", entry("e", "", 8)), entry("b", "", 7)),
		} {
			yaml, _, wrong := document(t, before, append([]*rulesfile.Node{one, bad("a", "free"), bad("z", "q", entry("b", "", 9))}, wide(80)...))
			s := service(t, yaml)
			for _, asked := range []struct {
				entries [][2]string
				want    uint32
			}{
				{[][2]string{{"a", "q"}}, 80}, {[][2]string{{"a", "q"}, {"b", "x"}}, 81}, {[][2]string{{"a", "q"}, {"c", "x"}}, 83},
				{[][2]string{{"a", "so"}}, 82}, {[][2]string{{"a", "free"}}, 0}, {[][2]string{{"z", "q"}, {"b", "x"}}, 9}, {[][2]string{{"z", "q"}}, 0},
			} {
				answer, err := s.Decide(t.Context(), request(asked.entries), false)
				if err != nil {
					t.Fatal(err)
				}
				if got := answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != asked.want {
					t.Errorf("%s, %s: %v is held to %d, want %d: %v", name, shape, asked.entries, got, asked.want, wrong)
				}
			}
		}
	}
}

// TestStopped: a conversion ends with its context.
func TestStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	d, err := envoyrules.Decode("x", object("domain", scalar(rulesfile.String, "d"), "descriptors", &rulesfile.Node{Kind: rulesfile.List, Items: []*rulesfile.Node{entry("a", "", 1)}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := envoyrules.Convert(ctx, []*envoyrules.Domain{d}, envoyrules.Options{}); err == nil {
		t.Error("it went on")
	}
}

// serviceIn decides by rules in a store that has decided before.
func serviceIn(t *testing.T, yaml string, store *memstore.Store) *rls.Service {
	t.Helper()
	file, err := rules.Decode("rules.yaml", []byte(yaml))
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	source, err := rules.Open(store, "", file, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	observer := observe.New(observe.Options{})
	t.Cleanup(observer.Close)
	return rls.New(rls.Options{Source: source, Observer: observer})
}
