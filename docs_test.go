package stint_test

import (
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// documents are the pages that this test holds to the code.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d documents: %v", len(pages), err)
	}
	return append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
}

// TestDocsExample holds README.md's program to the example that compiles and runs.
func TestDocsExample(t *testing.T) {
	_, shown, _ := strings.Cut(pages.Blocks(pages.Read(t, "README.md"), "go")[0], "func main() {\n")
	_, rest, found := strings.Cut(pages.Read(t, "example_test.go"), "func Example() {\n")
	body, _, _ := strings.Cut(rest, "\n}\n")
	body, _, _ = strings.Cut(body, "\t// Output:")
	if got := body + "}\n"; !found || got != shown {
		t.Errorf("Example is\n%s\nREADME.md shows\n%s", got, shown)
	}
}

// TestDocsPackages holds the program of each package's README, and what it prints, to
// the package's example.
func TestDocsPackages(t *testing.T) {
	for _, dir := range []string{"meter", "memstore", "policy", "redisstore"} {
		if _, err := os.Stat(dir); err != nil {
			continue // a module of its own, and only the root is here
		}
		_, rest, found := strings.Cut(pages.Read(t, dir+"/example_test.go"), "\nfunc Example() {\n")
		body, _, _ := strings.Cut(rest, "\n}\n")
		body, printed, prints := strings.Cut(body+"\n", "\t// Output:\n")
		readme := pages.Read(t, dir+"/README.md")
		if code := strings.ReplaceAll("\n"+body, "\n\t", "\n"); !found || !strings.Contains(readme, "```go"+code+"```\n") {
			t.Errorf("%s/README.md does not show its example:\n%s", dir, code)
		}
		_, rest, shows := strings.Cut(readme, "```\n\n```\n")
		shown, _, _ := strings.Cut(rest, "```")
		if want := strings.ReplaceAll(printed, "\t// ", ""); shows && (!prints || shown != want) {
			t.Errorf("%s/README.md shows\n%s\nits example prints\n%s", dir, shown, want)
		}
	}
}

// TestDocsClone does what README.md tells the owner of another module to do: its
// program runs there, on this clone, and no network is needed.
func TestDocsClone(t *testing.T) {
	readme := pages.Read(t, "README.md")
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	disk.Write(t, filepath.Join(dir, "main.go"), pages.Blocks(readme, "go")[0])
	var printed string
	for _, reported := range []string{"go mod init example.com/app", "go mod edit -replace=github.com/stint-dev/stint=../stint", "go mod tidy", "go run ."} {
		if !strings.Contains(readme, "\n"+reported+"\n") && !strings.Contains(readme, "\n"+reported+" ") {
			t.Errorf("README.md does not say %s", reported)
		}
		words := strings.Fields(strings.ReplaceAll(reported, "../stint", root))
		command := exec.Command(words[0], words[1:]...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", reported, err, out)
		}
		printed = string(out)
	}
	for _, line := range strings.Split(strings.TrimSpace(printed), "\n") {
		if !strings.Contains(readme, "`"+line+"`") {
			t.Errorf("README.md does not say that the example prints %s", line)
		}
	}
}

var (
	links     = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	headings  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	blocks    = regexp.MustCompile("(?ms)^```.*?^```$")
	unlinked  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`) // what a heading's address leaves out
	files     = regexp.MustCompile("`(([a-z]+)/[\\w./-]+\\.[a-z]+)`")
	testNames = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Za-z_]+)`")
)

// testsNamed returns the functions of all tests, and whether other modules are here.
func testsNamed(t *testing.T) (tests map[string]bool, nested bool) {
	t.Helper()
	tests = make(map[string]bool)
	eachFile(t, func(file string, f *ast.File, _ *token.FileSet) {
		nested = nested || !inRoot(path.Dir(file))
		if !strings.HasSuffix(file, "_test.go") && path.Dir(file) != "storetest" {
			return
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	})
	return tests, nested
}

// TestDocsNames looks for every file and heading that the documents link to, and
// for every file and test that they name.
func TestDocsNames(t *testing.T) {
	tests, nested := testsNamed(t)
	if !nested {
		t.Skip("only the root module is here")
	}
	further, _ := filepath.Glob("*/README.md")
	decisions, _ := filepath.Glob("docs/adr/*.md")
	if len(further) < 5 || len(decisions) < 10 {
		t.Fatalf("%d READMEs, %d decisions", len(further), len(decisions))
	}
	for _, name := range slices.Concat(documents(t), further, decisions) {
		text := pages.Read(t, name)
		for _, m := range links.FindAllStringSubmatch(blocks.ReplaceAllString(text, ""), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if m[2] != "" && !hasHeading(pages.Read(t, to), m[2]) {
				t.Errorf("%s links to %s: there is no such heading", name, m[0])
			}
		}
		for _, m := range files.FindAllStringSubmatch(text, -1) {
			_, outside := os.Stat(m[2]) // a part of a path
			if _, err := os.Stat(m[1]); err != nil && outside == nil {
				t.Errorf("%s names %s: %v", name, m[1], err)
			}
		}
		for _, m := range testNames.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s: there is no such test", name, m[1])
			}
		}
	}
}

// TestDocsReached holds README.md to a link to every document: what it does not list,
// its readers do not find.
func TestDocsReached(t *testing.T) {
	readme := pages.Read(t, "README.md")
	for _, name := range documents(t) {
		if name != "README.md" && !strings.Contains(readme, "]("+filepath.ToSlash(name)+")") {
			t.Errorf("README.md has no link to %s", name)
		}
	}
}

// hasHeading says whether a page has a heading with that address.
func hasHeading(page, address string) bool {
	for _, m := range headings.FindAllStringSubmatch(blocks.ReplaceAllString(page, ""), -1) {
		if strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == address {
			return true
		}
	}
	return false
}

// TestDocsFiveFiles counts the lines of the files that DESIGN.md tells readers of the
// code to start with.
func TestDocsFiveFiles(t *testing.T) {
	_, rest, found := strings.Cut(pages.Read(t, "docs/DESIGN.md"), "## How a request is decided\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	links := regexp.MustCompile(`(?m)^\d\. \[([^]]+)\]\(\.\./([^)]+)\)`).FindAllStringSubmatch(section, -1)
	if !found || len(links) != 5 {
		t.Fatalf("%d files", len(links))
	}
	lines := 0
	for _, link := range links {
		if link[1] != link[2] {
			t.Errorf("%s is a link to %s", link[1], link[2])
		}
		lines += strings.Count(pages.Read(t, link[2]), "\n")
	}
	if lines >= 1100 {
		t.Errorf("they have %d lines, and DESIGN.md says less than 1,100", lines)
	}
}
