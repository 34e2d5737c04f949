package lab_test

import "strings"

// several4 is a limit on four processes, with Redis away for a third of the time.
const several4 = "count=1000&period=1s&burst=400&kinds=gcra&shape=steady&rate=1500%2F1s&horizon=6s&nodes=1&away_from=2s&away_for=2s"

// pageShowsProcesses has the first limit held by several processes too.
func pageShowsProcesses(p *tab) {
	if n := eval[int](p, "document.querySelectorAll('.row').length"); n != 3 {
		p.Fatalf("%d rows at first", n)
	}
	p.js("[...document.querySelectorAll('#presets button')].find((b) => b.textContent === 'Several processes').click()")
	p.until("document.querySelectorAll('.row').length === 5")
	p.contains("the rows", p.text("#rows"), "4 processes by strict", "4 processes by lease", "4 processes by share", "Redis asked", "0 times")
	p.contains("the table", p.text("#compare"), "asked Redis", "4 processes by async")
	p.until("location.hash.includes('nodes=1')")
	before := p.draws()
	p.set("nodes", "8")
	p.drawn(before)
	p.until("document.querySelector('#rows').innerText.includes('8 processes by share')")
	before = p.draws()
	p.js("document.getElementById('mode-async').click()")
	p.drawn(before)
	p.until("document.querySelectorAll('.row').length === 4")
	p.js("document.querySelector('.row:nth-child(4) .why-denied').click()")
	p.until("document.querySelector('.row:nth-child(4) .why') !== null")
	p.contains("why", p.text(".row:nth-child(4) .why"), "of 8 decided", "no process asks Redis")
	before = p.draws()
	p.set("horizon", "1s") // few enough to be shown one by one
	p.drawn(before)
	p.js("document.querySelector('.row:nth-child(4) details').open = true")
	p.until("document.querySelectorAll('.row:nth-child(4) tbody tr').length === 500")
	if head := p.text(".row:nth-child(4) thead"); !strings.Contains(head, "process") {
		p.Errorf("the table's heads are %q", head)
	}
	p.set("nodes", "1000")
	p.until("document.getElementById('wrong') !== null")
	p.contains("what is wrong", p.text("#wrong"), "nodes.count: 1000, want from 2 to 100")
	p.js("document.getElementById('nodes-on').click()")
	p.until("document.querySelectorAll('.row').length === 1 && document.getElementById('error').hidden")
}
