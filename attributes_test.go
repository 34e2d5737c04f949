package stint_test

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/request"
)

// otherWords are the files that say what rules call the words of other programs.
var otherWords = map[string]string{
	"internal/request/":                  "the table",
	"adapters/caddylimit/placeholder.go": "Caddy's placeholders",
	"planner/accesslog/":                 "the columns of logs",
	"service/importers/gateways/":        "fields of gateways",
	"service/importers/nginxrules/":      "variables of nginx",
}

// TestAttributesInOnePlace counts the lists of kinds of attributes: a switch, a literal or a
// condition that names three of them. There is one, the table of package request, so that a
// new kind is known everywhere by its row.
func TestAttributesInOnePlace(t *testing.T) {
	known := make(map[string]bool)
	for _, dotted := range []bool{false, true} {
		for word := range request.Words(dotted) {
			known[word] = true
		}
	}
	eachFile(t, func(file string, f *ast.File, set *token.FileSet) {
		for prefix := range otherWords {
			if strings.HasPrefix(file, prefix) || strings.HasSuffix(file, "_test.go") {
				return
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			words := make(map[string]bool)
			for _, e := range listed(n) {
				ast.Inspect(e, func(n ast.Node) bool {
					if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						if text, _ := strconv.Unquote(lit.Value); known[strings.TrimSuffix(text, ".")] {
							words[strings.TrimSuffix(text, ".")] = true
						}
					}
					return true
				})
			}
			if len(words) >= 3 {
				t.Errorf("%v lists %v", set.Position(n.Pos()), slices.Sorted(maps.Keys(words)))
			}
			return true
		})
	})
}

// listed returns the expressions of a construct in which a list of names may stand.
func listed(n ast.Node) (all []ast.Expr) {
	switch n := n.(type) {
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			all = append(all, c.(*ast.CaseClause).List...)
		}
	case *ast.CompositeLit:
		return n.Elts
	case *ast.BinaryExpr:
		return []ast.Expr{n}
	}
	return all
}
