package browser_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/browser"
)

const axe = "../planner/lab/testdata/axe/axe-4.14.1.min.js.gz"

// site makes the site of the documents and serves its files, and nothing else.
func site(t *testing.T) (base string, pages []string) {
	t.Helper()
	out := t.TempDir()
	build := exec.Command("go", "run", "./site", "--out", out)
	build.Dir = "../../.."
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	files, err := filepath.Glob(filepath.Join(out, "*.html"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, file := range files {
		pages = append(pages, "/"+filepath.Base(file))
	}
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	t.Cleanup(server.Close)
	return server.URL, pages
}

// fits fails if the page is wider than the window.
func fits(p *browser.Tab, what string) {
	p.Helper()
	if wide := browser.Eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
		p.Errorf("%s is %d pixels wider than the window", what, wide)
	}
}

// looked are the pages that axe looks at without STINT_SOAK: of each kind one.
var looked = []string{"/index.html", "/limits.html", "/rules.html", "/figures.html", "/clients.html", "/lab.html"}

// TestSite opens every page of the site: none has an error on the console, or loads
// anything from elsewhere, each fits a phone, and axe finds no fault.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the site and opens each of its pages")
	}
	base, pages := site(t)
	chromium := browser.Start(t)
	for _, page := range pages {
		t.Run(page[1:], func(t *testing.T) {
			p := browser.Open(t, chromium, base, page, browser.Look{Width: 390, Height: 844})
			fits(p, page)
			if slices.Contains(looked, page) || os.Getenv("STINT_SOAK") != "" {
				p.Accessible(axe, page)
			}
		})
	}
	t.Run("dark", func(t *testing.T) {
		p := browser.Open(t, chromium, base, "/rules.html", browser.Look{Dark: true})
		p.Accessible(axe, "rules.html in the dark")
	})
	t.Run("search", func(t *testing.T) {
		p := browser.Open(t, chromium, base, "/index.html", browser.Look{})
		p.JS("document.getElementById('search').focus()")
		p.Set("#search", "retry after")
		p.Says("#found", "(")
	})
	t.Run("lab", func(t *testing.T) { labWithoutServer(t, chromium, base) })
	t.Run("lab on a phone", func(t *testing.T) {
		p := browser.Open(t, chromium, base, "/lab/index.html", browser.Look{Width: 390, Height: 844, Dark: true})
		p.Until("Number(document.body.dataset.drawn ?? 0) > 0")
		fits(p, "the lab")
		p.Accessible(axe, "lab, dark, on a phone")
	})
}

// longQuestion asks the engine in the page what would take it minutes: half of the
// requests fill a log, and each of the others looks through all of it.
const longQuestion = `(async () => {
	const n = 100000, limit = 4000000, all = Array.from({ length: n }, (_, i) => i);
	const costs = all.map((i) => (i < n / 2 ? limit / (n / 2) : limit));
	const arrivals = { shape: "list", times: all.map((i) => i * 1000), costs };
	const { simulate } = await import("./api.js");
	return simulate({ limits: Array(8).fill(limit + "/1h sliding_log"), arrivals, horizon: "1h" }).then(() => "", (err) => err.message);
})()`

// labWithoutServer follows a limit from a document into the lab, where the engine in
// the page decides.
func labWithoutServer(t *testing.T, chromium context.Context, base string) {
	p := browser.Open(t, chromium, base, "/index.html", browser.Look{})
	link := browser.Eval[string](p, "[...document.querySelectorAll('main a')].map((a) => a.getAttribute('href')).find((h) => h.startsWith('lab/'))")
	limit := browser.Eval[string](p, "[...document.querySelectorAll('main a')].find((a) => a.getAttribute('href').startsWith('lab/')).innerText")
	p.Go("/" + link)
	p.Until("Number(document.body.dataset.drawn ?? 0) > 0")
	t.Logf("%s: the first answer is drawn %.0f ms after the page was asked for", limit, browser.Eval[float64](p, "performance.getEntriesByName('from input to redraw').map((e) => e.startTime + e.duration)[0] ?? performance.now()"))
	p.Says("#compare", "denied")
	if browser.Eval[int](p, "document.querySelectorAll('#rows > *').length") != 1 {
		t.Errorf("%s: more rows than one", link)
	}
	p.Accessible(axe, "lab")
	if browser.Eval[bool](p, "document.getElementById('processes-group').checkVisibility()") {
		t.Error("several processes are offered, and cannot be had")
	}
	p.Set("#own", "no limit")
	p.Says("#error", "no limit")
	p.Set("#own", "3/1m fixed_window")
	p.Says("#compare", "3/1m fixed_window")
	p.Click("#presets", "Login")
	p.Says("#compare", "sliding_log")
	if !browser.Eval[bool](p, "[...document.querySelectorAll('#presets button')].every((b) => !b.innerText.includes('processes'))") {
		t.Error("an example of several processes is offered")
	}
	if said := browser.Eval[string](p, longQuestion); !strings.HasPrefix(said, "this takes longer than 5s") {
		t.Errorf("to a question that takes minutes the lab says %q", said)
	}
	p.Set("#own", "4/1m fixed_window")
	p.Says("#compare", "4/1m fixed_window")
	if back := browser.Eval[string](p, "document.querySelector('header a').getAttribute('href')"); back != "../index.html" {
		t.Errorf("the way back is %s", back)
	}
}
