package rulesapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

// unanswered is a backend whose commits are not answered.
type unanswered struct{ rulesapi.Backend }

func (unanswered) Accept(context.Context, string, string) error {
	return fmt.Errorf("the database: %w: unexpected EOF", rulesdb.ErrAmbiguous)
}

func (unanswered) Tokens(context.Context) ([]rulesdb.Token, error) { return nil, nil }

// TestAnswerOfAnother asks a server that is no stint and answers every path, as an app does at the
// address of stint proxy: its answer is an error, which is not that there are no rules. Only of a
// gateway that has failed is it said that a change may have been done.
func TestAnswerOfAnother(t *testing.T) {
	for _, one := range []struct {
		status    int
		body      string
		ambiguous bool
	}{{200, `{"status":"ok"}`, false}, {200, "<!doctype html>", false}, {404, `{"detail":"Not Found"}`, false}, {504, "late", true}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(one.status)
			fmt.Fprint(w, one.body)
		}))
		defer server.Close()
		k, into := dial(t, server, ""), new(map[string]any)
		d := edit(k)
		for name, ask := range map[string]func() error{
			"audit":    func() error { _, err := d.Audit(t.Context(), 0, 1); return err },
			"in force": func() error { _, err := rulesapi.InForce(t.Context(), d); return err },
			"export":   func() error { return d.ExportOverrides(t.Context(), rulesdb.Page{}, io.Discard) },
			"inspect":  func() error { return k.Call(t.Context(), http.MethodPost, "/v1/inspect", nil, nil, into) },
			"reset":    func() error { return k.Call(t.Context(), http.MethodPost, "/v1/reset", nil, nil, into) },
		} {
			if err := ask(); err == nil || !strings.Contains(err.Error(), "not as the --admin address of a stint") || errors.Is(err, rulesdb.ErrAmbiguous) != (one.ambiguous && name == "reset") {
				t.Errorf("%d %s, %s: %v", one.status, one.body, name, err)
			}
		}
	}
}

// TestAnswerLost loses the answer of a database, and that of a server: the author is
// told that it may have been done. Of a server that was not reached, it is not said.
func TestAnswerLost(t *testing.T) {
	lost := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	admin := func(*http.Request) (string, rulesdb.Role) { return "anna", rulesdb.Admin }
	database := rulesapi.NewHandler(edit(unanswered{}), rulesapi.HandlerOptions{Guest: admin})
	for name, one := range map[string]struct {
		handler   http.Handler
		closed    bool
		ambiguous bool
	}{"server": {lost, false, true}, "database": {database, false, true}, "unreached": {lost, true, false}} {
		server := httptest.NewServer(one.handler)
		defer server.Close()
		if one.closed {
			server.Close()
		}
		k := dial(t, server, "")
		if err := k.Accept(t.Context(), "", "restored"); err == nil || errors.Is(err, rulesdb.ErrAmbiguous) != one.ambiguous {
			t.Errorf("%s: an act: %v", name, err)
		}
		if _, err := k.Tokens(t.Context()); errors.Is(err, rulesdb.ErrAmbiguous) {
			t.Errorf("%s: a look: %v", name, err)
		}
	}
}
