package plan

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number":    number,
	"share":     share,
	"stamp":     stamp,
	"tightest":  func(c *Choice, k Candidate) bool { return k.text() == c.Tightest },
	"percent":   func(f float64) float64 { return 100 * f },
	"estimates": estimates,
	"plural":    plural,
	"inc":       func(n int) int { return n + 1 },
}).Parse(pageHTML))

// HTML writes the report as one page that needs nothing else: styles, script
// and drawings are in it, and it forbids itself to load anything.
func (r *Report) HTML(w io.Writer) error {
	tried := r.Results
	if r.Choice != nil {
		tried = append([]Result{r.Choice.Would}, tried...)
	}
	data := struct {
		*Report
		Tried       []Result
		Style       template.CSS
		Script      template.JS
		Policy      string
		Time, Curve template.HTML
		Cliff       template.HTML
		Spread      []Spread
	}{
		Report: r, Tried: tried, Style: template.CSS(pageCSS), Script: template.JS(pageJS),
		Policy: "default-src 'none'; style-src '" + digest(pageCSS) + "'; script-src '" + digest(pageJS) + "'; base-uri 'none'; form-action 'none'",
		Spread: r.spread,
	}
	if r.Traffic != nil && r.Traffic.Requests > 0 {
		data.Time = timeChart(r.Traffic, tried)
		data.Curve = curveChart(r.Traffic.Curve, r.Choice)
	}
	if r.Choice != nil && len(r.Choice.Cliff.Steps) > 1 {
		data.Cliff = cliffChart(r.Choice.Cliff)
	}
	return page.Execute(w, data)
}

// digest returns the hash by which a content security policy allows a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// String returns the conditions and the key in words, for the page's head.
func (l *LogReport) String() string {
	var names []string
	for _, f := range l.Files {
		names = append(names, f.Name)
	}
	if len(names) > 3 {
		names = append(names[:2:2], "…", names[len(names)-1])
	}
	return strings.Join(names, ", ")
}
