package lab_test

import (
	"path/filepath"
	"strings"

	"github.com/stint-dev/stint/planner/testkit/browser"
)

// pageCompares: the table, and three limits on one screen.
func pageCompares(p *tab) {
	p.contains("the table", p.text("#compare"), "10/1s\t40\t20\t19 in 1s, promised 20\t100ms", "10/1s fixed_window\t40\t20\t20 in 1s, promised 10\t500ms", "10/1s sliding_log\t30\t30\t10 in 1s, promised 10\t900ms")
	if bottom := browser.Eval[float64](p.Tab, "[...document.querySelectorAll('.row')].at(-1).getBoundingClientRect().bottom"); bottom > 800 {
		p.Errorf("the third limit ends at %v pixels: it is not on a screen of 800", bottom)
	}
}

// pageFills: under the curve of what is in use all is filled.
func pageFills(p *tab) {
	notches := browser.Eval[int](p.Tab, `(() => {
		let notches = 0;
		for (const canvas of document.querySelectorAll(".row canvas")) {
			const c = canvas.getContext("2d");
			const scale = canvas.width / canvas.clientWidth;
			const bottom = Math.floor((canvas.clientHeight - 18) * scale);
			const top = Math.floor((canvas.clientHeight - 16) * 0.7 * scale) + 1;
			const { data, width } = c.getImageData(0, 0, canvas.width, canvas.height);
			const clear = (x, y) => data[4 * (y * width + x) + 3] === 0;
			const curve = (x, y) => data[4 * (y * width + x) + 2] - data[4 * (y * width + x)] > 60 && !clear(x, y);
			for (let x = Math.ceil(46 * scale); x < width - 8 * scale; x++) {
				let y = top;
				while (y < bottom && !curve(x, y)) y++;
				for (; y < bottom; y++) if (clear(x, y)) { notches++; break; }
			}
		}
		return notches;
	})()`)
	if notches > 0 {
		p.Errorf("%d columns of pixels are not filled under the curve", notches)
	}
}

// pageShowsClients: each client has a lane of its own, and totals.
func pageShowsClients(p *tab) {
	p.contains("the totals", p.text(".row .readout"), "Passed: client 1 69 of 150, client 2 48 of 48", ", ….")
	x, y, w, h := p.box(".row canvas")
	timeline := (h - 16) * 0.7 // six lanes
	for lane, want := range []string{"client 1", "client 2", "client 3"} {
		found := ""
		for at := y + timeline*(float64(lane)+0.2)/6; at < y+timeline*float64(lane+1)/6; at++ {
			p.point(x+44+(w-50)*0.002, at)
			if found = p.text(".row .readout"); strings.Contains(found, want) {
				break
			}
		}
		p.contains("the lane", found, "of "+want+" at ", ": passed")
	}
}

// pageTies: the burst goes with the count as long as the box is ticked.
func pageTies(p *tab) {
	p.Set("#count", "25")
	p.Until("document.querySelector('#rows code').textContent === '25/1s' && document.getElementById('burst').value === '25'")
	p.JS("document.getElementById('tied').click()")
	p.Set("#count", "30")
	p.Until("document.querySelector('#rows code').textContent === '30/1s burst 25'")
	p.JS("document.getElementById('tied').click()")
	p.Until("document.querySelector('#rows code').textContent === '30/1s'")
	p.Set("#burst", "7")
	p.Until("document.querySelector('#rows code').textContent === '30/1s burst 7' && !document.getElementById('tied').checked")
}

// pageTakesPresets goes through the examples.
func pageTakesPresets(p *tab) {
	names := browser.Eval[[]string](p.Tab, "[...document.querySelectorAll('#presets button')].map((b) => b.textContent)")
	for i, name := range names {
		before := p.draws()
		p.JS("document.querySelectorAll('#presets button')[%d].click()", i)
		p.drawn(before)
		if browser.Eval[bool](p.Tab, "!document.getElementById('error').hidden || document.querySelectorAll('#compare tbody tr').length === 0") {
			p.Errorf("%s: %s", name, p.text("#error"))
		}
	}
	if len(names) < 5 {
		p.Errorf("the page has the examples %v", names)
	}
}

// pageDropsBad: what is wrong with a log that was dropped stands where one
// looks, and the report of another log goes away.
func pageDropsBad(p *tab) {
	p.choose(shipped)
	p.Until(reported)
	path, err := filepath.Abs("page_test.go")
	if err != nil {
		p.Fatal(err)
	}
	p.drop(path)
	p.Until("!document.getElementById('log-error').hidden && document.getElementById('report').hidden && document.querySelector('.busy').hidden")
	p.Until("(() => { const e = document.getElementById('log-error'); const b = e.getBoundingClientRect(); return e.closest('#results') !== null && b.top < innerHeight && b.bottom > 0; })()")
	p.JS("document.getElementById('log-again').click()")
	p.Until("document.getElementById('log-error').closest('#log') !== null && !document.getElementById('log-error').hidden")
}
