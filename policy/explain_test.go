package policy_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"
)

var update = flag.Bool("update", false, "write the golden explanation anew")

// TestExplain is a transcript: attributes, ----, what the rules of
// good_everything.json make of them.
func TestExplain(t *testing.T) {
	data, err := os.ReadFile("rulesfile/testdata/good_everything.json")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/explain.txt"
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, block := range strings.Split(strings.TrimSpace(string(script)), "\n\n") {
		input, _, _ := strings.Cut(block, "\n----")
		attrs := policy.Map{}
		for _, pair := range strings.Fields(input) {
			name, value, _ := strings.Cut(pair, "=")
			attrs[name] = value
		}
		answer := ""
		if e, err := rules.Explain(attrs); err != nil {
			answer = err.Error() + "\n"
		} else {
			answer = e.String()
		}
		out.WriteString(input + "\n----\n" + answer + "\n")
	}
	got := strings.TrimSuffix(out.String(), "\n")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != string(script) {
		t.Errorf("got\n%s", got)
	}
}
