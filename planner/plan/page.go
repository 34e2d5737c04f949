package plan

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"number": wording.Grouped, "stamp": stamp}).Parse(pageHTML))

// pagePolicy lets the page load nothing, and run only its own styles and script.
var pagePolicy = "default-src 'none'; style-src '" + digest(pageCSS) + "'; script-src '" + digest(pageJS) + "'; base-uri 'none'; form-action 'none'"

// HTML writes the report as one page that contains its styles, script and drawings, and whose
// policy forbids to load anything.
func (r *Report) HTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Report
		Names    string
		Policy   string
		CSS      template.CSS
		JS       template.JS
		Sections []section
	}{r, r.Log.names(), pagePolicy, template.CSS(pageCSS), template.JS(pageJS), r.document()})
}

// digest returns the hash by which a content security policy allows a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// names returns the names of the files, for the title of the page.
func (l *LogReport) names() string {
	var names []string
	for _, f := range l.Files {
		names = append(names, f.Name)
	}
	if len(names) > 3 {
		names = append(names[:2:2], "…", names[len(names)-1])
	}
	return strings.Join(names, ", ")
}
