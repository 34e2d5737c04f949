package server_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/service/server"
)

// TestDocsServe sends the requests of docs/SERVE.md, one after the other, and
// compares the answers with what stands behind them.
func TestDocsServe(t *testing.T) {
	page := pages.Read(t, "docs/SERVE.md")
	all := pages.Blocks(page, "http")
	if len(all) == 0 || len(all)%2 != 0 {
		t.Fatalf("%d blocks: a request without an answer", len(all))
	}
	synctest.Test(t, func(t *testing.T) {
		h := server.NewHandler(newOptions(t, pages.Blocks(page, "yaml")[0]))
		token := ""
		for question := range slices.Chunk(all, 2) {
			head, body, _ := strings.Cut(question[0], "\n\n")
			first, rest, _ := strings.Cut(head, "\n")
			first = strings.TrimSuffix(first, " HTTP/1.1")
			got := play(t, h, first+"\n"+rest+"\n\n"+strings.TrimSuffix(body, "\n"), &token)
			want := answerOf(question[1])
			if got != want {
				t.Errorf("%s\ngot:\n%s\nwant:\n%s", question[0], got, want)
			}
		}
	})
}

// answerOf brings an answer of the document to the form of transcripts: its
// status alone, fields as Go writes them and in order.
func answerOf(text string) string {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	w := httptest.NewRecorder()
	w.Code = 0
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Add(name, value)
	}
	status, phrase, _ := strings.Cut(strings.TrimPrefix(lines[0], "HTTP/1.1 "), " ")
	for code := range 600 {
		if http.StatusText(code) == phrase {
			w.Code = code
		}
	}
	text = printed(w, body)
	if !strings.HasPrefix(text, status+"\n") {
		return lines[0] + ": no such status"
	}
	return text
}
