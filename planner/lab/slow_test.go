package lab_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/planner/lab"
)

// TestSlowBodyHoldsNoTurn: simulations run while the body of another does not come.
func TestSlowBodyHoldsNoTurn(t *testing.T) {
	h := lab.Simulator(true)
	body, w := io.Pipe()
	reads, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/simulate", body))
	}()
	go func() {
		_, _ = io.WriteString(w, "{") // it returns once that is read
		close(reads)
	}()
	<-reads
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/simulate", strings.NewReader("{}")))
	if answer.Code == http.StatusServiceUnavailable {
		t.Errorf("another is answered %d", answer.Code)
	}
	_ = w.Close() // the body ends early
	<-ended
}
