package lab_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stint-dev/stint/planner/lab"

	"github.com/stint-dev/stint/planner/testkit/browser"
)

// choose gives the page's file field a file, as its dialog does.
func (p *tab) choose(file string) {
	p.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		p.Fatal(err)
	}
	p.Do(chromedp.SetUploadFiles("#log-file", []string{path}))
}

// drop drags files onto the page and releases them.
func (p *tab) drop(files ...string) {
	p.Helper()
	x, y, w, h := p.box("#results")
	for _, kind := range []input.DispatchDragEventType{input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop} {
		browser.Call(p.Tab, input.DispatchDragEvent, input.DispatchDragEventParams{
			Type: kind, X: x + w/2, Y: y + min(h, 300)/2,
			Data: &input.DragData{Items: []*input.DragDataItem{}, Files: files, DragOperationsMask: 1},
		})
		if kind == input.DispatchDragEventTypeDragOver {
			p.Until("document.body.classList.contains('dropping')")
		}
	}
}

const reported = "!document.getElementById('report').hidden && document.querySelector('.busy').hidden"

// TestPageLog has the page read logs.
func TestPageLog(t *testing.T) {
	chromium := browser.Start(t)
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{Plan: lab.NewPlanner(lab.PlannerOptions{MaxBody: 2 << 20, MaxLines: 50_000})})))
	defer server.Close()
	for _, c := range []struct {
		name  string
		width int64
		do    func(*tab)
	}{
		{"choose", 1280, pageChoosesLog},
		{"drop", 1280, pageTakesDrop},
		{"arrivals", 1280, pageShowsLog},
		{"keyboard", 1280, pageLogByKeyboard},
		{"errors", 1280, pageLogErrors},
		{"a bad drop", 1280, pageDropsBad},
		{"the answer first", 1280, pageAnswersFirst},
		{"phone", 360, func(p *tab) {
			p.choose(shipped)
			p.Until(reported)
			pageOnPhone(p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(openTab(t, chromium, server.URL, "", c.width, 900, false)) })
	}
}

// TestPageBare: where no logs are read, none is asked for.
func TestPageBare(t *testing.T) {
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{})))
	defer server.Close()
	p := openTab(t, browser.Start(t), server.URL, "", 1280, 900, false)
	if !browser.Eval[bool](p.Tab, "document.getElementById('log-group').hidden && document.getElementById('log-file') === null") {
		t.Error("the page asks for a log that nobody reads")
	}
}

func pageChoosesLog(p *tab) {
	p.Set("#log-share", "1%")
	p.choose(shipped)
	p.Until(reported)
	p.contains("the report", p.text("#report"), "access.log.gz", "combined, 14,101 lines", "1 line could not be read",
		"14,100 requests of 485 clients, Mon 3 Mar 2025 00:10:00 UTC to Tue 4 Mar 2025 23:57:10 UTC", "45 in a second, 761 in a minute, 971 in an hour",
		"Far from the rest: 198.51.100.162 (732 in a minute)", "10/1s fixed_window", "24/1m burst 20 (above)", "689", "it rests on 14,100 requests", "485 clients are few",
		"limits: ['24/1m burst 20']", "shadow: true", "stint plan --limit '24/1m burst 20' access.log.gz")
	p.contains("what a screen reader hears", p.text("#log-said"), "access.log.gz: 14,100 requests of 485 clients. To choose: 24/1m burst 20.")
	p.JS("document.getElementById('choice-show').click()")
	p.Until("document.querySelectorAll('.row').length === 4 && document.querySelector('#rows').innerText.includes('24/1m burst 20')")
	p.JS("document.getElementById('report-without').click()")
	p.Until("document.getElementById('report').innerText.includes('20/1m burst 12')")
	p.contains("without the one that hammers", p.text("#report"), "13,368 requests of 484 clients", "24/1m burst 15")
	p.Set("#log-share", "0%")
	p.JS("document.getElementById('log-again').click()")
	p.Until("document.getElementById('report').innerText.includes('at most 0%% of clients')")
	p.JS("document.getElementById('report-close').click()")
	p.Until("document.getElementById('report').hidden && document.activeElement.id === 'log-file'")
}

// pageAnswersFirst has the proposal and whom it denies on top, and the cliff.
func pageAnswersFirst(p *tab) {
	p.Set("#log-share", "1%")
	p.choose(shipped)
	p.Until(reported)
	heads := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('#report h3')].map((h) => h.textContent)")
	if len(heads) < 4 || heads[0] != "What to choose" || heads[1] != "Who falls off as the limit tightens" {
		p.Errorf("the parts of the report: %q", heads)
	}
	p.contains("the report", p.text("#report"), "Whom it would deny", "198.51.100.162: ", "POST /api/login", "chosen")
	small := filepath.Join(p.TempDir(), "small.log")
	line := "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n"
	if err := os.WriteFile(small, []byte(strings.Repeat(line, 50)), 0o600); err != nil {
		p.Fatal(err)
	}
	p.Set("#own", "")
	p.choose(small)
	p.Until("document.getElementById('report').innerText.includes('No proposal: all requests are of one ip')")
}

func pageTakesDrop(p *tab) {
	path, err := filepath.Abs(shipped)
	if err != nil {
		p.Fatal(err)
	}
	p.drop(path)
	p.Until(reported)
	p.contains("the report", p.text("#report"), "14,100 requests of 485 clients")
	if browser.Eval[bool](p.Tab, "document.body.classList.contains('dropping')") {
		p.Error("the page still waits for a drop")
	}
	if name := browser.Eval[string](p.Tab, "document.getElementById('log-file').files[0].name"); name != "access.log.gz" {
		p.Errorf("the field names %q", name)
	}
	p.drop(path, path)
	p.Until("document.getElementById('log-error').innerText === 'One log at a time: stint plan takes many.'")
}

// pageShowsLog puts a client's arrivals on the timeline, and everyone's.
func pageShowsLog(p *tab) {
	p.choose(shipped)
	p.Until(reported)
	p.Set("#log-client", "198.51.100.162")
	p.JS("document.getElementById('log-show').click()")
	p.Until("document.getElementById('shape').value === 'list'")
	p.Until("document.querySelector('#sketch canvas').getAttribute('aria-label').startsWith('732 requests')")
	p.contains("the note", p.text("#shape-note"), "access.log.gz, 198.51.100.162: 732 requests, from 2025-03-04 04:48:00 UTC on.")
	p.Set("#own", "30/m")
	p.Until("document.querySelectorAll('.row').length === 4")
	p.contains("as planned", p.text(".row:nth-child(4)"), "59 passed", "673 denied")
	if hash := browser.Eval[string](p.Tab, "location.hash"); strings.Contains(hash, "list") || strings.Contains(hash, "horizon") {
		p.Errorf("the address says what it cannot hold: %s", hash)
	}
	p.Set("#log-client", "")
	p.JS("document.getElementById('log-show').click()")
	p.Until("document.querySelector('#sketch canvas').getAttribute('aria-label').startsWith('14,100 requests')")
	before := p.draws()
	p.Set("#shape", "steady")
	p.drawn(before)
	p.contains("another shape", browser.Eval[string](p.Tab, "document.getElementById('horizon').value"), "6s")
	p.Set("#shape", "list")
	p.Until("document.querySelector('#sketch canvas').getAttribute('aria-label').startsWith('14,100 requests')")
}

// pageLogByKeyboard goes from the report to the timeline by keys.
func pageLogByKeyboard(p *tab) {
	p.choose(shipped) // the dialog for files is the browser's own
	p.Until(reported + " && document.activeElement.id === 'report'")
	tabTo := func(selector string) {
		p.Helper()
		for range 40 {
			if browser.Eval[bool](p.Tab, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
				return
			}
			p.Press(kb.Tab)
		}
		p.Fatalf("no key leads to %s", selector)
	}
	tabTo("#choice-rule")
	tabTo("#log-client")
	p.Press(kb.ArrowDown)
	tabTo("#log-show")
	p.Press(kb.Enter)
	p.Until("document.getElementById('shape').value === 'list'")
	if !browser.Eval[bool](p.Tab, "document.getElementById('log-file').labels.length === 1 && document.getElementById('log-file').tabIndex === 0") {
		p.Error("the field for files has no label, or no place among the tab stops")
	}
}

// TestPageLogStops stops a log on its way, and sends it again.
func TestPageLogStops(t *testing.T) {
	planner := lab.NewPlanner(lab.PlannerOptions{})
	server := httptest.NewServer(lab.Guard(lab.New(lab.Options{Plan: planner})))
	defer server.Close()
	p := openTab(t, browser.Start(t), server.URL, "", 1280, 900, false)
	release := lab.HoldTurn(planner)
	p.choose(shipped)
	p.Until("!document.querySelector('.busy').hidden")
	p.JS("document.getElementById('log-stop').click()")
	p.Until("document.querySelector('.busy').hidden && document.getElementById('report').hidden && document.getElementById('log-error').hidden")
	release()
	p.JS("document.getElementById('log-again').click()")
	p.Until(reported)
}

func pageLogErrors(p *tab) {
	dir := p.TempDir()
	write := func(name string, content []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			p.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	for _, c := range []struct {
		file, want string
	}{
		{write("notes.txt", []byte("one\ntwo\nthree\n")), "the lines are in no format that is known"},
		{write("empty.log", nil), "the log is empty"},
		{write("page.bin", []byte("\x00\x01\x02\n")), "binary, not lines of text"},
		{write("large.log", make([]byte, 2<<20+1)), "large.log is over 2 MiB: pack it"},
	} {
		p.choose(c.file)
		p.Until("document.getElementById('log-error').innerText.includes(%q) && document.querySelector('.busy').hidden", c.want)
	}
	p.choose(shipped)
	p.Until(reported + " && document.getElementById('log-error').hidden")
	p.Set("#own", "30/m")
	p.Set("#log-key", "ip,nothing")
	p.JS("document.getElementById('log-again').click()")
	p.Until("document.getElementById('report').innerText.includes('14,100 requests had no nothing.')")
	p.Set("#log-share", "few")
	p.JS("document.getElementById('log-again').click()")
	p.Until("document.getElementById('log-error').innerText.startsWith('deny_at_most: ')")
}
