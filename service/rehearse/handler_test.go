package rehearse_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rehearse"
	"github.com/stint-dev/stint/service/rules"
)

// A slow client takes nothing of its answer before it is let go.
type slow struct {
	http.ResponseWriter
	begun, let chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.begun)
	<-s.let
	return s.ResponseWriter.Write(b)
}

// serving returns a handler that rehearses what a policy has decided.
func serving(t *testing.T) (http.Handler, *policy.Policy) {
	t.Helper()
	p, recorder := live(t, `{"rules": [{"name": "site", "key": ["ip"], "limits": ["2/h"]}]}`, rehearse.RecorderOptions{})
	return rehearse.NewHandler(rehearse.HandlerOptions{
		Policy: func() *policy.Policy { return p }, Recorder: recorder, Fresh: true, Check: rules.Decode,
		Who: func(*http.Request) (string, rulesdb.Role, error) { return "anna", rulesdb.Viewer, nil },
	}), p
}

// TestHandlerOneAtATime asks for a rehearsal while one is under way: it is refused
// at once, and done when the other has ended.
func TestHandlerOneAtATime(t *testing.T) {
	h, p := serving(t)
	decide(t, p, "192.0.2.7", 3)
	ask := func(w http.ResponseWriter) {
		body := `{"document":"rules: [{name: site, key: [ip], limits: [1/h]}]","warm_up":"0s"}`
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/rehearse", strings.NewReader(body)))
	}
	first := httptest.NewRecorder()
	held := &slow{first, make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(held)
	}()
	<-held.begun
	second := httptest.NewRecorder()
	ask(second)
	if second.Code != http.StatusTooManyRequests || second.Header().Get("Retry-After") == "" || !strings.Contains(second.Body.String(), "one runs at a time") {
		t.Errorf("while one is under way: %d %v %s", second.Code, second.Header(), second.Body)
	}
	close(held.let)
	<-done
	third := httptest.NewRecorder()
	ask(third)
	for when, w := range map[string]*httptest.ResponseRecorder{"the first": first, "afterwards": third} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"newly_denied":1`) {
			t.Errorf("%s: %d %s", when, w.Code, w.Body)
		}
	}
}

// TestHandlerBody rejects bodies that two programs could read in two ways.
func TestHandlerBody(t *testing.T) {
	h, _ := serving(t)
	for body, want := range map[string]string{
		`{"document":"rules: []","document":"rules: []"}`: `"document\" twice`,
		`{"document":"rules: []","Top":5}`:                "names are in lower case",
		`{"document":"rules: []","tops":5}`:               "unknown field",
		`{"document":"rules: []"} {}`:                     "something follows",
		`{"document":`:                                    "the body: ",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/rehearse", strings.NewReader(body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want 400 and %s", body, w.Code, w.Body, want)
		}
	}
}
