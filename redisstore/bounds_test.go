package redisstore_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// bounds returns the rows of the table "Bounds" of docs/REDIS-REFERENCE.md: what is bound,
// how, and which tests show it.
func bounds(t testing.TB) (rows [][]string) {
	t.Helper()
	_, section, ok := strings.Cut(pages.Read(t, "docs/REDIS-REFERENCE.md"), "\n## Bounds\n")
	if !ok {
		t.Fatal("docs/REDIS-REFERENCE.md has no section Bounds")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(row) == 3 && row[0] != "what" {
			rows = append(rows, row)
		}
	}
	return rows
}

// shows prints a bound that the test has just held something to, and fails if the
// document has another, or does not name the test.
func shows(t testing.TB, what, bound string) {
	t.Helper()
	t.Logf("bound: %s: %s", what, bound)
	name, _, _ := strings.Cut(t.Name(), "/")
	for _, row := range bounds(t) {
		if row[0] != what {
			continue
		}
		if row[1] != bound || !strings.Contains(row[2], "`"+name+"`") {
			t.Errorf("docs/REDIS-REFERENCE.md says of %s: %s, shown by %s; %s holds it to %s", what, row[1], row[2], name, bound)
		}
		return
	}
	t.Errorf("docs/REDIS-REFERENCE.md does not say: %s: %s", what, bound)
}

// TestBounds finds for each bound of the document a test that prints it, and that
// all tests it names exist.
func TestBounds(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	beside, err := filepath.Glob("../fallback/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range append(files, beside...) {
		text := disk.Read(t, file)
		source.Write(text)
	}
	rows := bounds(t)
	if len(rows) < 9 {
		t.Errorf("%d bounds", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(source.String(), `shows(t, "`+row[0]+`"`) {
			t.Errorf("no test prints the bound of %s", row[0])
		}
		for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(row[2], -1) {
			if !strings.Contains(source.String(), "\nfunc "+name[1]+"(") {
				t.Errorf("%s: there is no %s", row[0], name[1])
			}
		}
	}
}
