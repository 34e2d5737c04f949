package lab_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// A tab shows the lab.
type tab struct{ *browser.Tab }

// openTab opens the lab in a tab of the given size in pixels, at the state of a hash.
func openTab(t testing.TB, chromium context.Context, base, hash string, width, height int64, dark bool) *tab {
	t.Helper()
	p := &tab{browser.Open(t, chromium, base, "/#"+hash, browser.Look{Width: width, Height: height, Dark: dark, Refused: []string{"400"}})}
	p.drawn(0)
	return p
}

// drawn waits until the page has been drawn more often, and stands still.
func (p *tab) drawn(before int) {
	p.Helper()
	p.Until("Number(document.body.dataset.drawn ?? 0) > %d", before)
}

func (p *tab) draws() int {
	p.Helper()
	return browser.Eval[int](p.Tab, "Number(document.body.dataset.drawn ?? 0)")
}

// text returns what an element says.
func (p *tab) text(selector string) string {
	p.Helper()
	return browser.Eval[string](p.Tab, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// box returns where an element is in the window.
func (p *tab) box(selector string) (x, y, width, height float64) {
	p.Helper()
	b := browser.Eval[[4]float64](p.Tab, fmt.Sprintf("(() => { const e = document.querySelector(%q); e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()", selector))
	return b[0], b[1], b[2], b[3]
}

// point moves the pointer, with no button down.
func (p *tab) point(x, y float64) {
	p.Helper()
	p.Mouse(chromedp.MouseMoved, x, y, input.MouseButtonNone)
}

// drag presses at the first point, moves through the others and lets go.
func (p *tab) drag(points ...[2]float64) {
	p.Helper()
	p.Mouse(chromedp.MousePressed, points[0][0], points[0][1], input.MouseButtonLeft)
	for _, to := range points[1:] {
		p.Mouse(chromedp.MouseMoved, to[0], to[1], input.MouseButtonLeft)
	}
	last := points[len(points)-1]
	p.Mouse(chromedp.MouseReleased, last[0], last[1], input.MouseButtonLeft)
}

func (p *tab) contains(what, text string, parts ...string) {
	p.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			p.Errorf("%s: %q is not in %q", what, part, text)
		}
	}
}

// TestPage uses the lab in a browser.
func TestPage(t *testing.T) {
	chromium := browser.Start(t)
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{})))
	defer server.Close()
	for _, c := range []struct {
		name  string
		hash  string
		width int64
		do    func(*tab)
	}{
		{"load", "", 1280, pageLoads},
		{"drag", "", 1280, pageDrags},
		{"why", "", 1280, pageSaysWhy},
		{"draw", "", 1280, pageIsDrawnOn},
		{"keyboard", "", 1280, pageByKeyboard},
		{"shapes", "", 1280, pageShapes},
		{"many", "shape=steady&rate=20%2F1s&horizon=5000s", 1280, pageMany},
		{"copy", "kinds=leaky_queue", 1280, pageCopies},
		{"share", "count=7&kinds=sliding_log&shape=burst&size=9&every=2s&own=1,000%2Fh+burst+20,100%2Fmin,every+1s&why=0.8", 1280, pageIsShared},
		{"table", "shape=several&kinds=gcra", 1280, pageAsTable},
		{"errors", "", 1280, pageSaysErrors},
		{"phone", "kinds=gcra,leaky_queue&why=0.11", 360, pageOnPhone},
		{"narrow phone", "", 320, pageOnPhone},
		{"clients on a phone", "shape=several&clients=7&kinds=gcra", 360, pageOnPhone},
		{"compare", "", 1280, pageCompares},
		{"fill", "", 1280, pageFills},
		{"clients", "shape=several&clients=8&kinds=gcra&rate=25%2F1s&other=8%2F1s", 1280, pageShowsClients},
		{"tied", "", 1280, pageTies},
		{"presets", "", 1280, pageTakesPresets},
		{"in flight", flights, 1280, pageShowsFlights},
		{"in flight on a narrow phone", flights, 320, pageOnPhone},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(openTab(t, chromium, server.URL, c.hash, c.width, 900, false)) })
	}
}

func pageLoads(p *tab) {
	p.contains("the rows", p.text("#rows"), "10/1s\n", "10/1s fixed_window", "10/1s sliding_log", "40 passed", "20 denied", "30 passed", "at most 19 in any 1s")
	p.Until("document.getElementById('summary').textContent.includes('10/1s: 40 passed, 20 denied; 10/1s fixed_window: 40 passed')")
	if hash := browser.Eval[string](p.Tab, "location.hash"); hash != "#" && hash != "" {
		p.Errorf("the start is written into the address: %s", hash)
	}
}

func pageDrags(p *tab) {
	x, y, w, h := p.box("#count-range")
	before := p.draws()
	value := browser.Eval[float64](p.Tab, "(() => { const r = document.getElementById('count-range'); return r.value / r.max; })()")
	from, middle := x+8+(w-16)*value, y+h/2
	p.drag([2]float64{from, middle}, [2]float64{from + 20, middle}, [2]float64{from + 60, middle}, [2]float64{x + w - 4, middle})
	p.drawn(before)
	p.Until("document.querySelector('#rows code').textContent === '10000/1s' && document.querySelector('#rows .totals').innerText.includes('60 passed')")
	p.contains("the field", browser.Eval[string](p.Tab, "document.getElementById('count').value"), "10000")
	p.Until("location.hash.includes('count=10000')")
	if n := browser.Eval[int](p.Tab, "performance.getEntriesByName('from input to redraw').length"); n == 0 {
		p.Error("no time from an input to its redraw was measured")
	}
}

// denied moves the pointer over the plot of a row until a denied request is
// under it.
func (p *tab) denied(row string, at float64) (x, y float64) {
	p.Helper()
	left, top, width, height := p.box(row + " canvas")
	x = left + 44 + (width-50)*at
	for y = top; y < top+height; y += 2 {
		p.point(x, y)
		if strings.Contains(p.text(row+" .readout"), "denied") {
			return x, y
		}
	}
	p.Fatal("no denied request is under the pointer")
	return 0, 0
}

func pageSaysWhy(p *tab) {
	x, y := p.denied(".row:nth-child(3)", 2.01/6)
	p.contains("the readout", p.text(".row:nth-child(3) .readout"), "at 2s: denied, 0 remaining, retry after 900ms")
	p.drag([2]float64{x, y})
	p.Until("document.querySelector('.row:nth-child(3) .why') !== null")
	p.contains("why", p.text(".row:nth-child(3) .why"), "Denied at 2s", "10 of 10 had been counted", "The oldest of them, from 1.9s, stops counting at 2.9s", "retry after\n900ms")
	p.Until("location.hash.includes('why=2.')")
	left, top, width, height := p.box(".row:nth-child(1) canvas")
	p.point(left+44+(width-50)*4.51/6, top+height*0.8)
	p.contains("between requests", p.text(".row:nth-child(1) .readout"), "Just before 4.55s: 10 of 10 in use, 0 remaining, retry after 50ms.")
	p.contains("the other row, same pointer", p.text(".row:nth-child(2) .readout"), "Just before 4.55s: 10 of 10 in use, 0 remaining, retry after 450ms.")
}

func pageIsDrawnOn(p *tab) {
	p.Set("#shape", "steady")
	p.Until("document.querySelector('#sketch canvas').getAttribute('aria-label').startsWith('120 requests')")
	x, y, w, h := p.box("#sketch canvas")
	at := func(share, height float64) [2]float64 {
		return [2]float64{x + 44 + (w-50)*share, y + h - 4 - (h-12)*height}
	}
	p.drag(at(0.5, 1), at(0.55, 1), at(0.6, 1))
	p.Until("document.getElementById('shape').value === 'draw' && document.getElementById('p-counts') !== null")
	counts := strings.Fields(browser.Eval[string](p.Tab, "document.getElementById('p-counts').value"))
	if len(counts) != 60 || counts[10] != "2" || counts[31] == "2" || counts[31] != counts[36] {
		p.Errorf("drawn: %v", counts)
	}
	p.Until("location.hash.includes('shape=draw')")
}

// pageByKeyboard uses nothing but keys: to the results, to a denied request, to
// why, back, and to a slider.
func pageByKeyboard(p *tab) {
	press := p.Press
	press(kb.Tab)
	p.contains("first comes the way past the controls", p.text(":focus"), "Skip to the results")
	press(kb.Enter)
	p.Until("document.activeElement.id === 'results'")
	tabTo := func(selector string) {
		for range 60 {
			if browser.Eval[bool](p.Tab, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
				return
			}
			press(kb.Tab)
		}
		p.Fatalf("no key leads to %s", selector)
	}
	tabTo(".row:nth-child(1) .plot")
	press(kb.ArrowRight)
	said := "document.activeElement.getAttribute('aria-valuetext')"
	p.contains("the first request", browser.Eval[string](p.Tab, said), "Request 1 at 1.9s: passed, 9 remaining")
	press("n")
	p.contains("the first denied", browser.Eval[string](p.Tab, said), "Request 12 at 2s: denied, 0 remaining, retry after 100ms")
	press(kb.Enter)
	p.Until("document.querySelector('.row:nth-child(1) .why') !== null")
	p.contains("why", p.text(".row:nth-child(1) .why"), "theoretical arrival time")
	tabTo(".why h3 button")
	press(kb.Enter)
	p.Until("document.querySelector('.why') === null && document.activeElement.matches('.plot')")
	press(kb.End)
	p.contains("the last request", browser.Eval[string](p.Tab, said), "Request 60 at")
	p.JS("document.getElementById('period-range').focus()")
	press(kb.ArrowRight)
	p.Until("document.querySelector('#rows code').textContent === '10/2s'")
	p.contains("the slider", browser.Eval[string](p.Tab, said), "2s")
	p.JS("document.getElementById('kind-leaky_queue').focus()")
	press(" ")
	p.Until("document.querySelectorAll('.row').length === 4")
}

// pageShapes goes through all shapes; what is wrong is noted by the tab.
func pageShapes(p *tab) {
	shapes := browser.Eval[[]string](p.Tab, "[...document.getElementById('shape').options].map((o) => o.value)")
	if len(shapes) != len(lab.Shapes())-1 {
		p.Errorf("the page offers %v", shapes)
	}
	for _, s := range shapes {
		before := p.draws()
		p.Set("#shape", s)
		p.drawn(before)
		if browser.Eval[bool](p.Tab, "!document.getElementById('error').hidden") {
			p.Errorf("%s: %s", s, p.text("#error"))
		}
		if about := p.text("#shape-note"); about == "" {
			p.Errorf("%s is not explained", s)
		}
	}
}

func pageMany(p *tab) {
	p.contains("the rows", p.text("#rows"), "50,009 passed", "49,991 denied")
	x, y := 0.0, 0.0
	left, top, width, height := p.box(".row:nth-child(1) canvas")
	x, y = left+44+(width-50)*0.5, top+height*0.4
	before := p.draws()
	p.drag([2]float64{x, y})
	p.drawn(before)
	p.Until("document.querySelector('.why.denied') !== null")
}

func pageCopies(p *tab) {
	p.JS("document.querySelector('.row .copy').click()")
	p.Until("document.getElementById('copies').open")
	p.contains("the forms", p.text("#forms"), `limits: ["10/1s leaky_queue"]`, `stint.Parse("10/1s leaky_queue")`, "limiter.Wait(", "stint simulate --arrivals '+1.9s 10@once +100ms 10@once +1s 40@20/1s +1s'")
	p.Press(kb.Escape)
	p.Until("!document.getElementById('copies').open")
}

func pageIsShared(p *tab) {
	p.contains("the rows", p.text("#rows"), "7/1s sliding_log", "\n1000/1h burst 20\n", "\n100/1m\n", "\n1/1s\n", "Denied at 0s")
	p.contains("the field", browser.Eval[string](p.Tab, "document.getElementById('p-size').value"), "9")
	p.Until("location.hash.includes('why=0.8') && location.hash.includes('count=7') && location.hash.includes('own=1')")
	p.JS("location.hash = 'count=3&kinds=gcra'")
	p.Until("document.querySelectorAll('.row').length === 1 && document.querySelector('#rows code').textContent.startsWith('3/1s')")
}

func pageAsTable(p *tab) {
	p.JS("document.querySelector('.row .foot details > summary').click()")
	p.Until("document.querySelectorAll('.row table tbody tr').length === 180")
	p.contains("the table", p.text(".row table tbody tr:nth-child(2)"), "2\t0s\tclient 2\tpassed\t0\t9")
}

func pageSaysErrors(p *tab) {
	p.Set("#own", "ten")
	p.Until("!document.getElementById('error').hidden")
	p.contains("the error", p.text("#error"), `limits[3]: limit "ten", column 1`)
	p.contains("beside the field", p.text("#kinds .wrong"), `limits[3]: limit "ten", column 1`)
	if !browser.Eval[bool](p.Tab, "document.getElementById('own').getAttribute('aria-invalid') === 'true' && document.getElementById('compared').hidden") {
		p.Error("the field is not marked, or the sentence is of what was asked before")
	}
	p.Set("#own", "")
	p.Until("document.getElementById('error').hidden && document.querySelector('.wrong') === null")
	p.Set("#period", "soon")
	p.Until("document.getElementById('period').getAttribute('aria-invalid') === 'true'")
}

func pageOnPhone(p *tab) {
	p.JS("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
	if w := browser.Eval[int](p.Tab, "document.documentElement.scrollWidth - innerWidth"); w > 0 {
		wide := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll')).map((e) => e.tagName + '.' + e.className).slice(0, 10)")
		p.Errorf("the page is %d pixels wider than the phone: %v", w, wide)
	}
	if cut := browser.Eval[int](p.Tab, "((e) => e.scrollWidth - e.clientWidth)(document.querySelector('#compared .scroll'))"); cut > 8 { // fonts differ
		p.Errorf("%d pixels of the table of limits are cut off", cut)
	}
}

// TestPageAccessible has axe-core look at the page in its states.
func TestPageAccessible(t *testing.T) {
	chromium := browser.Start(t)
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{Plan: lab.NewPlanner(lab.PlannerOptions{})})))
	defer server.Close()
	for _, c := range []struct {
		name  string
		hash  string
		width int64
		dark  bool
		open  string
	}{
		{"light", "why=0.11&kinds=gcra,leaky_queue", 1280, false, "document.querySelectorAll('details').forEach((d) => { d.open = true; })"},
		{"dark", "why=0.11&kinds=gcra,leaky_queue&shape=several", 1280, true, "document.querySelectorAll('details').forEach((d) => { d.open = true; })"},
		{"phone", "shape=draw", 360, false, "0"},
		{"in flight", flights + "&why=1.4", 360, false, "document.querySelectorAll('details').forEach((d) => { d.open = true; })"},
		{"copy", "", 1280, true, "document.querySelector('.copy').click()"},
		{"error", "own=x", 1280, true, "0"},
		{"log", "", 1280, false, "document.querySelectorAll('details').forEach((d) => { d.open = true; })"},
		{"log in the dark", "", 1280, true, "0"},
		{"log on a phone", "", 360, true, "0"},
		{"no log", "", 1280, false, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hash := c.hash
			if c.name == "error" { // first as it should be, so that something is drawn
				hash = ""
			}
			p := openTab(t, chromium, server.URL, hash, c.width, 900, c.dark)
			if c.name == "error" {
				p.Set("#own", "x")
				p.Until("!document.getElementById('error').hidden")
			}
			switch {
			case strings.HasPrefix(c.name, "log"):
				p.choose(shipped)
				p.Until(reported)
			case c.name == "no log":
				p.choose("page_test.go")
				p.Until("!document.getElementById('log-error').hidden")
			}
			p.JS("%s", c.open)
			if c.name == "copy" {
				p.Until("document.getElementById('copies').open")
			}
			p.Accessible("testdata/axe/axe-4.14.1.min.js.gz", c.name)
		})
	}
}

// TestPageShots takes the screenshots of docs/LAB.md, with -update.
func TestPageShots(t *testing.T) {
	if !*golden.Update {
		t.Skip("-update takes the pictures")
	}
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{Plan: lab.NewPlanner(lab.PlannerOptions{})})))
	defer server.Close()
	for _, c := range []struct {
		name          string
		hash          string
		width, height int64
		dark          bool
	}{
		{"light", "kinds=gcra,fixed_window,sliding_log&why=0.11", 1280, 960, false},
		{"dark", "kinds=leaky_queue,sliding_counter,sliding_buckets&parts=4&shape=onoff&rate=25%2F1s&why=0.40", 1280, 900, true},
		{"phone", "kinds=gcra&shape=burst&size=14&every=2s", 360, 1010, false},
		{"plan", "kinds=gcra,fixed_window&count=30&period=1m&burst=30&horizon=6m&gap=6s&size=30&rate=60%2F1m", 1180, 1290, false},
	} {
		p := openTab(t, browser.Start(t), server.URL, c.hash, c.width, c.height, c.dark)
		if c.name == "plan" {
			p.Set("#log-share", "1%")
			p.choose(shipped)
			p.Until(reported)
			p.JS("scrollTo(0, 0)")
		}
		disk.Write(t, "../../docs/lab-"+c.name+".png", string(browser.Small(t, p.Shot())))
	}
}
