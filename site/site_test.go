package main_test

import (
	"encoding/json"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	main "github.com/stint-dev/stint/site"
)

var (
	references = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	identities = regexp.MustCompile(` id="([^"]*)"`)
)

// tried reads the address of a limit in the lab.
func tried(t *testing.T, fragment string) {
	t.Helper()
	state, err := url.ParseQuery(html.UnescapeString(fragment))
	if err != nil {
		t.Errorf("%s: %v", fragment, err)
	}
	if _, err := stint.Parse(state.Get("own")); err != nil {
		t.Errorf("%s: %v", fragment, err)
	}
}

// TestSite builds the site of the documents as they are: every link inside leads
// to a page and a heading that are there, and no page loads anything from
// elsewhere.
func TestSite(t *testing.T) {
	out := t.TempDir()
	n, err := main.Build("..", out)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil || n < len(documents)+4 {
		t.Errorf("%d pages of %d documents, and README, SECURITY, CHANGELOG, CONTRIBUTING: name new ones in groups", n, len(documents))
	}
	pages, ids := make(map[string]string), make(map[string]bool)
	names, err := filepath.Glob(filepath.Join(out, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(name)] = string(text)
		for _, m := range identities.FindAllStringSubmatch(string(text), -1) {
			ids[filepath.Base(name)+"#"+m[1]] = true
		}
	}
	limits := 0
	for name, text := range pages {
		if strings.Contains(text, ` style="`) || strings.Contains(text, "<script>") {
			t.Errorf("%s has a style or a script that its policy forbids", name)
		}
		for _, m := range references.FindAllStringSubmatch(text, -1) {
			link := m[1]
			if strings.HasPrefix(m[0], "src") && strings.Contains(link, "://") {
				t.Errorf("%s loads %s", name, link)
			}
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			file, fragment, _ := strings.Cut(link, "#")
			if file == "" {
				file = name
			}
			if _, err := os.Stat(filepath.Join(out, file)); err != nil {
				t.Errorf("%s links to %s: %v", name, link, err)
			}
			if file == "lab/index.html" {
				if fragment != "" {
					limits++
					tried(t, fragment)
				}
				continue
			}
			if fragment != "" && !ids[file+"#"+fragment] {
				t.Errorf("%s links to %s: no such heading", name, link)
			}
		}
	}
	if limits < 40 {
		t.Errorf("%d limits lead to the lab", limits)
	}
	engine, err := os.Stat(filepath.Join(out, "lab", "lab.bin"))
	if err != nil || engine.Size() > 2e6 {
		t.Errorf("the lab's engine: %v, %v", engine, err)
	}
	text, err := os.ReadFile(filepath.Join(out, "index.json"))
	var index []struct{ P, I, T, X string }
	if err != nil || json.Unmarshal(text, &index) != nil || len(index) < 100 {
		t.Fatalf("%v, %d passages", err, len(index))
	}
	for _, one := range index {
		if one.I != "" && !ids[one.P+"#"+one.I] {
			t.Errorf("search finds %s#%s, which is not there", one.P, one.I)
		}
	}
}
