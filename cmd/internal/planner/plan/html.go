package plan

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"strings"
)

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// pagePolicy lets the page load nothing, and run its own styles and script.
var pagePolicy = "default-src 'none'; style-src '" + digest(pageCSS) + "'; script-src '" + digest(pageJS) + "'; base-uri 'none'; form-action 'none'"

// HTML writes the report as one page that needs nothing else: styles, script
// and drawings are in it, and it forbids itself to load anything.
func (r *Report) HTML(w io.Writer) error {
	var p page
	tried := r.Results
	p.head(r)
	if r.Choice != nil {
		tried = append([]Result{r.Choice.Would}, tried...)
		p.choice(r.Choice)
		p.cliff(r.Choice.Cliff)
	}
	if r.Traffic != nil && r.Traffic.Requests > 0 {
		p.traffic(r, tried)
	}
	if len(r.Results) > 0 {
		p.results(r.Results)
	}
	if r.Choice != nil {
		p.candidates(r.Choice)
	}
	if r.Traffic != nil && len(r.Traffic.Heaviest) > 0 {
		p.heaviest(r.Traffic)
	}
	p.put("</main>\n<script>%s</script>\n</body>\n</html>\n", markup(pageJS))
	_, err := io.WriteString(w, p.String())
	return err
}

// digest returns the hash by which a content security policy allows a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// String returns the names of the files, for the page's head.
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
