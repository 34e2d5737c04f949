package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/server"
)

// TestSlowDocuments: documents are read while those of many others do not come, and count
// by what has come; what is too large is for the reader to say.
func TestSlowDocuments(t *testing.T) {
	const most = 1 << 20
	serve := func(body io.Reader) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body)
		release, ok := server.WholeBody(w, r, most)
		if !ok {
			return w
		}
		defer release()
		done, ok := server.DocumentTurn(w, r)
		if !ok {
			return w
		}
		defer done()
		var into struct {
			Text string `json:"text"`
		}
		status, detail := server.ReadJSON(w, r, most, &into)
		if status != 0 {
			server.WriteProblem(w, status, "", detail)
		}
		return w
	}
	var slow []*io.PipeWriter
	ended := make(chan int, 40)
	for range cap(ended) {
		body, w := io.Pipe()
		slow = append(slow, w)
		go func() { ended <- serve(body).Code }()
		_, _ = io.WriteString(w, "{") // it returns once that is read
	}
	for want, text := range map[int]string{
		http.StatusOK:                    `{"text":"a"}`,
		http.StatusBadRequest:            `{"text":`,
		http.StatusRequestEntityTooLarge: `{"text":"` + strings.Repeat("a", most) + `"}`,
	} {
		if answer := serve(strings.NewReader(text)); answer.Code != want {
			t.Errorf("%.10s: %d %s, want %d", text, answer.Code, answer.Body, want)
		}
	}
	for _, w := range slow {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		if code := <-ended; code != http.StatusBadRequest {
			t.Errorf("one that does not come: %d", code)
		}
	}
	if n := server.Wholes(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}
