package page_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/page"
)

// TestFiles: all that a browser loads is at most 150 KB, comes from here with a
// type that browsers take, and under a policy that lets in nothing else.
func TestFiles(t *testing.T) {
	const most = 150 << 10
	h := page.New(page.Options{})
	files, err := os.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	index := disk.Read(t, "files/index.html")
	first := make(map[string]bool)
	needed(t, "main.js", first)
	sum := 0
	for _, f := range files {
		text := disk.Read(t, "files/"+f.Name())
		sum += len(text)
		name, end := f.Name(), f.Name()[strings.LastIndexByte(f.Name(), '.')+1:]
		if end == "js" && strings.Contains(string(index), `"`+name+`"`) != first[name] {
			t.Errorf("%s: index.html is to name what the overview needs, which would be found late, and nothing else: it needs this %t", name, first[name])
		}
		if name == "index.html" {
			name = ""
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/"+name, nil))
		served := w.Body.String()
		if f.Name() == "index.html" { // its styles stand in it
			styles := disk.Read(t, "files/page.css")
			served = strings.Replace(served, "<style>"+string(styles)+"</style>", `<link rel="stylesheet" href="page.css">`, 1)
		}
		want := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}[end]
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want || served != string(text) {
			t.Errorf("%s: %d %q", f.Name(), w.Code, w.Header().Get("Content-Type"))
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'sha256-") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "require-trusted-types-for 'script'") {
			t.Errorf("%s: Content-Security-Policy: %s", f.Name(), csp)
		}
		outside := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		if strings.Contains(outside, "http://") || strings.Contains(outside, "https://") {
			t.Errorf("%s names an address elsewhere", f.Name())
		}
	}
	if sum > most {
		t.Errorf("%d bytes in all, at most %d", sum, most)
	}
	t.Logf("%d files, %d bytes", len(files), sum)
}

// needed adds a module, and what it needs before it runs.
func needed(t *testing.T, name string, all map[string]bool) {
	t.Helper()
	if all[name] {
		return
	}
	all[name] = true
	text := disk.Read(t, "files/"+name)
	for _, found := range regexp.MustCompile(`(?m)^import .* from "\./([a-z]+\.js)";$`).FindAllStringSubmatch(string(text), -1) {
		needed(t, found[1], all)
	}
}

// TestColours: the page has the colours of the lab.
func TestColours(t *testing.T) {
	colours := func(file string) string {
		text := disk.Read(t, file)
		root, _, _ := strings.Cut(string(text), "\n* {")
		return root
	}
	if page, lab := colours("files/page.css"), colours("../../planner/lab/page/lab.css"); page != lab || len(lab) < 500 {
		t.Errorf("the page has\n%s\nthe lab\n%s", page, lab)
	}
}
