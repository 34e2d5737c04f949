package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// picture is the arrivals and the limits of docs/compare.svg: ten a second by
// five algorithms, a burst on both sides of a window's edge, then a steady 20 a
// second.
var picture = []string{
	"--arrivals", "+1900ms 10@once +100ms 10@once +1s 40@20/s +1s", "--compare",
	"10/s fixed_window", "10/s sliding_log", "10/s sliding_counter", "10/s", "10/s leaky_queue",
}

// TestDocsPicture draws docs/compare.svg, the picture of README.md, from what
// stint simulate --json says, and compares. With -update, it writes it.
func TestDocsPicture(t *testing.T) {
	const file = "../../docs/compare.svg"
	answer := session{args: append([]string{"simulate", "--json"}, picture...)}.run()
	var c comparison
	if err := json.Unmarshal([]byte(answer), &c); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	got := c.draw()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s is not what stint simulate says now: go test ./stint -run TestDocs -update (%v)", file, err)
	}
}

// A comparison is what of stint simulate --json the picture shows.
type comparison struct {
	Stretch, Column string
	Rows            []struct {
		Limits          []string
		Allowed, Denied int
		Most            int
		Passes, Denials []int
	}
}

func (c comparison) draw() string {
	const left, unit, bar, row, top = 24, 3, 9, 84, 30 // pixels; unit is one request
	width := left*2 + bar*len(c.Rows[0].Passes)
	height := top + row*len(c.Rows)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<title>What five limits of 10 a second let pass of the same requests</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<rect x="%d" y="9" width="10" height="10" fill="#2a6f97"/><text x="%d" y="18">passed, at its start</text>
<rect x="%d" y="9" width="10" height="10" fill="#f2b8a2"/><text x="%d" y="18">denied</text>
<text x="%d" y="18" fill="#555">a bar is %s</text>
`, width, height, left, left+16, left+150, left+166, left+230, c.Column)
	for i, r := range c.Rows {
		base := top + row*(i+1) - 16
		fmt.Fprintf(&b, `<text x="%d" y="%d"><tspan font-weight="bold">%s</tspan>: %d passed, %d denied, at most %d in any %s</text>
`, left, base-46, strings.Join(r.Limits, " + "), r.Allowed, r.Denied, r.Most, c.Stretch)
		for x, n := range r.Passes {
			if n > 0 {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#2a6f97"/>`, left+x*bar, base-n*unit, bar-1, n*unit)
			}
			if d := r.Denials[x]; d > 0 {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f2b8a2"/>`, left+x*bar, base-(n+d)*unit, bar-1, d*unit)
			}
		}
		fmt.Fprintf(&b, "\n<path d=\"M%d %d.5H%d\" stroke=\"#999\"/>\n", left, base, width-left)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
