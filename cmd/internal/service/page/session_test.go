package page_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/cmd/internal/service/page"
)

// TestSignInLog: any client that reaches the page can try tokens; the log says so
// sparingly, and names none.
func TestSignInLog(t *testing.T) {
	var log strings.Builder
	p := page.New(page.Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
		Who: func(*http.Request) (string, rulesdb.Role, error) { return "", "", nil }})
	for range 1000 {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/session", strings.NewReader(`{"token":"made-up-by-a-stranger"}`)))
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if n := strings.Count(log.String(), "a token that is not known"); n == 0 || n > 100 {
		t.Errorf("%d lines on 1,000 tokens", n)
	}
	if strings.Contains(log.String(), "made-up") {
		t.Error("the log has a token")
	}
}
