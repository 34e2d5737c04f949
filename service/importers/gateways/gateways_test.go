package gateways_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/gateways"
	"github.com/stint-dev/stint/service/rules"
)

// converters are those of the transcripts, by the names of these.
var converters = map[string]func([]gateways.Document) ([]byte, importers.Notes, error){
	"ingress": gateways.IngressNginx,
	"traefik": gateways.Traefik,
	"envoy":   gateways.EnvoyLocal,
	"kong": func(docs []gateways.Document) ([]byte, importers.Notes, error) {
		return gateways.Kong(docs, gateways.KongOptions{Consumer: "consumer"})
	},
}

// converted returns the rules of a configuration, which is TOML if it says so.
func converted(kind, text string) (yaml string, notes importers.Notes, err error) {
	name := kind + ".yaml"
	if strings.HasPrefix(text, "# toml") {
		name = kind + ".toml"
	}
	docs, err := gateways.Read(name, []byte(text))
	if err != nil {
		return "", nil, err
	}
	out, notes, err := converters[kind](docs)
	return string(out), notes, err
}

// A transcript is configurations, and after ---- the rules and notes, or what is wrong.
// All rules must be good ones.
func TestTranscripts(t *testing.T) {
	for kind := range converters {
		golden.Play(t, filepath.Join("testdata", kind+".txt"), "\n====\n", func(config string) string {
			got, notes, err := converted(kind, config)
			if err != nil {
				t.Errorf("%s\n%v", config, err)
				return ""
			}
			if _, err := rules.Decode("rules.yaml", []byte(got)); err != nil {
				t.Errorf("%s\nthe rules are bad: %v\n%s", config, err, got)
			}
			for _, n := range notes {
				if n.Lost != strings.Contains(n.Text, "NOT KEPT") {
					t.Errorf("%v: lost %v", n, n.Lost)
				}
				got += "note: " + n.String() + "\n"
			}
			return strings.TrimSuffix(got, "\n")
		})
	}
}

// A configuration in a Secret or in binaryData is not read, and no import is silent about it.
func TestCoded(t *testing.T) {
	coded := base64.StdEncoding.EncodeToString([]byte("http: {middlewares: {a: {rateLimit: {average: 1}}}}"))
	for kind := range converters {
		_, notes, err := converted(kind, fmt.Sprintf(`{apiVersion: v1, kind: Secret, data: {a: %[1]s, tls.key: eHg=}}
---
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, binaryData: {b.yaml: %[1]s}}
- {apiVersion: v1, kind: ConfigMap, data: {c.yaml: "x: y"}}
`, coded))
		if err != nil || len(notes) != 2 || notes.Lost() != 2 || !strings.HasSuffix(notes[1].Where, ":5") {
			t.Errorf("%s: %v %v", kind, notes, err)
		}
	}
}

// configurations are those of a transcript.
func configurations(t testing.TB, kind string) (all []string) {
	text, err := os.ReadFile(filepath.Join("testdata", kind+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Split(string(text), "\n====\n") {
		config, _, _ := strings.Cut(c, "\n----\n")
		all = append(all, config)
	}
	return all
}

// bomb is a list of nine lists of nine lists, and so on.
func bomb() string {
	text := "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
	for i := range 15 {
		text += fmt.Sprintf("a%d: &a%[1]d [%s]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9))
	}
	return text
}

// What the programs would not take is an error, with file and line.
func TestErrors(t *testing.T) {
	for _, c := range [][3]string{
		{"traefik", "http: {middlewares: {a: {rateLimit: {average: many}}}}", `traefik.yaml:1: "many": want a whole number`},
		{"traefik", "http: {middlewares: {a: {rateLimit: {average: 010}}}}", "traefik.yaml:1: 010 is an octal number there"},
		{"traefik", "http: {middlewares: {a: {rateLimit: {average: 1, period: soon}}}}", `traefik.yaml:1: "soon": want a period such as 1m`},
		{"traefik", "# toml\n[a]\nb = 1\nb = 2", "traefik.toml: toml: "},
		{"traefik", "# toml\n[http.middlewares.a.rateLimit]\naverage = -1", `traefik.toml:3: "-1": want a whole number`},
		{"traefik", "http: [", "traefik.yaml:"},
		{"traefik", "kind: ConfigMap\ndata:\n  README: 'rateLimit: ['\n  a.yml: |\n    # a rateLimit\n    http: [", "traefik.yaml:7:1: no value"},
		{"traefik", "kind: List\nitems:\n- kind: ConfigMap\n  data:\n    a.yml: |\n      # a rateLimit\n      http: [", "traefik.yaml:8:1: no value"},
		{"kong", bomb(), "more than 4194304 values; aliases count each time they are used"},
		{"kong", "plugins:\n- {name: rate-limiting, config: {minute: 0}}", "kong.yaml:2: minute: want a count of at least 1"},
		{"kong", "plugins:\n- {name: rate-limiting, config: {minute: 5.5}}", "kong.yaml:2: minute: want a count"},
		{"traefik", "http: {middlewares: {a: {rateLimit: {average: 1, period: -1}}}}", `traefik.yaml:1: "-1": want a period such as 1m`},
		{"kong", "plugins:\n- {name: rate-limiting, config: {minute: 1}}\n- {name: rate-limiting, config: {minute: 2}}", "kong.yaml:3: rate-limiting comes twice for the same requests, as at kong.yaml:2"},
		{"kong", "plugins: [{name: rate-limiting}]", "kong.yaml:1: rate-limiting without a limit"},
		{"kong", "plugins: [{name: rate-limiting-advanced, config: {limit: [1, 2], window_size: [60]}}]", "want as many of limit as of window_size"},
		{"kong", "plugins: [{name: rate-limiting-advanced, config: {limit: [1.5], window_size: [60]}}]", "limit 1.5 with window_size 60: want whole numbers"},
		{"envoy", `{"@type": x/filters.http.local_ratelimit.v3.LocalRateLimit, filter_enabled: {default_value: {numerator: 100}}, token_bucket: {max_tokens: 1}}`, "envoy.yaml:1: token_bucket: want max_tokens"},
		{"envoy", `{"@type": x/filters.http.local_ratelimit.v3.LocalRateLimit, filter_enabled: {default_value: {numerator: 100}}, token_bucket: {max_tokens: 100, tokens_per_fill: 100, fill_interval: 1m}}`, "a fill_interval such as 60s"},
		{"kong", "plugins: [{name: rate-limiting-advanced, config: {limits: {second: 10, minute: 100}, policy: redis}}]", "want as many of limit as of window_size"},
		{"envoy", `{"@type": x/filters.http.local_ratelimit.v3.LocalRateLimit, filter_enabled: {default_value: {numerator: 100, denominator: TEN}}}`, `denominator "TEN": want HUNDRED`},
	} {
		if _, _, err := converted(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v, want %q", c[1], err, c[2])
		}
	}
}
