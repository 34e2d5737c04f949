package envoyrules_test

import (
	"slices"
	"testing"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// each stands for any value in a shape.
const each = ""

// A shape is the entries down to a limit, of keys and values.
type shape [][2]string

// same are entries whose value is their key.
func same(keys ...string) (s shape) {
	for _, key := range keys {
		s = append(s, [2]string{key, key})
	}
	return s
}

// shapes are those in which Envoy Gateway and Envoy AI Gateway write limits: a route, or a
// policy that routes share, with conditions by their numbers, and then what each value of is
// counted for itself; a backend, a model and conditions by header.
var shapes = []shape{
	same("route/a", "rule-0-match--1"),
	same("route/a", "rule-1-match-0", "rule-1-match-1", "rule-1-method", "rule-1-path"),
	append(same("route/a", "rule-2-match-0"), [2]string{"rule-2-match-1", each}),
	append(same("route/a", "rule-3-match-0"), [2]string{"masked_remote_address", "0.0.0.0/0"}),
	append(same("route/a"), [2]string{"masked_remote_address", "invert:10.1.0.0/16"}),
	append(same("route/a"), [2]string{"masked_remote_address", "10.2.0.0/16"}, [2]string{"remote_address", each}),
	append(same("route/b"), [2]string{"masked_remote_address", "10.2.0.0/16"}, [2]string{"remote_address", each}),
	append(same("route/b"), [2]string{"rule-0-match-0", each}, [2]string{"rule-0-match-1", each}),
	same("shop/policy/rule/0", "rule-0-match-0"),
	same("shop/policy/rule/2", "rule-1-match-0"),
	{{"backend_name", "shop/llm"}, {"model_name_override", each}},
	{{"backend_name", "shop/llm"}, {"model_name_override", "small"}, {"rule-0-x-tier|gold-match-0", "rule-0-x-tier|gold-match-0"}, {"rule-0-x-user-match-1", each}},
	{{"backend_name", "shop/llm"}, {"model_name_override", "small"}, {"rule-1-match--1", "rule-1-match--1"}},
	{{"backend_name", "shop/mail"}, {"model_name_override", "small"}},
}

// under adds a shape to the descriptors of a level, beside those that are there.
func under(level []*rulesfile.Node, s shape, count int) []*rulesfile.Node {
	for _, n := range level {
		if n.Fields[0].Value.Value == s[0][0] && n.Fields[1].Value.Value == s[0][1] {
			below := &n.Fields[len(n.Fields)-1].Value.Items
			*below = under(*below, s[1:], count)
			return level
		}
	}
	if len(s) == 1 {
		return append(level, entry(s[0][0], s[0][1], count))
	}
	return append(level, entry(s[0][0], s[0][1], 0, under(nil, s[1:], count)...))
}

// TestGatewayShapes asks for each shape as Envoy would, and for what is near it: each has its
// own limit, and what is shorter, longer or in another order that of another shape or none.
func TestGatewayShapes(t *testing.T) {
	var all []*rulesfile.Node
	for i, s := range shapes {
		all = under(all, s, 1000+i)
	}
	yaml, _, wrong := document(t, nil, all)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	service := serviceIn(t, yaml, memstore.New(memstore.Options{}))
	ask := func(s shape, value string) int {
		entries := slices.Clone(s)
		for i := range entries {
			if entries[i][1] == each {
				entries[i][1] = value
			}
		}
		answer, err := service.Decide(t.Context(), request(entries), false)
		if err != nil {
			t.Fatal(err)
		}
		return int(answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit())
	}
	number := func(s shape) int { // of the limit, 0 for none
		return slices.IndexFunc(shapes, func(o shape) bool { return slices.Equal(o, s) }) + 1
	}
	for i, s := range shapes {
		for _, value := range []string{"x", "10.2.3.4", "a/b c,d", "*", "ü"} {
			if got := ask(s, value); got != 1000+i {
				t.Errorf("%v for %s: limit %d, want %d", s, value, got, 1000+i)
			}
		}
		near := map[string]shape{"without the last": s[:len(s)-1], "without the first": s[1:], "with one more": append(slices.Clone(s), [2]string{"more", "x"})}
		swapped := slices.Clone(s)
		slices.Reverse(swapped)
		near["in another order"] = swapped
		for how, o := range near {
			want := 0
			if n := number(o); n > 0 {
				want = 1000 + n - 1
			}
			if got := ask(o, "x"); got != want {
				t.Errorf("%v %s: limit %d, want %d", s, how, got, want)
			}
		}
	}
}
