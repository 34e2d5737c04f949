package proof_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	boundField = regexp.MustCompile(`(?m)^\t(Max[A-Z]\w*|NewKeys) `)
	boundFlag  = regexp.MustCompile(`STINT_(MAX_[A-Z_]+|NEW_KEYS|[A-Z]+_RATE)`)
	boundTable = regexp.MustCompile(`(?m)^\| bound \| value \|\n.*\n((?:\|.*\n)+)`)
	boundRow   = regexp.MustCompile(`(?m)^\| (.*?) \|`)
)

// TestBoundsListed holds bounds.txt to being all bounds that options, flags and the
// documents name, and its tests to being there.
func TestBoundsListed(t *testing.T) {
	listed := make(map[string]string)
	place := regexp.MustCompile(`^(.*?) +(no: .*|\S+_test\.go#Test\w+)$`)
	for line := range strings.Lines(readText(t, "bounds.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := place.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("want a name and a test, or no: and a reason: %s", line)
		}
		listed[m[1]] = m[2]
		if file, test, ok := strings.Cut(m[2], "#"); ok && !strings.HasPrefix(m[2], "no: ") &&
			!strings.Contains(readText(t, filepath.Join("..", file)), "\nfunc "+test+"(") {
			t.Errorf("%s: there is no %s", m[1], m[2])
		}
	}
	wanted := make(map[string]string) // and where it is
	for _, dir := range []string{".", "memstore", "fallback", "redisstore", "httplimit", "grpclimit"} {
		for path, text := range sourcesIn(t, dir) {
			for _, m := range boundField.FindAllStringSubmatch(text, -1) {
				wanted["."+m[1]] = path
			}
		}
	}
	for path, text := range sourcesIn(t, "cmd/stint") {
		for _, m := range boundFlag.FindAllStringSubmatch(text, -1) {
			wanted["--"+strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))] = path
		}
	}
	for _, page := range []string{"docs/SERVE.md", "docs/PROXY.md"} {
		table := boundTable.FindStringSubmatch(readText(t, filepath.Join("..", page)))
		if table == nil {
			t.Fatalf("%s has no table of bounds", page)
		}
		for _, m := range boundRow.FindAllStringSubmatch(table[1], -1) {
			wanted[m[1]] = page
		}
	}
	if len(wanted) < 30 {
		t.Errorf("%d bounds found", len(wanted))
	}
	for name, where := range wanted {
		found := listed[name] != ""
		for l := range listed {
			found = found || name[0] == '.' && strings.HasSuffix(l, name)
		}
		if !found {
			t.Errorf("%s has the bound %s, which proof/bounds.txt has not", where, name)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sourcesIn returns the files of a package that are no tests, by their paths.
func sourcesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	all := make(map[string]string)
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			all[path] = readText(t, path)
		}
	}
	return all
}
