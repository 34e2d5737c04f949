package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRelay compares what a client gets with what the upstream sent: interim answers are unchanged,
// the final answer has the fields of limits, and no Content-Type is guessed.
func TestRelay(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		for _, hint := range strings.Fields(r.URL.Query().Get("hints")) {
			w.Header().Set("Link", hint)
			w.Header().Set("RateLimit", `"behind";r=0`)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Del("RateLimit")
		}
		if r.Body != http.NoBody { // sends 100
			_, _ = r.Body.Read(make([]byte, 100))
		}
		w.Header().Set("X-Behind", "1")
		w.Header().Set("RateLimit-Policy", `"behind";q=1`)
		_, _ = w.Write([]byte("<html><script>"))
	}, time.Minute, "none", "100/h")

	for _, major := range []int{1, 2} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(major == 1)
		protocols.SetUnencryptedHTTP2(major == 2)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols, ExpectContinueTimeout: time.Minute}}
		t.Cleanup(client.CloseIdleConnections)
		for _, test := range []struct{ hints, body string }{{}, {hints: "a"}, {hints: "a+b"}, {body: "text"}} {
			var interim []string
			request, err := http.NewRequest(http.MethodPost, "http://"+f.address+"/?hints="+test.hints, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{}
			for hint := range strings.FieldsFuncSeq(test.hints, func(c rune) bool { return c == '+' }) {
				want = append(want, "103 map[Link:["+hint+"] Ratelimit:[\"behind\";r=0]]")
			}
			if test.body != "" {
				request.Header.Set("Expect", "100-continue")
			}
			request = request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					if code != http.StatusContinue || len(h) > 0 { // the proxy may send one, too
						interim = append(interim, fmt.Sprint(code, " ", h))
					}
					return nil
				},
			}))
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			h := answer.Header
			if answer.ProtoMajor != major || !slices.Equal(interim, want) {
				t.Errorf("%s, %+v: interim %q, want %q", answer.Proto, test, interim, want)
			}
			if kind, said := h["Content-Type"]; said || h.Get("X-Behind") != "1" || len(h["Ratelimit"]) != 1 || h.Get("RateLimit") == "" ||
				len(h["Ratelimit-Policy"]) != 2 || h["Ratelimit-Policy"][1] != `"behind";q=1` {
				t.Errorf("%s, %+v: %q, header %v", answer.Proto, test, kind, h)
			}
		}
	}
}

// TestSlowAnswer: the beginning of an answer passes before the upstream has sent the rest.
func TestSlowAnswer(t *testing.T) {
	goOn := make(chan struct{})
	f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		for _, piece := range []string{"ab", "cd"} {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-goOn:
			case <-r.Context().Done(): // the client has lost patience
			}
			_, _ = io.WriteString(w, piece)
		}
	}, time.Minute, "none", "100/h")
	f.client.Timeout = 3 * time.Minute // what stays in a buffer is a failure
	answer := f.get(t, "/")
	var body []byte
	for range 2 {
		goOn <- struct{}{}
		piece := make([]byte, 2)
		if _, err := io.ReadFull(answer.Body, piece); err != nil {
			t.Fatal(err)
		}
		body = append(body, piece...)
	}
	if string(body) != "abcd" || answer.ContentLength != 4 {
		t.Errorf("%q of %d bytes", body, answer.ContentLength)
	}
}
