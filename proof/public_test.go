package proof_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A publicSuite is the tests of one package of another limiter.
type publicSuite struct {
	module, version, dir string
	cases                map[string]string // where each runs here, or why it does not
}

func publicSuites(t *testing.T) (all []publicSuite) {
	t.Helper()
	text, err := os.ReadFile("public.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case line == "" || line[0] == '#':
		case !strings.HasPrefix(line, "Test"):
			all = append(all, publicSuite{words[0], words[1], words[2], make(map[string]string)})
		default:
			name, where, _ := strings.Cut(line, " ")
			cases := all[len(all)-1].cases
			if cases[name] != "" {
				t.Errorf("%s twice", name)
			}
			cases[name] = strings.TrimSpace(where)
		}
	}
	return all
}

// TestPublicCases holds the list of other limiters' public tests to being all
// of them, and each to run here, or to say why it does not. Their sources come
// by the module proxy; where that is not reached, nothing is known of them.
func TestPublicCases(t *testing.T) {
	if os.Getenv("STINT_MUTANT") != "" {
		t.Skip("it looks at names, and needs the module proxy")
	}
	suites := publicSuites(t)
	if len(suites) < 4 {
		t.Fatalf("%d suites", len(suites))
	}
	for _, s := range suites {
		for name, where := range s.cases {
			if reason, left := strings.CutPrefix(where, "no:"); left {
				if len(reason) < 5 {
					t.Errorf("%s, %s is left out for no reason", s.module, name)
				}
				continue
			}
			path, words, _ := strings.Cut(where, "#")
			text, err := os.ReadFile(filepath.Join("..", path))
			if err != nil || words == "" || !strings.Contains(string(text), words) {
				t.Errorf("%s, %s: it is said to be in %q, which is not there: %v", s.module, name, where, err)
			}
		}
		theirs := testsOf(t, &s)
		if theirs == nil {
			continue
		}
		for _, name := range theirs {
			if s.cases[name] == "" {
				t.Errorf("%s/%s has %s, and proof/public.txt has not", s.module, s.dir, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.cases)) {
			if !slices.Contains(theirs, name) {
				t.Errorf("proof/public.txt has %s, and %s/%s %s has not", name, s.module, s.dir, s.version)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`^func (Test\w+)\(`)

// testsOf returns the names of a package's tests, nil if it cannot be had.
func testsOf(t *testing.T, s *publicSuite) (names []string) {
	t.Helper()
	for _, path := range sourcesOf(t, s) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if m := testFunction.FindStringSubmatch(lines.Text()); m != nil && m[1] != "TestMain" {
				names = append(names, m[1])
			}
		}
		_ = f.Close() // it was only read
	}
	return names
}

// sourcesOf returns the files of a package's tests, none if it cannot be had.
func sourcesOf(t *testing.T, s *publicSuite) []string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", s.module+"@"+s.version)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	cmd.Dir = t.TempDir() // where no module is
	out, err := cmd.Output()
	var found struct{ Dir string }
	if err != nil || json.Unmarshal(out, &found) != nil || found.Dir == "" {
		t.Logf("%s %s cannot be had: %v", s.module, s.version, err)
		return nil
	}
	files, err := filepath.Glob(filepath.Join(found.Dir, filepath.FromSlash(s.dir), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", filepath.Join(found.Dir, s.dir), err)
	}
	return files
}
