package main_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// TestUnblockLate ends a block in whose place another operator sets limits just before
// the server is asked to end it: these stay, and who asked is told.
func TestUnblockLate(t *testing.T) {
	db := dbtest.Open(t, "sqlite:"+t.TempDir()+"/stint.db", rulesdb.Options{})
	if _, err := db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: [{name: api, key: [ip], limits: 5/m}]")}); err != nil {
		t.Fatal(err)
	}
	set := func(o rulesource.Override) {
		o.Rule, o.Key = "api", "192.0.2.7"
		if _, _, err := db.SetOverride(t.Context(), o, 0); err != nil {
			t.Error(err)
		}
	}
	set(rulesource.Override{Block: true})
	operator := func(*http.Request) (string, rulesdb.Role) { return "anna", rulesdb.Operator }
	h := rulesapi.NewHandler(rulesapi.New(db, rules.Decode, nil), rulesapi.HandlerOptions{Guest: operator})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			set(rulesource.Override{Limits: []string{"9/m"}})
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	status := main.Run(t.Context(), []string{"block", "end", "192.0.2.7", "--rule", "api", "--server", server.URL}, strings.NewReader(""), &out, &errs)
	if status == 0 || !strings.Contains(errs.String(), "it is not blocked: it has 9/m") {
		t.Errorf("exit %d %s%s", status, out.String(), errs.String())
	}
	if o, err := db.Override(t.Context(), "api", "192.0.2.7"); err != nil || len(o.Limits) != 1 {
		t.Errorf("afterwards: %+v %v", o, err)
	}
}
