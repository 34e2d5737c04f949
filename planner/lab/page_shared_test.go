package lab_test

import (
	"strings"

	"github.com/stint-dev/stint/planner/browser"
)

// several4 is a limit on four processes, with Redis away for a third of the time.
const several4 = "count=1000&period=1s&burst=400&kinds=gcra&shape=steady&rate=1500%2F1s&horizon=6s&nodes=1&away_from=2s&away_for=2s"

// pageShowsProcesses has the first limit held by several processes too.
func pageShowsProcesses(p *tab) {
	if n := browser.Eval[int](p.Tab, "document.querySelectorAll('.row').length"); n != 3 {
		p.Fatalf("%d rows at first", n)
	}
	p.JS("[...document.querySelectorAll('#presets button')].find((b) => b.textContent === 'Several processes').click()")
	p.Until("document.querySelectorAll('.row').length === 5")
	p.contains("the rows", p.text("#rows"), "4 processes by strict", "4 processes by lease", "4 processes by share", "Redis asked", "0 times")
	p.contains("the table", p.text("#compare"), "asked Redis", "4 processes by async")
	p.Until("location.hash.includes('nodes=1')")
	before := p.draws()
	p.Set("#nodes", "8")
	p.drawn(before)
	p.Until("document.querySelector('#rows').innerText.includes('8 processes by share')")
	before = p.draws()
	p.JS("document.getElementById('mode-async').click()")
	p.drawn(before)
	p.Until("document.querySelectorAll('.row').length === 4")
	p.JS("document.querySelector('.row:nth-child(4) .why-denied').click()")
	p.Until("document.querySelector('.row:nth-child(4) .why') !== null")
	p.contains("why", p.text(".row:nth-child(4) .why"), "of 8 decided", "no process asks Redis")
	before = p.draws()
	p.Set("#horizon", "1s") // few enough to be shown one by one
	p.drawn(before)
	p.JS("document.querySelector('.row:nth-child(4) details').open = true")
	p.Until("document.querySelectorAll('.row:nth-child(4) tbody tr').length === 500")
	if head := p.text(".row:nth-child(4) thead"); !strings.Contains(head, "process") {
		p.Errorf("the table's heads are %q", head)
	}
	p.Set("#nodes", "1000")
	p.Until("document.getElementById('wrong') !== null")
	p.contains("what is wrong", p.text("#wrong"), "nodes.count: 1000, want from 2 to 100")
	p.JS("document.getElementById('nodes-on').click()")
	p.Until("document.querySelectorAll('.row').length === 1 && document.getElementById('error').hidden")
}
