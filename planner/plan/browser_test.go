package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// A tab shows a report from a file.
type tab struct{ *browser.Tab }

// openTab opens a file.
func openTab(t *testing.T, chromium context.Context, file string, look browser.Look) *tab {
	t.Helper()
	return &tab{browser.Open(t, chromium, "file://"+filepath.Dir(file), "/"+filepath.Base(file), look)}
}

// written writes a report's page to a file.
func written(t *testing.T, r *plan.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	disk.Write(t, file, b.String())
	return file
}

var desk = browser.Look{Width: 1000, Height: 900}

// TestBrowser opens the report in a browser.
func TestBrowser(t *testing.T) {
	unraced(t)
	chromium := browser.Start(t)
	file := written(t, shippedReport(t))
	for _, c := range []struct {
		name string
		look browser.Look
		do   func(*tab)
	}{
		{"load", desk, pageLoads},
		{"denied", desk, pageShowsDenied},
		{"phone", browser.Look{Width: 360, Height: 740}, pageOnPhone},
		{"paper", browser.Look{Width: 1000, Height: 900, Dark: true, Media: "print"}, pageOnPaper},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(openTab(t, chromium, file, c.look)) })
	}
}

func pageLoads(p *tab) {
	if first := browser.Eval[string](p.Tab, "document.querySelector('main section h2').textContent"); first != "What to choose" {
		p.Errorf("the page begins with %q, want the answer", first)
	}
	if title := browser.Eval[string](p.Tab, "document.title"); title != "stint plan: access.log.gz" {
		p.Errorf("title %q", title)
	}
	if n := browser.Eval[int](p.Tab, "document.querySelectorAll('main svg').length"); n != 2 {
		p.Errorf("%d drawings", n)
	}
}

func pageShowsDenied(p *tab) {
	shown := "[...document.querySelectorAll('svg path.denied')].map((e) => getComputedStyle(e).display !== 'none')"
	if got := browser.Eval[[]bool](p.Tab, shown); !slices.Equal(got, []bool{true, false, false}) {
		p.Errorf("at first: %v", got)
	}
	p.Do(chromedp.Click("input[name=shown][value='1']"))
	if got := browser.Eval[[]bool](p.Tab, shown); !slices.Equal(got, []bool{false, true, false}) {
		p.Errorf("the second limit: %v", got)
	}
}

func pageOnPhone(p *tab) {
	browser.Eval[int](p.Tab, "document.querySelectorAll('details').forEach((d) => { d.open = true; }) ?? 0")
	if w := browser.Eval[int](p.Tab, "document.documentElement.scrollWidth"); w > 360 {
		wide := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest('.wide')).map((e) => e.tagName + '.' + e.className).slice(0, 10)")
		p.Errorf("the page is %d pixels wide on a phone of 360: %v", w, wide)
	}
	if cut := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText.slice(0, 60) + ' is ' + e.scrollWidth + ' of ' + e.clientWidth)"); len(cut) > 0 {
		p.Errorf("tables are cut at the edge: %q", cut)
	}
	if h := browser.Eval[float64](p.Tab, "Math.min(...[...document.querySelectorAll('svg text')].filter((e) => e.getClientRects().length).map((e) => e.getBoundingClientRect().height))"); h < 10 {
		p.Errorf("labels are %v pixels high", h)
	}
	out := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('svg text')].filter((e) => { const t = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect(); return t.width && (t.left < s.left - 1 || t.right > s.right + 1); }).map((e) => e.textContent)")
	if len(out) > 0 {
		p.Errorf("labels reach out of their drawing: %q", out)
	}
}

// pageOnPaper prints, which is light whatever the screen is.
func pageOnPaper(p *tab) {
	style := func(of, what string) string {
		return browser.Eval[string](p.Tab, fmt.Sprintf("getComputedStyle(document.querySelector(%q)).%s", of, what))
	}
	if ground, text := style("html", "backgroundColor"), style("body", "color"); ground != "rgb(255, 255, 255)" || text != "rgb(0, 0, 0)" {
		p.Errorf("on paper: %s on %s", text, ground)
	}
	paper := browser.Call(p.Tab, page.PrintToPDF, page.PrintToPDFParams{PrintBackground: new(true)})
	text := paper.Data
	if !bytes.HasPrefix(text, []byte("%PDF-")) || len(text) < 20_000 {
		p.Errorf("%d bytes of PDF", len(text))
	}
}

// TestBrowserHostile opens a report of what clients sent to break out of it:
// it stays text, and the policy lets nothing else run or load.
func TestBrowserHostile(t *testing.T) {
	hostile := []string{
		`</script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`,
		`</title><script>alert(1)</script>`, `<base href=//example.net>`, "a\u2028b\u202ec", `' onfocus='alert(1)' autofocus='`,
	}
	var lines strings.Builder
	for i, key := range hostile {
		for j := range 5 {
			line, err := json.Marshal(map[string]any{"time": 1709640000 + i + j, "ip": key, "path": "/" + key})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%s\n", line)
		}
	}
	r := planText(t, []byte(lines.String()), plan.Options{
		Key: []string{"ip", "path"}, Limits: []string{"1/m"}, Choose: &plan.Target{Share: 0.5}, Fields: map[string]string{"user": "</pre><script>alert(1)</script>"},
	})
	p := openTab(t, browser.Start(t), written(t, r), desk)
	text := browser.Eval[string](p.Tab, "document.querySelectorAll('details').forEach((d) => { d.open = true; }); document.body.textContent")
	for _, key := range hostile {
		if !strings.Contains(text, key) {
			t.Errorf("%q does not stand in the page as it was sent", key)
		}
	}
	if n := browser.Eval[int](p.Tab, "document.querySelectorAll('img, base, iframe, object, [onload], [onerror], [onfocus], script[src]').length"); n != 0 {
		t.Errorf("%d elements that the page does not have", n)
	}
	if n := p.Refused(); n != 0 {
		t.Errorf("the policy had to refuse %d things", n)
	}
	// Were something in the page, it could do nothing.
	browser.Eval[int](p.Tab, `(() => {
		const add = (name, set) => document.body.append(Object.assign(document.createElement(name), set));
		add("script", {textContent: "window.broken = 1"});
		add("script", {src: "https://example.net/x.js"});
		add("img", {src: "https://example.net/x.png"});
		add("style", {textContent: "body { display: none }"});
		document.body.setAttribute("onclick", "window.broken = 1");
		document.body.click();
		return 0;
	})()`)
	if browser.Eval[bool](p.Tab, "window.broken === 1 || getComputedStyle(document.body).display === 'none'") {
		t.Error("the policy lets what was added to the page work")
	}
	if !browser.Eval[bool](p.Tab, "fetch('https://example.net/').then(() => false, () => true)") {
		t.Error("the page may fetch")
	}
	if n := p.Refused(); n < 5 {
		t.Errorf("the policy refused %d things, want all that were tried", n)
	}
}

// TestBrowserAccessible has axe-core look at the page.
func TestBrowserAccessible(t *testing.T) {
	unraced(t)
	chromium := browser.Start(t)
	file := written(t, shippedReport(t))
	for name, look := range map[string]browser.Look{
		"light": desk, "dark": {Width: 1000, Height: 900, Dark: true}, "phone": {Width: 360, Height: 740, Dark: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := openTab(t, chromium, file, look)
			browser.Eval[int](p.Tab, "document.querySelectorAll('details').forEach((d) => { d.open = true; }) ?? 0")
			p.Accessible("../lab/testdata/axe/axe-4.14.1.min.js.gz", name)
		})
	}
}

// TestBrowserShot takes the picture of docs/PLAN.md, with -update.
func TestBrowserShot(t *testing.T) {
	if !*golden.Update {
		t.Skip("-update takes the picture")
	}
	p := openTab(t, browser.Start(t), written(t, shippedReport(t)), browser.Look{Width: 800, Height: 900})
	disk.Write(t, "../../docs/plan-report.png", string(browser.Small(t, p.Shot())))
}
