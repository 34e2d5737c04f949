package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

// said is a body of seven bytes that says that it costs seven.
const said = `{"n":7}`

// A serving is a handler that answers with said. The client gets all that can be sent before the
// handler ends as end says.
type serving struct {
	method, length string // length is the Content-Length
	status         int
	by, end        string
}

func (s serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.length != "" {
		w.Header().Set("Content-Length", s.length)
	}
	w.WriteHeader(s.status)
	switch s.by {
	case "Write":
		_, _ = w.Write([]byte(said[:3]))
		_, _ = w.Write([]byte(said[3:]))
	case "WriteString":
		_, _ = io.WriteString(w, said)
	case "ReadFrom":
		_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(said)})
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(err)
	}
	switch s.end {
	case "client leaves":
		<-r.Context().Done()
	case "panic":
		panic(http.ErrAbortHandler)
	}
}

// empty reports whether HTTP sends no body.
func (s serving) empty() bool {
	return s.method == http.MethodHead || s.status == http.StatusNoContent || s.status == http.StatusNotModified
}

// broke reports whether the client cannot know that it has got all.
func (s serving) broke() bool {
	return !s.empty() && (s.length == "10" || s.length == "" && s.end != "return")
}

// bytes is what the response costs by its bytes, if 100 are reserved, and usage by what it says.
func (s serving) bytes() int64 {
	switch {
	case s.broke():
		return 100
	case s.empty():
		return 0
	}
	return 7
}

func (s serving) usage() int64 {
	if s.empty() || s.broke() {
		return 100
	}
	return 7
}

// TestResponseWhole: a response is whole when all is sent that its header announces, whatever the
// client or the handler does then, or else when the handler returns. What is not sent, as in the
// answer to HEAD, is no body.
func TestResponseWhole(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, status := range []int{200, 204, 304, 404} {
			for _, length := range []string{"", "7", "10"} {
				for _, by := range []string{"Write", "WriteString", "ReadFrom"} {
					for _, end := range []string{"return", "client leaves", "panic"} {
						s := serving{method, length, status, by, end}
						for rule, want := range map[string]int64{"bytes": s.bytes(), "/n": s.usage()} {
							m := metering(t, fmt.Sprintf(rulesOf, fmt.Sprintf(`"cost": {"response": %q, "reserve": 100}`, rule)), s.ServeHTTP)
							fetch(t, m, s)
							if got := 1000 - m.left("/r/x")["r"]; got != want {
								t.Errorf("%+v: charged %d by %s, want %d", s, got, rule, want)
							}
							m.Close()
						}
					}
				}
			}
		}
	}
}

// fetch reads the header and what is sent of the body, and leaves before the handler ends, or
// after.
func fetch(t *testing.T, m *metered, s serving) {
	conn, err := net.Dial("tcp", m.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "%s /r/x HTTP/1.1\r\nHost: h\r\n\r\n", s.method)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: s.method})
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	if !s.empty() {
		if _, err := io.ReadFull(resp.Body, make([]byte, len(said))); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	}
	if s.end == "client leaves" {
		_ = conn.Close()
	}
	<-m.ended
}

// TestResponseNotFlushed: what a writer cannot send breaks off, also at its end, and the handler
// gets the error.
func TestResponseNotFlushed(t *testing.T) {
	p := policyOf(t, memstore.New(memstore.Options{}), fmt.Sprintf(rulesOf, `"cost": {"response": "bytes", "reserve": 100}`))
	guard := sound(t)(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{}))
	guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "7")
		_, _ = io.WriteString(w, said)
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, errGone) {
			t.Errorf("Flush returns %v", err)
		}
	})).ServeHTTP(goneWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/r/x", nil))
	if used, err := p.UsedOf(t.Context(), "r", "192.0.2.1"); err != nil || used[0].Used != 100 {
		t.Errorf("%+v, %v", used, err)
	}
}
