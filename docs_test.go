package stint_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are the pages that this test holds to the code.
var documents = []string{
	"README.md",
	"CONTRIBUTING.md",
	"CHANGELOG.md",
	"docs/DESIGN.md",
	"docs/SEMANTICS.md",
	"docs/LIMITS.md",
	"docs/RULES.md",
	"docs/HTTP.md",
	"docs/REDIS.md",
	"docs/PLAN.md",
	"docs/PROXY.md",
	"docs/SERVE.md",
	"docs/GRPC.md",
	"docs/RESP.md",
	"docs/ENVOY.md",
	"docs/METRICS.md",
	"docs/RUNBOOK.md",
	"docs/LAB.md",
	"docs/FIGURES.md",
	"docs/REDIS-FIGURES.md",
	"docs/RULES-DB.md", "docs/THREATS.md", "docs/RELEASING.md", "SECURITY.md",
	"docs/OPERATE.md",
	"docs/PAGE.md",
	"docs/TEST.md",
	"docs/TESTING.md",
	"docs/SINGLE.md",
	"docs/REHEARSE.md",
	"docs/MOVING.md",
}

// TestDocsExample holds README.md's example to the one that compiles and runs.
func TestDocsExample(t *testing.T) {
	_, rest, _ := strings.Cut(readDocument(t, "README.md"), "```go\n")
	shown, _, _ := strings.Cut(rest, "```")
	for _, s := range sources(t) {
		if s.path != "example_test.go" {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Example" {
				var body bytes.Buffer
				if err := format.Node(&body, s.set, f.Body.List); err != nil {
					t.Fatal(err)
				}
				if got := body.String() + "\n"; got != shown {
					t.Errorf("Example is\n%s\nREADME.md shows\n%s", got, shown)
				}
			}
		}
	}
}

var (
	links     = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	testNames = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Za-z_]+)`")
)

// TestDocsNames looks for every file that the documents link to, and for every
// test that they name.
func TestDocsNames(t *testing.T) {
	tests, nested := make(map[string]bool), false
	for _, s := range sources(t) {
		nested = nested || s.nested()
		if !s.test() && s.dir() != "storetest" {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	if !nested {
		t.Skip("only the root module is here")
	}
	for _, name := range documents {
		text := readDocument(t, name)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
		for _, m := range testNames.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s: there is no such test", name, m[1])
			}
		}
	}
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
