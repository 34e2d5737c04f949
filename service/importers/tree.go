package importers

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// MapNode returns a map of names and values. It leaves out nil values.
func MapNode(fields ...any) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.MapKind, Fields: make([]rulesfile.Field, 0, len(fields)/2)}
	for i := 0; i < len(fields); i += 2 {
		if v := fields[i+1].(*rulesfile.Node); v != nil {
			n.Fields = append(n.Fields, rulesfile.Field{Name: fields[i].(string), Value: v})
		}
	}
	return n
}

// TextNode returns a text, nil for "".
func TextNode(s string) *rulesfile.Node {
	if s == "" {
		return nil
	}
	return &rulesfile.Node{Kind: rulesfile.String, Value: s}
}

// FlagNode returns true as a node, nil for false.
func FlagNode(is bool) *rulesfile.Node {
	if !is {
		return nil
	}
	return &rulesfile.Node{Kind: rulesfile.Bool, Value: "true"}
}

// NumberNode is a number.
func NumberNode(n uint64) *rulesfile.Node {
	return &rulesfile.Node{Kind: rulesfile.Number, Value: strconv.FormatUint(n, 10)}
}

// number is a number, nil for 0.
func number(n int) *rulesfile.Node {
	if n == 0 {
		return nil
	}
	return NumberNode(uint64(n))
}

// texts is a list of texts.
func texts(all []string) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.List, Items: make([]*rulesfile.Node, len(all))}
	for i, s := range all {
		n.Items[i] = &rulesfile.Node{Kind: rulesfile.String, Value: s}
	}
	return n
}

// A tree makes the nodes of a file, which its writer writes. Conditions that share a long list
// of values share its node.
type tree struct {
	w      *writer
	places map[values]int // how often each long list is used; nil if that is not known beforehand
	lists  map[values]*rulesfile.Node
}

// values identifies a list by its address in memory and its length.
type values struct {
	first *string
	count int
}

// Tree names the rules, and returns the file as a tree, and a function that returns its YAML.
// Each node has the line and column where it begins in the YAML. The rules are made and
// written one by one, while the Each of their list is read; call text after that. The list
// ends once the text has more bytes than a rules file may have.
func (f *File) Tree() (root *rulesfile.Node, text func() []byte) {
	t := &tree{w: newWriter(), lists: map[values]*rulesfile.Node{}}
	made := f.Made
	if made == nil {
		f.name()
		t.count(f.Rules)
		made = func(yield func(*Rule) bool) {
			for i := range f.Rules {
				if !yield(&f.Rules[i]) {
					return
				}
			}
		}
	}
	root = MapNode()
	if f.Made != nil || len(f.Rules) > 0 {
		root = f.head()
	}
	list := &rulesfile.Node{Kind: rulesfile.List}
	list.Each = func(yield func(*rulesfile.Node) bool) {
		for r := range made {
			n := t.rule(r)
			t.w.item(list, n)
			if !yield(n) || t.w.b.Len() > mostBytes {
				return
			}
		}
	}
	root.Fields = append(root.Fields, rulesfile.Field{Name: "rules", Value: list})
	t.w.begin(root)
	return root, func() []byte { return t.w.end(list) }
}

// head returns the fields before the rules.
func (f *File) head() *rulesfile.Node {
	var attributes, proxies, header *rulesfile.Node
	if len(f.Attributes) > 0 {
		attributes = texts(f.Attributes)
	}
	if len(f.TrustedProxies) > 0 {
		proxies, header = texts(f.TrustedProxies), TextNode(f.ClientIPHeader)
	}
	return MapNode("attributes", attributes, "ignore_path_case", FlagNode(f.FoldCase), "trusted_proxies", proxies, "client_ip_header", header)
}

// count counts how often each long list is used.
func (t *tree) count(rules []Rule) {
	t.places = map[values]int{}
	all := func(conds []Cond) {
		for _, c := range conds {
			if len(c.Values) > mostRepeated {
				t.places[values{&c.Values[0], len(c.Values)}]++
			}
		}
	}
	for i := range rules {
		for _, conds := range slices.Concat(rules[i].Match, rules[i].Unless) {
			all(conds)
		}
		for _, o := range rules[i].Overrides {
			all(o.When)
		}
	}
}

func (t *tree) rule(r *Rule) *rulesfile.Node {
	shadow := FlagNode(r.Shadow)
	if r.Quota {
		shadow = TextNode("quota")
	}
	n := MapNode("name", TextNode(r.Name), "description", TextNode(r.Description), "match", t.anyOf(r.Match), "unless", t.anyOf(r.Unless),
		"block", FlagNode(r.Block), "unlimited", FlagNode(r.Unlimited && !r.Block))
	if r.Block || r.Unlimited {
		n.Fields = append(n.Fields, MapNode("shadow", shadow).Fields...)
		return n
	}
	prefix := number(r.IPv6Prefix)
	if !slices.Contains(r.Key, "ip") {
		prefix = nil
	}
	var overrides *rulesfile.Node
	if len(r.Overrides) > 0 {
		overrides = &rulesfile.Node{Kind: rulesfile.List}
	}
	for _, o := range r.Overrides {
		when := t.all(o.When)
		if o.Lifted {
			overrides.Items = append(overrides.Items, MapNode("when", when, "unlimited", FlagNode(true)))
		} else {
			overrides.Items = append(overrides.Items, MapNode("when", when, "limits", texts(r.Limits)))
		}
	}
	n.Fields = append(n.Fields, MapNode("key", texts(r.Key), "ipv6_prefix", prefix, "on_missing", TextNode(r.OnMissing), "on_store_failure", TextNode(r.OnStoreFailure),
		"cost", number(r.Cost), "limits", texts(r.Limits), "overrides", overrides, "shadow", shadow).Fields...)
	return n
}

// anyOf returns the node for lists of conditions, one of which must hold; nil without lists.
func (t *tree) anyOf(every [][]Cond) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.List}
	for i, one := range every {
		if !slices.ContainsFunc(every[:i], func(before []Cond) bool { return slices.EqualFunc(before, one, sameCond) }) {
			n.Items = append(n.Items, t.all(one))
		}
	}
	switch len(n.Items) {
	case 0:
		return nil
	case 1:
		return n.Items[0]
	}
	return n
}

// sameCond reports whether two conditions are written as one.
func sameCond(a, b Cond) bool {
	return a.Attribute == b.Attribute && (len(a.Values) > 0 || a.Set == b.Set) && slices.Equal(a.Values, b.Values)
}

// all returns the node for conditions that must all hold.
func (t *tree) all(conds []Cond) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.MapKind, Fields: make([]rulesfile.Field, len(conds))}
	for i, c := range conds {
		n.Fields[i] = rulesfile.Field{Name: c.Attribute, Value: t.cond(&c)}
	}
	return n
}

// cond returns the node for the values of a condition.
func (t *tree) cond(c *Cond) *rulesfile.Node {
	switch len(c.Values) {
	case 0:
		return &rulesfile.Node{Kind: rulesfile.Bool, Value: strconv.FormatBool(c.Set)}
	case 1:
		return &rulesfile.Node{Kind: rulesfile.String, Value: c.Values[0]}
	}
	if len(c.Values) <= mostRepeated {
		return texts(c.Values)
	}
	at := values{&c.Values[0], len(c.Values)}
	if t.lists[at] == nil {
		t.lists[at] = texts(c.Values)
		if t.places == nil || t.places[at] > 1 {
			t.w.anchors[t.lists[at]] = fmt.Sprintf("list%d", len(t.w.anchors)+1)
		}
	}
	return t.lists[at]
}
