package lab_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/planner/lab"
)

// TestSlowBodyHoldsNoTurn: simulations run, and logs are read, while the body of another
// does not come.
func TestSlowBodyHoldsNoTurn(t *testing.T) {
	for path, one := range map[string]struct {
		h    http.Handler
		body string
	}{
		"/v1/simulate": {lab.Simulator(true), "{}"},
		"/v1/plan":     {lab.NewPlanner(lab.PlannerOptions{}), string(crowd())},
	} {
		body, w := io.Pipe()
		reads, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			one.h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, body))
		}()
		go func() {
			_, _ = io.WriteString(w, "{") // it returns once that is read
			close(reads)
		}()
		<-reads
		answer := httptest.NewRecorder()
		one.h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(one.body)))
		if answer.Code == http.StatusServiceUnavailable {
			t.Errorf("%s: another is answered %d", path, answer.Code)
		}
		_ = w.Close() // the body ends early
		<-ended
	}
}

// TestLogsByWhatComes: logs that are still coming count by what has come, and one alone
// keeps no other out.
func TestLogsByWhatComes(t *testing.T) {
	p := lab.NewPlanner(lab.PlannerOptions{MaxBody: 300_000})
	var slow []*io.PipeWriter
	ended := make(chan int, 9)
	for range cap(ended) {
		body, w := io.Pipe()
		slow = append(slow, w)
		go func() {
			answer := httptest.NewRecorder()
			p.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/plan", body))
			body.CloseWithError(io.ErrClosedPipe)
			ended <- answer.Code
		}()
		_, _ = w.Write(make([]byte, 290_000)) // as much as is taken
	}
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/plan", strings.NewReader(string(lines(100)))))
	if answer.Code != http.StatusOK {
		t.Errorf("a short log: %d %s", answer.Code, answer.Body)
	}
	refused := 0
	for _, w := range slow {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		if <-ended == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused == 0 {
		t.Error("all are taken, however much comes")
	}
	answer = httptest.NewRecorder()
	p.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/plan", strings.NewReader(strings.Repeat(string(lines(100)), 30))))
	if answer.Code != http.StatusOK {
		t.Errorf("a long log, when they are gone: %d %s", answer.Code, answer.Body)
	}
}
