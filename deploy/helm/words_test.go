package helm_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// words are texts that YAML reads as something else where they stand without quotes.
var words = []string{"123", "0123456789012345678", "1e3", "0x10", "0o17", "1_000", "12:30:45", "2026-11-22", "true", "no", "y", "null", "~", ".inf", ".nan",
	"a: b", "- a", "#a", "*a", "&a", "{a}", "@a", `"a`, "'a", " a "}

// A schema is what values.schema.json says of one value.
type schema struct {
	Type                 any
	Properties           map[string]*schema
	Items                *schema
	AdditionalProperties any
}

// texts calls each for every value that is text, with how values say it: in an
// object, in a list, or under a name of the user's.
func (s *schema) texts(name string, in func(any) any, each func(name string, in func(any) any)) {
	switch {
	case s.Type == "string":
		each(name, in)
	case s.Type == "array":
		s.Items.texts(name+"[]", func(v any) any { return in([]any{v}) }, each)
	case s.Type == "object" && s.Properties == nil:
		// Objects of other kinds are Kubernetes's own, and are passed on as they are.
		if given, ok := s.AdditionalProperties.(map[string]any); ok && given["type"] == "string" {
			each(name+".key", func(v any) any { return in(map[string]any{"key": v}) })
			each(name+".*", func(v any) any { return in(map[string]any{v.(string): "value"}) })
		}
	}
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[field].texts(name+"."+field, func(v any) any { return in(map[string]any{field: v}) }, each)
	}
}

// merge puts b over a, as values are put over one another.
func merge(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	for name, v := range b {
		if from, ok := all[name].(map[string]any); ok {
			if over, ok := v.(map[string]any); ok {
				v = merge(from, over)
			}
		}
		all[name] = v
	}
	return all
}

// TestWords gives each value that is text a word that YAML would read as a number, as
// nothing, as a truth or as a structure. What the schema takes is text in what the
// chart makes, whatever stands in it.
func TestWords(t *testing.T) {
	text, err := os.ReadFile("stint/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var all schema
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	given, taken := values(t, "all.yaml"), 0
	written := []string{".rules.text", ".tokens.callers[]", ".tokens.operators[]", ".tokens.metrics"} // into other text
	all.texts("", func(v any) any { return v }, func(name string, in func(any) any) {
		for _, word := range words {
			v := merge(given, in(word).(map[string]any))
			if strings.HasPrefix(name, ".env[]") {
				v["env"] = []any{merge(map[string]any{"name": "A"}, v["env"].([]any)[0].(map[string]any))}
			}
			files, err := template(v)
			if err != nil {
				if !strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
					t.Errorf("%s of %q: %v", name, word, err)
				}
				continue
			}
			taken++
			if !holds(t, files, word, name) && !slices.Contains(written, name) {
				t.Errorf("%s of %q is nowhere in what is made", name, word)
			}
		}
	})
	if taken < 400 {
		t.Errorf("%d values are taken", taken)
	}
}

// holds reads what is made strictly, and looks for the word among its texts and keys.
func holds(t *testing.T, files map[string]string, word, name string) bool {
	t.Helper()
	o := read(t, files, name)
	found := false
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			found = found || strings.Contains(v.String(), word)
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				look(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				look(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i))
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				look(key)
				look(value)
			}
		}
	}
	look(reflect.ValueOf(&o).Elem())
	return found
}

// TestNames installs the chart under names of all kinds.
func TestNames(t *testing.T) {
	for _, c := range []struct{ release, namespace, override, says string }{
		{"limits", "123", "", ""},
		{"true", "null", "", ""},
		{"no", "1e3", "", ""},
		{"1e3", "web", "", "cannot be the name of a Service"},
		{"a.b", "web", "", "cannot be the name of a Service"},
		{"123", "web", "null", ""},
		{"123", "000", "e3", ""},
	} {
		v := values(t, "all.yaml")
		v["nameOverride"] = c.override
		files, err := templateAs(c.release, c.namespace, v)
		switch {
		case err != nil && (c.says == "" || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: %v", c, err)
		case err == nil && c.says != "":
			t.Errorf("%+v is taken", c)
		case err == nil:
			o := read(t, files, c.release)
			o.join(t)
			if got := o.service.Labels["app.kubernetes.io/instance"]; got != c.release || o.service.Namespace != c.namespace || c.override != "" && o.service.Name != c.override {
				t.Errorf("%+v: made %s in %s of %s", c, o.service.Name, o.service.Namespace, got)
			}
		}
	}
}

// TestNumbers gives whole numbers that would be written with an exponent.
func TestNumbers(t *testing.T) {
	files, err := template(merge(values(t, "all.yaml"), map[string]any{
		"maxKeys":             float64(200_000_000),
		"podDisruptionBudget": map[string]any{"maxUnavailable": float64(2_000_000)},
		"autoscaling":         map[string]any{"minReplicas": float64(1_000_000), "maxReplicas": float64(30_000_000)},
	}))
	if err != nil {
		t.Fatal(err)
	}
	o := read(t, files, "numbers")
	if *o.scaler.Spec.MinReplicas != 1_000_000 || o.scaler.Spec.MaxReplicas != 30_000_000 || o.disruption.Spec.MaxUnavailable.IntValue() != 2_000_000 {
		t.Errorf("%+v, %v", o.scaler.Spec, o.disruption.Spec.MaxUnavailable)
	}
	if !slices.Contains(o.deployment.Spec.Template.Spec.Containers[0].Args, "--max-keys=200000000") {
		t.Errorf("%q", o.deployment.Spec.Template.Spec.Containers[0].Args)
	}
	if files, err = template(map[string]any{"replicas": float64(3_000_000), "separate": true}); err != nil {
		t.Fatal(err)
	}
	if o = read(t, files, "replicas"); *o.deployment.Spec.Replicas != 3_000_000 {
		t.Errorf("%d replicas", *o.deployment.Spec.Replicas)
	}
}
