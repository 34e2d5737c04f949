// Package browser runs Debian's Chromium for tests of pages. A [Tab] fails its test when something
// unexpected happens, such as an error on the console, a resource that the page's policy refuses,
// or a request to another server.
package browser

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"

	"github.com/stint-dev/stint/internal/testkit/need"
)

// patience is how long a condition may take to become true.
const patience = 2 * time.Minute

// Start starts Chromium with cookies and a cache of its own, and stops it with the test.
func Start(t testing.TB) context.Context {
	t.Helper()
	need.Time(t)
	path := need.Program(t, "chromium")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("force-color-profile", "srgb"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	browser, stop := chromedp.NewContext(ctx)
	if err := chromedp.Do(browser); err != nil {
		cancel()
		t.Fatalf("chromium does not start: %v", err)
	}
	t.Cleanup(func() {
		_ = chromedp.Cancel(browser) // waits until Chromium has ended
		stop()
		cancel()
		chromedp.FromContext(browser).Allocator.Wait()
	})
	return browser
}

// A Look is how a tab is shown. The zero value is light and 1280 by 900 pixels.
type Look struct {
	Width, Height int64
	Dark          bool
	Media         string // "print"; the default is the screen
	// Refused are statuses that the page expects from the server, such as "403". Without them the
	// browser's log of these responses fails the test.
	Refused []string
	// Elsewhere are other servers that the page may ask, such as http://127.0.0.1:9090.
	Elsewhere []string
	// AnyCertificate accepts every certificate of the server.
	AnyCertificate bool
}

// A Tab shows a page, and records whatever should not happen.
type Tab struct {
	testing.TB
	Context context.Context
	base    string
	look    Look

	mu        sync.Mutex
	problems  []string
	elsewhere map[network.RequestID]string // requests to other servers that the policy did not refuse
}

// Open opens a tab at a path of a server, such as http://127.0.0.1:9090.
func Open(t testing.TB, browser context.Context, base, path string, look Look) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	most := 10 * time.Minute
	if os.Getenv("STINT_SOAK") != "" {
		most = 50 * time.Minute
	}
	ctx, stop := context.WithTimeout(ctx, most)
	if look.Width == 0 {
		look.Width, look.Height = 1280, 900
	}
	p := &Tab{TB: t, Context: ctx, base: base, look: look, elsewhere: make(map[network.RequestID]string)}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Error(problem)
		}
		for _, url := range p.elsewhere {
			t.Errorf("a request to elsewhere: %s", url)
		}
		stop()
		cancel()
	})
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	if look.AnyCertificate {
		Call(p, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
	}
	Call(p, network.Enable, network.EnableParams{})
	Call(p, log.Enable, cdp.Empty{})
	Call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: look.Width, Height: look.Height, DeviceScaleFactor: 1, Mobile: look.Width < 500})
	Call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: look.Media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	p.Do(chromedp.Navigate(base + path))
	return p
}

// Call sends a command of the browser's protocol.
func Call[P, R any](p *Tab, command cdp.Command[P, R], parameters P) R {
	p.Helper()
	r, err := chromedp.Call(p.Context, command, parameters)
	if err != nil {
		p.Fatal(err)
	}
	return r
}

// Mouse sends an event of the mouse, at a point of the window.
func (p *Tab) Mouse(kind input.DispatchMouseEventType, x, y float64, button input.MouseButton) {
	p.Helper()
	e := input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: button}
	if button == input.MouseButtonLeft {
		e.Buttons, e.ClickCount = 1, 1
	}
	Call(p, input.DispatchMouseEvent, e)
}

func (p *Tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problem := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			problem = fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value)
		}
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *log.EventEntryAdded: // also what the page's policy refuses
		if e.Entry.Level == log.EntryLevelError && !p.expected(e.Entry.Text) {
			problem = fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if !slices.ContainsFunc(append(p.look.Elsewhere, p.base), func(base string) bool { return strings.HasPrefix(e.Request.URL, base+"/") }) {
			p.elsewhere[e.RequestID] = e.Request.URL
		}
	case *network.EventLoadingFailed:
		if e.BlockedReason == network.BlockedReasonCsp {
			delete(p.elsewhere, e.RequestID)
		}
	case *page.EventJavascriptDialogOpening:
		problem = "a dialogue: " + e.Message
	}
	if problem != "" {
		p.problems = append(p.problems, problem)
	}
}

// Refused removes the records of what the page's policy refused, and returns how many there were.
func (p *Tab) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	noted := len(p.problems)
	p.problems = slices.DeleteFunc(p.problems, func(problem string) bool { return strings.Contains(problem, "Content Security Policy") })
	return noted - len(p.problems)
}

func (p *Tab) expected(text string) bool {
	return slices.ContainsFunc(p.look.Refused, func(status string) bool { return strings.Contains(text, "status of "+status) })
}

// Do runs actions on the page.
func (p *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.Context, actions...); err != nil {
		p.Fatal(err)
	}
}

// Eval returns the value of an expression in the page.
func Eval[T any](p *Tab, expression string) T {
	p.Helper()
	var value T
	err := settled(func() (err error) {
		value, err = chromedp.Run(p.Context, chromedp.Evaluate[T](expression, func(e *runtime.EvaluateParams) { e.AwaitPromise = new(true) }))
		return err
	})
	if err != nil {
		p.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

// settled runs do, and repeats it while the browser says that the call was for the page before:
// events that announce a new page come independently of answers.
func settled(do func() error) error {
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil || !strings.Contains(err.Error(), "Cannot find context with specified id") || time.Now().After(until) {
			return err
		}
	}
}

// JS runs statements in the page.
func (p *Tab) JS(format string, args ...any) {
	p.Helper()
	Eval[int](p, fmt.Sprintf("(() => { "+format+"; return 0; })()", args...))
}

// Until waits until an expression is true.
func (p *Tab) Until(format string, args ...any) {
	p.Helper()
	expression := fmt.Sprintf(format, args...)
	err := settled(func() error {
		_, err := chromedp.Run(p.Context, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience)))
		return err
	})
	if err != nil {
		p.Fatalf("never true: %s: %v\n%s", expression, err, Eval[string](p, "location.hash + '\\n' + document.body.innerText"))
	}
}

// Says waits until an element says all of some texts.
func (p *Tab) Says(selector string, texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.Until("document.querySelector(%q)?.innerText.includes(%q)", selector, text)
	}
}

// Set waits for a field and gives it a value, as if it had been written there.
func (p *Tab) Set(selector, value string) {
	p.Helper()
	p.Until("document.querySelector(%q) !== null", selector)
	p.JS("const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))", selector, value)
}

// Click waits for a button or a link of this name within an element, and clicks it.
func (p *Tab) Click(within, name string) {
	p.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%q)].flatMap((e) => [...e.querySelectorAll('button, a, summary')]).find((b) => (b.innerText.trim() === %q || b.ariaLabel === %q) && !b.disabled && b.checkVisibility())", within, name, name)
	p.Until("%s !== undefined", find)
	p.JS("%s.click()", find)
}

// Shot returns a PNG picture of the visible part of the page.
func (p *Tab) Shot() []byte {
	p.Helper()
	shot, err := chromedp.Run(p.Context, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	return shot
}

// Press presses a key.
func (p *Tab) Press(key string) {
	p.Helper()
	p.Do(chromedp.KeyEvent(key))
}

// Go navigates to a path of the server.
func (p *Tab) Go(path string) {
	p.Helper()
	p.Do(chromedp.Navigate(p.base + path))
}

// Accessible runs axe-core, a gzipped file, on the visible page, and fails the test at each
// violation.
func (p *Tab) Accessible(axe, what string) {
	p.Helper()
	if !Eval[bool](p, "typeof axe !== 'undefined'") {
		f, err := os.Open(axe)
		if err != nil {
			p.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			p.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			p.Fatal(err)
		}
		p.JS("%s", text)
	}
	for _, broken := range Eval[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then((r) =>
		r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 160) + " " + n.failureSummary)))`) {
		p.Errorf("%s: %s", what, broken)
	}
}

// Held returns what the page holds after a garbage collection: elements, also those outside the
// document, listeners, and bytes of scripts.
func (p *Tab) Held() (nodes, listeners, heap float64) {
	p.Helper()
	Call(p, performance.Enable, performance.EnableParams{})
	Call(p, heapprofiler.CollectGarbage, cdp.Empty{})
	for _, m := range Call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
		switch m.Name {
		case "Nodes":
			nodes = m.Value
		case "JSEventListeners":
			listeners = m.Value
		case "JSHeapUsedSize":
			heap = m.Value
		}
	}
	return nodes, listeners, heap
}
