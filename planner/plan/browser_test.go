package plan_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stint-dev/stint/planner/plan"

	"github.com/stint-dev/stint/planner/browser"
)

// A tab shows a report from a file, and notes whatever should not happen.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	problems []string
	requests map[network.RequestID]string // that the policy did not refuse
}

// A view is how a page is looked at.
type view struct {
	width, height int64
	media, scheme string
}

// openTab opens a file.
func openTab(t *testing.T, chromium context.Context, file string, v view) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium)
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
	p := &tab{T: t, ctx: ctx, url: "file://" + file, requests: make(map[network.RequestID]string)}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Error(problem)
		}
		for _, url := range p.requests {
			t.Errorf("a request for %s", url)
		}
		stop()
		cancel()
	})
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: v.height, DeviceScaleFactor: 1, Mobile: v.width < 500})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: v.media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
	p.do(chromedp.Navigate(p.url))
	return p
}

func (p *tab) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value)
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *log.EventEntryAdded: // also what the page's policy refuses
		problem = fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		problem = "a dialogue: " + e.Message
	case *network.EventRequestWillBeSent:
		if e.Request.URL != p.url {
			p.mu.Lock()
			p.requests[e.RequestID] = e.Request.URL
			p.mu.Unlock()
		}
	case *network.EventLoadingFailed:
		if e.BlockedReason == network.BlockedReasonCsp {
			p.mu.Lock()
			delete(p.requests, e.RequestID)
			p.mu.Unlock()
		}
	}
	if problem != "" {
		p.mu.Lock()
		p.problems = append(p.problems, problem)
		p.mu.Unlock()
	}
}

// refused takes back the notes of what the page's policy refused, and returns
// how many there were.
func (p *tab) refused() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = slices.DeleteFunc(p.problems, func(problem string) bool {
		policy := strings.Contains(problem, "Content Security Policy")
		if policy {
			n++
		}
		return policy
	})
	return n
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// call sends a command of the browser's protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], parameters P) R {
	p.Helper()
	r, err := chromedp.Call(p.ctx, command, parameters)
	if err != nil {
		p.Fatal(err)
	}
	return r
}

// eval returns the value of an expression in the page.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, func(e *runtime.EvaluateParams) { e.AwaitPromise = new(true) }))
	if err != nil {
		p.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

func (p *tab) mouse(kind input.DispatchMouseEventType, x, y float64) {
	p.Helper()
	call(p, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1})
}

// above is what the page says of the limit line.
func (p *tab) above() string {
	p.Helper()
	return eval[string](p, "document.getElementById('above').textContent")
}

// written writes a report's page to a file.
func written(t *testing.T, r *plan.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var desk = view{1000, 900, "screen", "light"}

// TestBrowser opens the report in a browser.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	unraced(t)
	chromium := browser.Start(t)
	file := written(t, shippedReport(t))
	for _, c := range []struct {
		name string
		view view
		do   func(*tab)
	}{
		{"load", desk, pageLoads},
		{"drag", desk, pageDrags},
		{"keyboard", desk, pageByKeyboard},
		{"denied", desk, pageShowsDenied},
		{"phone", view{360, 740, "screen", "light"}, pageOnPhone},
		{"paper", view{1000, 900, "print", "dark"}, pageOnPaper},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(openTab(t, chromium, file, c.view)) })
	}
}

func pageLoads(p *tab) {
	if first := eval[string](p, "document.querySelector('main section h2').textContent"); first != "What to choose" {
		p.Errorf("the page begins with %q, want the answer", first)
	}
	if title := eval[string](p, "document.title"); title != "stint plan: access.log.gz" {
		p.Errorf("title %q", title)
	}
	if n := eval[int](p, "document.querySelectorAll('main svg').length"); n != 4 {
		p.Errorf("%d drawings", n)
	}
	if got, want := p.above(), "27 in one minute: 4 of 485 clients sent more (0.82%)"; got != want {
		p.Errorf("the line stands at %q, want %q", got, want)
	}
}

func pageDrags(p *tab) {
	b := eval[[4]float64](p, "(() => { const e = document.querySelector('#spread svg'); e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
	at := func(part float64) float64 { return b[0] + b[2]*(56+part*(720-56-16))/720 }
	middle := b[1] + b[3]/2
	p.mouse(chromedp.MousePressed, at(0.5), middle)
	if got := p.above(); !strings.HasPrefix(got, "27 in one minute: 4 of 485") {
		p.Errorf("in the middle of 1 to 732: %q", got)
	}
	p.mouse(chromedp.MouseMoved, at(0.8), middle)
	p.mouse(chromedp.MouseMoved, at(1.2), middle) // past the edge
	if got := p.above(); !strings.HasSuffix(got, "0 of 485 clients sent more (none)") {
		p.Errorf("at the right end: %q", got)
	}
	p.mouse(chromedp.MouseMoved, at(0), middle)
	p.mouse(chromedp.MouseReleased, at(0), middle)
	first := p.above()
	if !strings.HasPrefix(first, "1 in one minute: ") {
		p.Errorf("at the left end: %q", first)
	}
	p.mouse(chromedp.MouseMoved, at(0.7), middle)
	if got := p.above(); got != first {
		p.Errorf("the line follows a pointer that let go of it: %q", got)
	}
}

// pageByKeyboard uses nothing but keys.
func pageByKeyboard(p *tab) {
	press := func(key string) { p.do(chromedp.KeyEvent(key)) }
	for i := 0; eval[string](p, "document.activeElement.getAttribute('role') ?? ''") != "slider"; i++ {
		if press(kb.Tab); i > 30 {
			p.Fatal("no key leads to the line")
		}
	}
	press(kb.PageDown)
	if got := p.above(); !strings.HasPrefix(got, "17 in one minute: ") {
		p.Errorf("a page down from 27: %q", got)
	}
	press(kb.Home)
	for range 4 {
		press(kb.ArrowRight)
	}
	if got, said := p.above(), eval[string](p, "document.activeElement.getAttribute('aria-valuetext')"); !strings.HasPrefix(got, "5 in one minute: ") || said != got {
		p.Errorf("four to the right of 1: %q, spoken %q", got, said)
	}
	press(kb.End)
	if got := p.above(); !strings.HasSuffix(got, "(none)") {
		p.Errorf("at the end: %q", got)
	}
	p.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('input[name=per]:checked').focus()"))
	press(kb.ArrowRight)
	if got := p.above(); !strings.Contains(got, "in one hour") {
		p.Errorf("by the hour: %q", got)
	}
}

func pageShowsDenied(p *tab) {
	shown := "[...document.querySelectorAll('svg path.denied')].map((e) => getComputedStyle(e).display !== 'none')"
	if got := eval[[]bool](p, shown); !slices.Equal(got, []bool{true, false, false}) {
		p.Errorf("at first: %v", got)
	}
	p.do(chromedp.Click("input[name=shown][value='1']"))
	if got := eval[[]bool](p, shown); !slices.Equal(got, []bool{false, true, false}) {
		p.Errorf("the second limit: %v", got)
	}
}

func pageOnPhone(p *tab) {
	eval[int](p, "document.querySelectorAll('details').forEach((d) => { d.open = true; }) ?? 0")
	if w := eval[int](p, "document.documentElement.scrollWidth"); w > 360 {
		wide := eval[[]string](p, "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest('.wide')).map((e) => e.tagName + '.' + e.className).slice(0, 10)")
		p.Errorf("the page is %d pixels wide on a phone of 360: %v", w, wide)
	}
	if cut := eval[[]string](p, "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText.slice(0, 60) + ' is ' + e.scrollWidth + ' of ' + e.clientWidth)"); len(cut) > 0 {
		p.Errorf("tables are cut at the edge: %q", cut)
	}
	if h := eval[float64](p, "Math.min(...[...document.querySelectorAll('svg text')].filter((e) => e.getClientRects().length).map((e) => e.getBoundingClientRect().height))"); h < 10 {
		p.Errorf("labels are %v pixels high", h)
	}
	out := eval[[]string](p, "[...document.querySelectorAll('svg text')].filter((e) => { const t = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect(); return t.width && (t.left < s.left - 1 || t.right > s.right + 1); }).map((e) => e.textContent)")
	if len(out) > 0 {
		p.Errorf("labels reach out of their drawing: %q", out)
	}
}

// pageOnPaper prints, which is light whatever the screen is.
func pageOnPaper(p *tab) {
	style := func(of, what string) string {
		return eval[string](p, fmt.Sprintf("getComputedStyle(document.querySelector(%q)).%s", of, what))
	}
	if ground, text := style("html", "backgroundColor"), style("body", "color"); ground != "rgb(255, 255, 255)" || text != "rgb(0, 0, 0)" {
		p.Errorf("on paper: %s on %s", text, ground)
	}
	paper := call(p, page.PrintToPDF, page.PrintToPDFParams{PrintBackground: new(true)})
	text := paper.Data
	if !bytes.HasPrefix(text, []byte("%PDF-")) || len(text) < 20_000 {
		p.Errorf("%d bytes of PDF", len(text))
	}
}

// TestBrowserHostile opens a report of what clients sent to break out of it:
// it stays text, and the policy lets nothing else run or load.
func TestBrowserHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
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
	text := eval[string](p, "document.querySelectorAll('details').forEach((d) => { d.open = true; }); document.body.textContent")
	for _, key := range hostile {
		if !strings.Contains(text, key) {
			t.Errorf("%q does not stand in the page as it was sent", key)
		}
	}
	if n := eval[int](p, "document.querySelectorAll('img, base, iframe, object, [onload], [onerror], [onfocus], script[src]').length"); n != 0 {
		t.Errorf("%d elements that the page does not have", n)
	}
	if n := p.refused(); n != 0 {
		t.Errorf("the policy had to refuse %d things", n)
	}
	// Were something in the page, it could do nothing.
	eval[int](p, `(() => {
		const add = (name, set) => document.body.append(Object.assign(document.createElement(name), set));
		add("script", {textContent: "window.broken = 1"});
		add("script", {src: "https://example.net/x.js"});
		add("img", {src: "https://example.net/x.png"});
		add("style", {textContent: "body { display: none }"});
		document.body.setAttribute("onclick", "window.broken = 1");
		document.body.click();
		return 0;
	})()`)
	if eval[bool](p, "window.broken === 1 || getComputedStyle(document.body).display === 'none'") {
		t.Error("the policy lets what was added to the page work")
	}
	if !eval[bool](p, "fetch('https://example.net/').then(() => false, () => true)") {
		t.Error("the page may fetch")
	}
	if n := p.refused(); n < 5 {
		t.Errorf("the policy refused %d things, want all that were tried", n)
	}
}

// TestBrowserAccessible has axe-core look at the page.
func TestBrowserAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	unraced(t)
	chromium := browser.Start(t)
	file := written(t, shippedReport(t))
	axe := axeCore(t)
	for name, v := range map[string]view{
		"light": desk, "dark": {1000, 900, "screen", "dark"}, "phone": {360, 740, "screen", "dark"},
	} {
		t.Run(name, func(t *testing.T) {
			p := openTab(t, chromium, file, v)
			eval[int](p, "document.querySelectorAll('details').forEach((d) => { d.open = true; }) ?? 0")
			eval[int](p, axe+"; 0")
			for _, broken := range eval[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then((r) =>
				r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 160) + " " + n.failureSummary)))`) {
				t.Error(broken)
			}
		})
	}
}

// axeCore is the copy that the lab's tests have.
func axeCore(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../lab/testdata/axe/axe-4.14.1.min.js.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBrowserShot holds the picture of docs/PLAN.md: with -update, it takes it.
func TestBrowserShot(t *testing.T) {
	const file, most = "../../docs/plan-report.png", 150 << 10
	if *update {
		p := openTab(t, browser.Start(t), written(t, shippedReport(t)), view{800, 900, "screen", "light"})
		shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(bytes.NewReader(shot))
		if err != nil {
			t.Fatal(err)
		}
		var small bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := encoder.Encode(&small, picture); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() > most {
		t.Errorf("%s: %v; want at most %d bytes: go test ./planner/plan -run TestBrowserShot -update", file, err, most)
	}
	text, err := os.ReadFile("../../docs/PLAN.md")
	if err != nil || !strings.Contains(string(text), "plan-report.png") {
		t.Errorf("docs/PLAN.md does not show plan-report.png: %v", err)
	}
}
