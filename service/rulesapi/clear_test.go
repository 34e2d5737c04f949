package rulesapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
)

// TestClientsForOperators shows rules that name clients by what they send to operators
// alone, whole, by revision and as a difference.
func TestClientsForOperators(t *testing.T) {
	server, db, tokens := serve(t)
	now, err := db.Revision(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "partner-SECRET-1"
	for _, rule := range []string{
		`{name: a, key: [ip], limits: 1/s, overrides: [{when: {header.x-api-key: ` + secret + `}, limits: 9/s}]}`,
		`{name: a, match: {cookie.session: ` + secret + `}, block: true}`,
		`{name: a, unless: {query.api_key: ` + secret + `}, key: [ip], limits: 1/s}`,
	} {
		if now, err = db.Publish(t.Context(), now.Number, rulesdb.Revision{Name: "stint.yaml", Document: []byte("rules: [" + rule + "]\n")}); err != nil {
			t.Fatal(err)
		}
		for _, role := range []string{"viewer", "operator"} {
			for _, q := range [][3]string{
				{"GET", "/v1/rules", ""}, {"GET", fmt.Sprint("/v1/rules?version=", now.Number), ""}, {"POST", "/v1/rules/diff", `{"document": "rules: []"}`},
			} {
				status, answer := ask(t, server, tokens[role], q[0], q[1], "", q[2])
				want, clear := http.StatusOK, true
				if role == "viewer" {
					want, clear = http.StatusForbidden, false
				}
				if status != want || strings.Contains(fmt.Sprint(answer), secret) != clear {
					t.Errorf("%s %s as %s: %d %v", q[0], q[1], role, status, answer)
				}
			}
		}
	}
}

// A body counts as read when its first byte is asked for, and ends when it may.
type body struct {
	reading *atomic.Int64
	end     chan struct{}
}

func (b body) Read([]byte) (int, error) {
	b.reading.Add(1)
	<-b.end
	return 0, io.EOF
}

// TestDocumentsOneAtATime sends documents at once: each takes its turn with its body
// unread, and those for which there is no room are refused.
func TestDocumentsOneAtATime(t *testing.T) {
	server, _, tokens := serve(t)
	var reading atomic.Int64
	b, answers := body{&reading, make(chan struct{})}, make(chan int, 64)
	send := func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/rules/validate", b)
		r.Header.Set("Authorization", "Bearer "+tokens["viewer"])
		w := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(w, r)
		answers <- w.Code
	}
	go send()
	for reading.Load() == 0 { // until it reads it is among those that wait
		time.Sleep(time.Millisecond)
	}
	const all = 40
	for range all - 1 {
		go send()
	}
	for refused := range all - 17 { // one reads, 16 wait
		select {
		case status := <-answers:
			if status != http.StatusServiceUnavailable {
				t.Fatalf("beyond those that wait: %d", status)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d refused, %d bodies are read at once", refused, reading.Load())
		}
	}
	if n := reading.Load(); n > 1 {
		t.Errorf("%d bodies are read at once", n)
	}
	close(b.end)
	for range 17 {
		if status := <-answers; status != http.StatusBadRequest { // nothing was sent
			t.Errorf("a document in its turn: %d", status)
		}
	}
}
