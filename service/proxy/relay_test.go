package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
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
				!slices.Equal(h["Ratelimit-Policy"], []string{`"proxy";q=100;w=3600, "behind";q=1`}) {
				t.Errorf("%s, %+v: %q, header %v", answer.Proto, test, kind, h)
			}
		}
	}
}

// TestRelayLists: where the server behind sends RateLimit fields of its own, clients get one list
// with those of the proxy first. Fields in another form than a list of strings, which would make
// the whole list invalid, are left out, but not where the proxy has none itself. What the proxy says
// remains is what remains after the answer is settled.
func TestRelayLists(t *testing.T) {
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		for _, line := range r.URL.Query()["line"] {
			w.Header().Add("RateLimit", line)
			w.Header().Add("RateLimit-Policy", line)
		}
		w.Header().Set("RateLimit-Limit", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	f := start(t, behind, time.Minute, yaml(t, "rules: [{name: p, match: {path: /limited}, key: [], limits: 100/h}, {name: c, match: {path: /counted}, key: [], limits: 100/h, count: {status: [401]}}]"), httplimit.ClientIP{})
	for _, test := range []struct {
		lines []string
		list  bool
	}{
		{},
		{[]string{`"a";r=0;t=5`}, true},
		{[]string{`"a";r=0, "b, c";r=1;t=9;pk=:R0V=:`, `"d\"\\"; q=5;x`}, true},
		{[]string{`"a", "b"`, `"c";n="x,;y";f=1.5;g=?1;h=*t/k`}, true},
		{[]string{`limit=10, remaining=1, reset=7`}, false}, // draft 07
		{[]string{`100;w=60`}, false},                       // drafts 03 to 07
		{[]string{`"a";r=0`, `limit=10, remaining=1, reset=7`}, false},
		{[]string{`token;r=1`}, false}, {[]string{`"open;r=1`}, false}, {[]string{`"a";r=1,`}, false}, {[]string{`"a";R=1`}, false}, {[]string{`"a";r=`}, false}, {[]string{`"a" b`}, false}, {[]string{""}, false},
	} {
		for path, own := range map[string][]string{"/limited": {`"p";r=`, `"p";q=100;w=3600`}, "/counted": {`"c";r=100;`, `"c";q=100;w=3600`}, "/free": nil} {
			answer, err := f.client.Get("http://" + f.address + path + "?" + url.Values{"line": test.lines}.Encode())
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			for i, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
				got := answer.Header[name]
				if own == nil {
					if !slices.Equal(got, test.lines) {
						t.Errorf("%q, without a limit: %s: %q", test.lines, name, got)
					}
					continue
				}
				theirs := ""
				if test.list {
					theirs = ", " + strings.Join(test.lines, ", ")
				}
				if len(got) != 1 || !strings.HasPrefix(got[0], own[i]) || !strings.HasSuffix(got[0], theirs) || theirs == "" && strings.Contains(got[0], ",") {
					t.Errorf("%q: %s: %q", test.lines, name, got)
				}
			}
			if got := answer.Header["Ratelimit-Limit"]; !slices.Equal(got, []string{"7"}) {
				t.Errorf("%q: RateLimit-Limit: %q", test.lines, got)
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
