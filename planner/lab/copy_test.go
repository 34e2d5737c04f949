package lab_test

import (
	"encoding/json"
	"go/format"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/policy"
)

func copies(t *testing.T, text string) *lab.Copy {
	t.Helper()
	zero := 0
	return simulate(t, &lab.Request{Limits: []string{text}, Arrivals: phases("20@once +2s 30@20/s"), Copy: &zero, Lasts: "500ms"}).Copy
}

// TestCopyRule reads the rule as a rules file: it must hold, with the limit
// that was copied, in shadow.
func TestCopyRule(t *testing.T) {
	for _, text := range append([]string{"5_000 per day in Europe/Paris", "20 in flight"}, everyKind...) {
		rule := copies(t, text).Rule
		var tree any
		if err := yaml.Unmarshal([]byte(rule), &tree); err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
		data, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse(data); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		if want := `limits: ["` + limit(t, text).String() + `"]`; !strings.Contains(rule, want) || !strings.Contains(rule, "shadow: true") {
			t.Errorf("%s: want %s, in shadow", rule, want)
		}
	}
}

// TestCopyGo formats, vets and runs the programs.
func TestCopyGo(t *testing.T) {
	for text, want := range map[string]string{"10/s burst 20": "allowed: true\n", "20 in flight": "allowed: true\n", "1/s burst 5 leaky_queue": "it is this client's turn\n"} {
		program := copies(t, text).Go
		formatted, err := format.Source([]byte(program))
		if err != nil || string(formatted) != program {
			t.Errorf("not as gofmt has it (%v):\n%s", err, program)
		}
		file := filepath.Join(t.TempDir(), "main.go")
		disk.Write(t, file, program)
		for _, c := range []struct{ verb, want string }{{"vet", ""}, {"run", want}} {
			if out, err := exec.CommandContext(t.Context(), "go", c.verb, file).CombinedOutput(); err != nil || string(out) != c.want {
				t.Errorf("go %s: %v: %s; want %q\n%s", c.verb, err, out, c.want, program)
			}
		}
	}
}
