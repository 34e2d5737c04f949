package plan

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The size of a drawing in its own units, and the space for labels around it.
const (
	chartWidth  = 720
	chartHeight = 250
	chartLeft   = 56
	chartRight  = 16
	chartTop    = 14
	chartBottom = 34
)

// A chart is a drawing with its axes.
type chart struct{ strings.Builder }

func newChart(label string) *chart {
	c := &chart{}
	fmt.Fprintf(c, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(label))
	return c
}

func (c *chart) done() template.HTML { return template.HTML(c.String() + "</svg>") }

func (c *chart) text(x, y float64, class, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, template.HTMLEscapeString(text))
}

func (c *chart) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<path class="%s" d="M%.1f %.1fL%.1f %.1f"/>`, class, x1, y1, x2, y2)
}

// across and up convert fractions of the drawing's width and height to coordinates.
func across(fraction float64) float64 {
	return chartLeft + fraction*(chartWidth-chartLeft-chartRight)
}

func up(fraction float64) float64 {
	return chartHeight - chartBottom - fraction*(chartHeight-chartTop-chartBottom)
}

// short writes a number of an axis: 2,500 as 2.5k.
func short(n int64) string {
	for _, unit := range []struct {
		n    int64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.n {
			return strconv.FormatFloat(math.Round(float64(n)/float64(unit.n)*10)/10, 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ticks returns at most four round numbers up to most.
func ticks(most int64) (all []int64) {
	step := roundUp(max((most+3)/4, 1))
	for n := step; n <= most; n += step {
		all = append(all, n)
	}
	return all
}

// timeChart draws the requests over time, and for each limit the requests that it would have
// denied. The page shows one limit at a time.
func timeChart(t *Traffic, tried []Result) template.HTML {
	c := newChart("Requests over time, and of these what a limit would have denied")
	most := slices.Max(t.Bars)
	width := 1 / float64(len(t.Bars))
	for _, n := range ticks(most) {
		y := up(float64(n) / float64(most))
		c.line(across(0), y, across(1), y, "grid")
		c.text(chartLeft-6, y+4, "end", short(n))
	}
	bars := func(class string, values []int64) {
		fmt.Fprintf(c, `<path class="%s" d="`, class)
		for i, n := range values {
			if n > 0 {
				x := across(float64(i) * width)
				fmt.Fprintf(c, "M%.1f %.1fV%.1fH%.1fV%.1fz", x, up(0), up(float64(n)/float64(most)), across(float64(i+1)*width), up(0))
			}
		}
		c.WriteString(`"/>`)
	}
	bars("all", t.Bars)
	for i, r := range tried {
		class := fmt.Sprintf("denied shown-%d", i)
		if i > 0 {
			class += " hidden"
		}
		bars(class, r.bars)
	}
	c.line(across(0), up(0), across(1), up(0), "axis")
	const labels = 4
	for i := range labels {
		bar := i * len(t.Bars) / labels
		when := t.Start.Add(timeOf(t.Bar, bar))
		c.text(across(float64(bar)*width), chartHeight-10, "start", when.Format("2 Jan 15:04"))
	}
	return c.done()
}

// cliffChart draws how many clients a limit denies against how much it lets pass in a minute, both
// by powers of ten, with loose limits at the left.
func cliffChart(c *Cliff) template.HTML {
	d := newChart("How many clients are denied something, by how much a limit lets pass in a minute")
	first, last := c.Steps[0], c.Steps[len(c.Steps)-1]
	loose, tight := math.Log10(float64(first.Minute)), math.Log10(float64(last.Minute))
	most := math.Log10(float64(max(last.Clients, 2)) * 1.2)
	x := func(s *Step) float64 { return across((loose - math.Log10(float64(s.Minute))) / max(loose-tight, 0.01)) }
	y := func(n float64) float64 {
		return up(max(math.Log10(max(n, 0.8))-math.Log10(0.8), 0) / (most - math.Log10(0.8)))
	}
	for n := int64(1); float64(n) <= math.Pow(10, most); n *= 10 {
		d.line(across(0), y(float64(n)), across(1), y(float64(n)), "grid")
		d.text(chartLeft-6, y(float64(n))+4, "end", short(n))
	}
	d.text(across(0), chartHeight-10, "start", short(first.Minute)+" a minute")
	d.text(across(1), chartHeight-10, "end", short(last.Minute)+" a minute")
	fmt.Fprintf(d, `<path class="curve" d="`)
	for i := range c.Steps {
		s := &c.Steps[i]
		if i == 0 {
			fmt.Fprintf(d, "M%.1f %.1f", x(s), y(float64(s.Clients)))
		} else {
			fmt.Fprintf(d, "H%.1fV%.1f", x(s), y(float64(s.Clients)))
		}
	}
	d.WriteString(`"/>`)
	for i := range c.Steps {
		if s := &c.Steps[i]; s.Chosen || s.Edge {
			class := "chosen"
			if s.Edge && !s.Chosen {
				class = "edge"
			}
			fmt.Fprintf(d, `<circle class="%s" cx="%.1f" cy="%.1f" r="5"><title>%s</title></circle>`, class, x(s), y(float64(s.Clients)), s.Limit)
		}
	}
	d.line(across(0), up(0), across(1), up(0), "axis")
	return d.done()
}
