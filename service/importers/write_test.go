package importers_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/rules"
)

// TestWrite reads what was written: it is the same tree, each part at the place that was
// set, and a long list that stands in several places is written once.
func TestWrite(t *testing.T) {
	words := []string{"a", "/a-b/*.c", "no", "Null", "~", "", "7", "1.5e3", "-", "- a", "a: b", "a #b", "{", "[x]", "*list1", "&list1", "'", `"`, `\*`, "é", "\u2028", "\n\t\x00", "🙂", "yes ", "#", "!x", "%", "@", "`", "?", "<<", "0x1f"}
	r := rand.New(rand.NewPCG(1, 2))
	some := func(most int) []string {
		all := make([]string, 1+r.IntN(most))
		for i := range all {
			all[i] = words[r.IntN(len(words))]
		}
		return all
	}
	for range 300 {
		long := append(some(20), some(20)...)
		conds := func() (all [][]importers.Cond) {
			for range r.IntN(3) {
				one := []importers.Cond{{Attribute: "a", Set: r.IntN(2) == 0}, {Attribute: "b b", Values: some(3)}, {Attribute: "long", Values: long}}
				all = append(all, one[:1+r.IntN(3)])
			}
			return all
		}
		f := importers.File{Attributes: some(2), FoldCase: r.IntN(2) == 0, TrustedProxies: some(3)[1:], ClientIPHeader: "X-Real-IP"}
		for i := range r.IntN(6) {
			rule := importers.Rule{Name: fmt.Sprint("rule", i), Description: words[r.IntN(len(words))], Match: conds(), Unless: conds(), Block: r.IntN(9) == 0, Unlimited: r.IntN(9) == 0,
				Key: some(3), IPv6Prefix: r.IntN(2) * 64, OnMissing: "skip", Cost: r.IntN(3), Limits: some(3), Shadow: r.IntN(2) == 0, Quota: r.IntN(4) == 0}
			for range r.IntN(3) {
				rule.Overrides = append(rule.Overrides, importers.Override{When: []importers.Cond{{Attribute: "c", Values: long}}, Lifted: r.IntN(2) == 0})
			}
			f.Rules = append(f.Rules, rule)
		}
		root, textOf := f.Tree()
		list := root.Fields[len(root.Fields)-1].Value
		list.Items, list.Each = slices.Collect(list.Each), nil
		text := textOf()
		read, err := rules.ReadYAML(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if at := differ("", root, read); at != "" {
			t.Fatalf("%s\n%s", at, text)
		}
	}
}

// differ says where two trees differ, "" if they do not. Of an alias the library says where
// it stands for stands, too.
func differ(at string, a, b *rulesfile.Node) string {
	x, y := *a, *b
	x.Fields, y.Fields, x.Items, y.Items = nil, nil, nil, nil
	if a.Kind == rulesfile.List && len(a.Items) > 8 {
		x.Column, y.Column = 0, 0 // with an anchor, that of the anchor
	}
	if !reflect.DeepEqual(x, y) || len(a.Fields) != len(b.Fields) || len(a.Items) != len(b.Items) {
		return fmt.Sprintf("%s: %+v and %+v, %d and %d fields, %d and %d items", at, x, y, len(a.Fields), len(b.Fields), len(a.Items), len(b.Items))
	}
	for i, f := range a.Fields {
		g := b.Fields[i]
		if f.Name != g.Name || f.Line != g.Line || f.Column != g.Column {
			return fmt.Sprintf("%s: field %+v and %+v", at, f, g)
		}
		if where := differ(at+"."+f.Name, f.Value, g.Value); where != "" {
			return where
		}
	}
	for i := range a.Items {
		if where := differ(fmt.Sprintf("%s[%d]", at, i), a.Items[i], b.Items[i]); where != "" {
			return where
		}
	}
	return ""
}
