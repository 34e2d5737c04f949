package rulesapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// unanswered is a backend whose commits are not answered.
type unanswered struct{ rulesapi.Backend }

func (unanswered) Accept(context.Context, string, string) error {
	return fmt.Errorf("the database: %w: unexpected EOF", rulesdb.ErrAmbiguous)
}

func (unanswered) Tokens(context.Context) ([]rulesdb.Token, error) { return nil, nil }

// TestAnswerLost loses the answer of a database, and that of a server: the author is
// told that it may have been done. Of a server that was not reached, it is not said.
func TestAnswerLost(t *testing.T) {
	lost := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	admin := func(*http.Request) (string, rulesdb.Role) { return "anna", rulesdb.Admin }
	database := rulesapi.NewHandler(rulesapi.New(unanswered{}, rules.Decode, nil), rulesapi.HandlerOptions{Guest: admin})
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
		k, err := rulesapi.Dial(server.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if err := k.Accept(t.Context(), "", "restored"); err == nil || errors.Is(err, rulesdb.ErrAmbiguous) != one.ambiguous {
			t.Errorf("%s: an act: %v", name, err)
		}
		if _, err := k.Tokens(t.Context()); errors.Is(err, rulesdb.ErrAmbiguous) {
			t.Errorf("%s: a look: %v", name, err)
		}
	}
}
