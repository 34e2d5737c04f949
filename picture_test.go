package stint_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/golden"
)

// A box is a part of stint in the picture of docs/DESIGN.md: what it is called, what it
// does, the package that has it, "" for what is not ours, and where it stands.
type box struct {
	title, does, pkg string
	x, y, width      int
}

const boxHeight = 64

// The parts, and who calls whom: from the callers of stint, at the top, to the stores.
var (
	boxes = []box{
		{"proxy", "in front of a server", "service/proxy", 16, 16, 154},
		{"/v1 and /auth", "any language or proxy", "service/server", 182, 16, 154},
		{"rate limit service", "Envoy's protocol", "service/rls", 348, 16, 154},
		{"RESP", "the protocol of Redis", "service/resp", 514, 16, 154},
		{"middleware", "in a Go program", "httplimit", 680, 16, 154},
		{"sources of rules", "file, HTTPS, database, xDS", "service/rules", 16, 124, 220},
		{"rules", "which limits a request meets", "policy", 305, 124, 240},
		{"operators", "page, acts, metrics", "service/operate", 614, 124, 220},
		{"in flight", "what runs at one moment", "inflight", 16, 232, 220},
		{"limiters", "limits, waiting, the store's interface", ".", 305, 232, 240},
		{"fallback", "a local share while Redis is away", "fallback", 305, 340, 240},
		{"meter", "the arithmetic of limits", "meter", 16, 448, 180},
		{"embedded store", "the memory of a process", "memstore", 252, 448, 180},
		{"shared store", "scripts, batches, modes", "redisstore", 470, 448, 180},
		{"Redis or Valkey", "one, or a cluster", "", 688, 448, 146},
	}
	calls = [][2]string{
		{"proxy", "rules"}, {"/v1 and /auth", "rules"}, {"rate limit service", "rules"}, {"RESP", "rules"}, {"middleware", "rules"},
		{"sources of rules", "rules"}, {"operators", "rules"}, {"rules", "limiters"}, {"limiters", "in flight"},
		{"limiters", "fallback"}, {"fallback", "embedded store"}, {"fallback", "shared store"}, {"embedded store", "meter"},
		{"shared store", "Redis or Valkey"},
	}
)

// TestDocsArchitecture draws docs/architecture.svg, and holds it to the code: a package
// of each box, and an import for each arrow, of the one by the other or, where that is
// behind an interface, the other way. With -update, it writes the picture.
func TestDocsArchitecture(t *testing.T) {
	if _, err := os.Stat("service"); err != nil {
		t.Skip("only the root module is here")
	}
	imports := make(map[[2]string]bool)
	eachFile(t, func(file string, f *ast.File, _ *token.FileSet) {
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if below, ours := strings.CutPrefix(name, module); ours && !strings.HasSuffix(file, "_test.go") {
				imports[[2]string{path.Dir(file), path.Clean("./" + below)}] = true
			}
		}
	})
	for _, c := range calls {
		a, b := named(c[0]).pkg, named(c[1]).pkg
		if b != "" && !imports[[2]string{a, b}] && !imports[[2]string{b, a}] {
			t.Errorf("%s calls %s, and of %s and %s none imports the other", c[0], c[1], a, b)
		}
	}
	golden.Equal(t, "docs/architecture.svg", architecture())
}

func named(title string) box {
	return boxes[slices.IndexFunc(boxes, func(b box) bool { return b.title == title })]
}

// architecture draws the picture, light or dark as its reader has it.
func architecture() string {
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 528" font-family="sans-serif" font-size="12" text-anchor="middle">
<title>The parts of stint, and who calls whom</title>
<style>
svg { --page: #fff; --box: #eef4f8; --line: #2a6f97; --text: #1b1f24; --quiet: #57606a }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --box: #16242f; --line: #6cb2dc; --text: #e6edf3; --quiet: #9aa4af } }
.page { fill: var(--page) } .box { fill: var(--box); stroke: var(--line) } .arrow { fill: none; stroke: var(--line) } .tip { fill: var(--line) }
text { fill: var(--text) } .quiet { fill: var(--quiet) }
</style>
<rect class="page" width="100%" height="100%"/>
<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker>
`)
	for _, c := range calls {
		from, to := named(c[0]), named(c[1])
		middle, bottom := from.x+from.width/2, from.y+boxHeight
		line := fmt.Sprintf("M%d %dV%dH%dV%d", middle, bottom, (bottom+to.y)/2, to.x+to.width/2, to.y)
		switch {
		case from.y == to.y && from.x < to.x:
			line = fmt.Sprintf("M%d %dH%d", from.x+from.width, from.y+boxHeight/2, to.x)
		case from.y == to.y:
			line = fmt.Sprintf("M%d %dH%d", from.x, from.y+boxHeight/2, to.x+to.width)
		}
		fmt.Fprintf(&b, "<path class=\"arrow\" d=\"%s\" marker-end=\"url(#tip)\"/>\n", line)
	}
	for _, r := range boxes {
		middle, pkg := r.x+r.width/2, r.pkg
		if pkg == "." {
			pkg = "stint"
		}
		fmt.Fprintf(&b, `<rect class="box" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, r.x, r.y, r.width, boxHeight)
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="bold" font-size="13">%s</text><text x="%d" y="%d">%s</text>`, middle, r.y+20, r.title, middle, r.y+38, r.does)
		fmt.Fprintf(&b, `<text class="quiet" x="%d" y="%d" font-family="monospace" font-size="11">%s</text>`+"\n", middle, r.y+54, pkg)
	}
	return b.String() + "</svg>\n"
}
