package rulesapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
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

// A body counts as read when its first byte is asked for, and ends, with nothing, when it may.
type body struct {
	reading *atomic.Int64
	end     chan struct{}
}

func (b body) Read([]byte) (int, error) {
	b.reading.Add(1)
	<-b.end
	return 0, io.EOF
}

// TestSlowDocuments sends documents that do not come: another one is read meanwhile.
func TestSlowDocuments(t *testing.T) {
	server, _, tokens := serve(t)
	var reading atomic.Int64
	b, answers := body{&reading, make(chan struct{})}, make(chan int, 64)
	send := func(body io.Reader) {
		r := httptest.NewRequest(http.MethodPost, "/v1/rules/validate", body)
		r.Header.Set("Authorization", "Bearer "+tokens["viewer"])
		w := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(w, r)
		answers <- w.Code
	}
	const all = 40
	for range all {
		go send(b)
	}
	await.Until(t, "all are being read", func() bool { return reading.Load() == all })
	send(strings.NewReader(`{"name":"stint.yaml","document":"rules: [{name: a, key: [ip], limits: [1/h]}]"}`))
	if status := <-answers; status != http.StatusOK {
		t.Errorf("a document beside those that do not come: %d", status)
	}
	close(b.end)
	for range all {
		if status := <-answers; status != http.StatusBadRequest && status != http.StatusServiceUnavailable { // nothing was sent, and 16 may wait for their turn
			t.Errorf("one that did not come: %d", status)
		}
	}
}
