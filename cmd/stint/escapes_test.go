package main_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestNoEscapes has others write what does something to a terminal wherever they may: no
// command that shows it to a person writes it as it is, nor a line that they made up.
func TestNoEscapes(t *testing.T) {
	const evil = "\x1b[2Jgone\r\a\u202e\u009b31m\nnode forged"
	dir := t.TempDir()
	url := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", writeFile(t, dir+"/stint.yaml", operateRules), "--rules", url)
	must(t, "block", "partner-1", "--rule", "orders", "--rules", url)
	db := dbtest.Open(t, url, rulesdb.Options{Node: "n" + evil})
	if err := db.Report(t.Context(), rulesdb.Node{Error: evil}); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, url, "UPDATE stint_overrides SET reason = CAST(x'1b5b324a0a6e6f64652078' AS TEXT), author = CAST(x'1b5b324a' AS TEXT)",
		"UPDATE stint_audit SET subject = CAST(x'1b5b324a0a6e6f64652078' AS TEXT), now = CAST(x'1b5b324a' AS TEXT), reason = CAST(x'1b5b324a' AS TEXT), act = CAST(x'1b5b324a' AS TEXT)")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"detail":"no \u001b[2J"}`))
	}))
	defer server.Close()
	for _, args := range [][]string{
		{"rules", "nodes", "--rules", url}, {"override", "list", "--rules", url}, {"override", "get", "orders", "partner-1", "--rules", url},
		{"audit", "--rules", url}, {"audit", "undo", "2", "--rules", url}, {"top", "--server", server.URL}, {"block", "list", "--server", server.URL}, {"rules", "nodes", "--server", server.URL},
	} {
		out := session{args: args}.run()
		if strings.ContainsAny(out, "\x1b\r\a\u202e\u009b") || strings.Contains(out, "\nnode ") {
			t.Errorf("%v: %q", args, out)
		}
	}
}
