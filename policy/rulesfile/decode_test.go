package rulesfile_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// TestBusted reads files that are wrong, and compares every line of their errors.
func TestBusted(t *testing.T) {
	files, _ := filepath.Glob("testdata/busted_*.json")
	if len(files) < 10 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		data := disk.Read(t, file)
		rules, err := rulesfile.Parse(data)
		var errs rulesfile.Errors
		if rules != nil || !errors.As(err, &errs) || len(errs) == 0 {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var one *rulesfile.Error
		if !errors.As(err, &one) || one != errs[0] {
			t.Errorf("%s: errors.As does not find the first", file)
		}
		golden.Equal(t, strings.TrimSuffix(file, ".json")+".txt", err.Error()+"\n")
	}
}

func TestGood(t *testing.T) {
	files, _ := filepath.Glob("testdata/good_*.json")
	for _, file := range files {
		data := disk.Read(t, file)
		if _, err := rulesfile.Parse(data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestMark reads a file as some editors on Windows write it: with a byte order mark, and CR
// LF at the ends of lines.
func TestMark(t *testing.T) {
	f, err := rulesfile.Parse([]byte("\ufeff{\"rules\": [\r\n{\"name\": \"a\", \"key\": [\"ip\"], \"limits\": \"5/m\"}]}\r\n"))
	if err != nil || len(f.Rules()) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := rulesfile.Parse([]byte("\ufeff{\"rule\": []}")); err == nil || !strings.HasPrefix(err.Error(), "1:2: unknown field") {
		t.Errorf("%v; want it at column 2, as editors show it", err)
	}
}

// TestHuge refuses, at once, files that would only use up memory.
func TestHuge(t *testing.T) {
	for name, data := range map[string]string{
		"bytes":  `{"rules": [` + strings.Repeat(" ", rulesfile.MaxBytes) + `]}`,
		"nested": strings.Repeat(`{"rules":`, 1_000_000),
		"values": `{"rules": [` + strings.Repeat("0,", 5_000_000) + `0]}`,
		"errors": `{"rules": [` + strings.Repeat("0,", 10_000) + `0]}`,
	} {
		_, err := rulesfile.Parse([]byte(data))
		var errs rulesfile.Errors
		if !errors.As(err, &errs) || len(errs) > 101 {
			t.Errorf("%s: %d errors, %T", name, len(errs), err)
		}
	}
}

// TestAliases decodes a tree whose nodes are used over and over, like aliases of YAML: ten
// levels of ten are ten thousand million values.
func TestAliases(t *testing.T) {
	n := &rulesfile.Node{Kind: rulesfile.String, Value: "x"}
	for range 10 {
		up := &rulesfile.Node{Kind: rulesfile.List}
		for range 10 {
			up.Items = append(up.Items, n)
		}
		n = up
	}
	one := &rulesfile.Node{Kind: rulesfile.MapKind, Fields: []rulesfile.Field{{Name: "name", Value: n}, {Name: "match", Value: n}}}
	rules := &rulesfile.Node{Kind: rulesfile.List, Items: slices.Repeat([]*rulesfile.Node{one}, 100_000)}
	_, err := rulesfile.Decode(&rulesfile.Node{Kind: rulesfile.MapKind, Fields: []rulesfile.Field{{Name: "rules", Value: rules}}})
	if err == nil {
		t.Error("accepted")
	}
}

// TestDecodeOdd decodes trees that no file gives.
func TestDecodeOdd(t *testing.T) {
	for name, n := range map[string]*rulesfile.Node{
		"nil":       nil,
		"null":      {Kind: rulesfile.Null},
		"kind":      {Kind: 200},
		"nil value": {Kind: rulesfile.MapKind, Fields: []rulesfile.Field{{Name: "rules"}}},
		"nil item":  {Kind: rulesfile.MapKind, Fields: []rulesfile.Field{{Name: "rules", Value: &rulesfile.Node{Kind: rulesfile.List, Items: []*rulesfile.Node{nil}}}}},
	} {
		if _, err := rulesfile.Decode(n); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	also := &rulesfile.Node{Kind: rulesfile.MapKind, Fields: []rulesfile.Field{
		{Name: "rules", Value: &rulesfile.Node{Kind: rulesfile.List}},
		{Name: "trusted_proxies", Value: &rulesfile.Node{Kind: rulesfile.List}},
	}}
	if _, err := rulesfile.Decode(also); err == nil {
		t.Error("unknown field accepted")
	}
	if _, err := rulesfile.Decode(also, "trusted_proxies"); err != nil {
		t.Error(err)
	}
}

// TestSchema compares the names of fields in the editors' schema with the decoder's, and with
// those in the good files.
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
	if err := json.Unmarshal([]byte(rulesfile.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	for name, fields := range rulesfile.KnownFields {
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
