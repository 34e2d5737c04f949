package page_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/page"
	"github.com/stint-dev/stint/service/server"
)

// TestSignInLog: any client that reaches the page can try tokens; the log says so
// sparingly, and names none.
func TestSignInLog(t *testing.T) {
	var log strings.Builder
	observer := observe.New(observe.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := page.New(page.Options{Observer: observer, Who: func(*http.Request) (string, rulesdb.Role, error) { return "", "", nil }})
	admin := server.NewAdminHandler(&net.TCPAddr{IP: net.IPv4zero}, server.AdminHandlerOptions{Admin: &server.Admin{Observer: observer}, Page: p})
	for range 1000 {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ui/session", strings.NewReader(`{"token":"made-up-by-a-stranger"}`)))
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	observer.Close()
	said := log.String()
	if strings.Count(said, "\n") != 2 || !strings.Contains(said, `msg="wrong token" interface=admin address=192.0.2.1`) || !strings.Contains(said, "address=192.0.2.1 times=999 ") {
		t.Errorf("of 1,000 tokens the log says:\n%s", said)
	}
	if strings.Contains(said, "made-up") {
		t.Error("the log has a token")
	}
}
