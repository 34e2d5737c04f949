package policy_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

var update = flag.Bool("update", false, "write the golden errors anew")

// TestBusted reads files that are wrong and holds every line of what is said
// about them.
func TestBusted(t *testing.T) {
	files, _ := filepath.Glob("testdata/busted_*.json")
	if len(files) < 10 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := policy.Parse(data)
		var errs policy.Errors
		if rules != nil || !errors.As(err, &errs) || len(errs) == 0 {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var one *policy.Error
		if !errors.As(err, &one) || one != errs[0] {
			t.Errorf("%s: errors.As does not find the first", file)
		}
		golden := strings.TrimSuffix(file, ".json") + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, _ := os.ReadFile(golden)
		if got := err.Error() + "\n"; got != string(want) {
			t.Errorf("%s:\n%s----\nwant\n%s", file, got, want)
		}
	}
}

func TestGood(t *testing.T) {
	files, _ := filepath.Glob("testdata/good_*.json")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse(data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestHuge refuses what would take memory for nothing, at once.
func TestHuge(t *testing.T) {
	for name, data := range map[string]string{
		"bytes":  `{"rules": [` + strings.Repeat(" ", policy.MaxBytes) + `]}`,
		"nested": strings.Repeat(`{"rules":`, 1_000_000),
		"values": `{"rules": [` + strings.Repeat("0,", 5_000_000) + `0]}`,
		"errors": `{"rules": [` + strings.Repeat("0,", 10_000) + `0]}`,
	} {
		_, err := policy.Parse([]byte(data))
		var errs policy.Errors
		if !errors.As(err, &errs) || len(errs) > 101 {
			t.Errorf("%s: %d errors, %T", name, len(errs), err)
		}
	}
}

// TestAliases decodes a tree whose nodes are used over and over, as aliases of
// YAML do it: ten levels of ten are ten thousand million values.
func TestAliases(t *testing.T) {
	n := &policy.Node{Kind: policy.String, Value: "x"}
	for range 10 {
		up := &policy.Node{Kind: policy.List}
		for range 10 {
			up.Items = append(up.Items, n)
		}
		n = up
	}
	one := &policy.Node{Kind: policy.MapKind, Fields: []policy.Field{{Name: "name", Value: n}, {Name: "match", Value: n}}}
	rules := &policy.Node{Kind: policy.List, Items: slices.Repeat([]*policy.Node{one}, 100_000)}
	_, err := policy.Decode(&policy.Node{Kind: policy.MapKind, Fields: []policy.Field{{Name: "rules", Value: rules}}})
	if err == nil {
		t.Error("accepted")
	}
}

// TestDecodeOdd feeds trees that no file gives.
func TestDecodeOdd(t *testing.T) {
	for name, n := range map[string]*policy.Node{
		"nil":       nil,
		"null":      {Kind: policy.Null},
		"kind":      {Kind: 200},
		"nil value": {Kind: policy.MapKind, Fields: []policy.Field{{Name: "rules"}}},
		"nil item":  {Kind: policy.MapKind, Fields: []policy.Field{{Name: "rules", Value: &policy.Node{Kind: policy.List, Items: []*policy.Node{nil}}}}},
	} {
		if _, err := policy.Decode(n); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	also := &policy.Node{Kind: policy.MapKind, Fields: []policy.Field{
		{Name: "rules", Value: &policy.Node{Kind: policy.List}},
		{Name: "trusted_proxies", Value: &policy.Node{Kind: policy.List}},
	}}
	if _, err := policy.Decode(also); err == nil {
		t.Error("unknown field accepted")
	}
	if _, err := policy.Decode(also, "trusted_proxies"); err != nil {
		t.Error(err)
	}
}

// TestSchema holds the schema for editors to the decoder's fields, and the good
// files to the schema, as far as names of fields go.
func TestSchema(t *testing.T) {
	type object struct {
		Properties           map[string]any `json:"properties"`
		AdditionalProperties any            `json:"additionalProperties"`
		OneOf                []*object      `json:"oneOf"`
	}
	var schema struct {
		object
		Defs map[string]*object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(policy.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	for name, fields := range policy.KnownFields {
		o := schema.Defs[name]
		switch name {
		case "document":
			o = &schema.object
		case "cost":
			o = o.OneOf[1]
		}
		if o == nil {
			t.Errorf("no definition of %s", name)
			continue
		}
		have := slices.Sorted(func(yield func(string) bool) {
			for p := range o.Properties {
				if !yield(p) {
					return
				}
			}
		})
		want := slices.Sorted(slices.Values(fields))
		if !slices.Equal(have, want) {
			t.Errorf("%s: the schema has %v, the decoder %v", name, have, want)
		}
		if o.AdditionalProperties != false {
			t.Errorf("%s takes further fields", name)
		}
	}
}

// FuzzParse looks for panics, and for files that are accepted and then cannot
// be used.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 10_000 {
			f.Add(data)
		}
	}
	attrs := policy.Map{"method": "POST", "path": "/login", "ip": "192.0.2.7", "host": "a.example.com", "header.x-api-key": "partner-1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := policy.Parse(data)
		if err != nil {
			var errs policy.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("%T", err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("encoding/json refuses this")
		}
		rules.Warnings()
		for _, c := range rules.Compare(rules) {
			t.Fatalf("a change without a change: %v", c)
		}
		if _, err := rules.Explain(attrs); err != nil && !errors.Is(err, policy.ErrRequest) {
			t.Fatal(err)
		}
		p, err := policy.New(memstore.New(memstore.Options{MaxKeys: 1}), rules, policy.Options{Secret: []byte("0123456789abcdef")})
		if err != nil {
			if !strings.Contains(err.Error(), "a log of") {
				t.Fatal(err)
			}
			return
		}
		var r policy.Result
		for _, cost := range []int64{1, 1 << 62} {
			if err := p.Decide(t.Context(), attrs, cost, &r); err != nil && !errors.Is(err, policy.ErrRequest) {
				t.Fatal(err)
			}
		}
	})
}
