package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/service/proxy"
)

const askRules = `
rules:
  - name: tokens
    unless: {path: /apart}
    key: [header.x-customer]
    limits: ["1000 per 10000h sliding_log"]
    cost: {usage: openai, reserve: 10}
  - name: apart
    match: {path: /apart}
    key: [header.x-customer]
    limits: ["1000 per 10000h sliding_log"]
    cost: {usage: openai, reserve: 10, ask_usage: false}
`

const (
	askedChunk = `{"choices":[],"usage":{"total_tokens":70}}`
	someChunks = "data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n: a comment\n\ndata: {\"choices\":[]}\n\n"
	endOfChunk = "data: [DONE]\n\n"
)

// chatServer answers with a stream, which has usage if the request asks for it, in the form that
// the path names. It notes the requests.
func chatServer(t *testing.T, came *string) *url.URL {
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*came = string(body)
		var q struct {
			Options struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		_ = json.NewDecoder(bytes.NewReader(body)).Decode(&q)
		text := someChunks
		if q.Options.Usage {
			text += "data: " + askedChunk + "\n\n"
		}
		text += endOfChunk
		way := r.URL.Query().Get("way")
		if way == "open" {
			text = strings.TrimSuffix(text, "\n\n"+endOfChunk)
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if way == "json" {
			w.Header().Set("Content-Type", "application/json")
			text = askedChunk
		}
		if way == "length" {
			_, _ = io.WriteString(w, text) // net/http says how long it is
			return
		}
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
	})
	return behind
}

// TestAskUsage asks for usage if a stream of text is charged by it, and takes the chunk out of the
// answer in any form, unless the client has asked for it.
func TestAskUsage(t *testing.T) {
	var came string
	f := start(t, chatServer(t, &came), time.Minute, yaml(t, askRules), httplimit.ClientIP{})
	const plain, chunk = someChunks + endOfChunk, "data: " + askedChunk + "\n\n"
	long := `{"stream":true,"messages":["` + strings.Repeat("x", 1<<20) + `"]}`
	for name, c := range map[string]struct {
		path, body, came, got string
		used                  int64
	}{
		"chat":              {"", `{"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[]}`, plain, 70},
		"completions":       {"", ` { "prompt": "a\"b", "stream": true }`, ` {"stream_options":{"include_usage":true}, "prompt": "a\"b", "stream": true }`, plain, 70},
		"options":           {"", `{"stream":true,"stream_options":{"x":[1]},"messages":[]}`, `{"stream":true,"stream_options":{"include_usage":true,"x":[1]},"messages":[]}`, plain, 70},
		"no options":        {"", `{"stream":true,"stream_options":{},"messages":[]}`, `{"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, plain, 70},
		"refused":           {"", `{"stream":true,"stream_options":{"include_usage":false},"messages":[]}`, `{"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, plain, 70},
		"null":              {"", `{"stream":true,"stream_options":null,"messages":[]}`, `{"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, plain, 70},
		"asked":             {"", `{"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, "", someChunks + chunk + endOfChunk, 70},
		"text":              {"", `{"stream":"true","messages":[]}`, `{"stream_options":{"include_usage":true},"stream":"true","messages":[]}`, plain, 70},
		"a number":          {"", `{"stream":1,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":1,"messages":[]}`, plain, 70},
		"none":              {"", `{"stream":null,"messages":[]}`, "", plain, 10},
		"no stream":         {"", `{"messages":[]}`, "", plain, 10},
		"nothing to say":    {"", `{"stream":true}`, "", plain, 10},
		"twice":             {"", `{"stream":false,"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":false,"stream":true,"messages":[]}`, plain, 70},
		"options twice":     {"", `{"stream":true,"stream_options":{"include_usage":true},"Stream_Options":{"include_usage":false,"INCLUDE_USAGE":0},"messages":[]}`, `{"stream":true,"stream_options":{"include_usage":true},"Stream_Options":{"include_usage":true,"INCLUDE_USAGE":true},"messages":[]}`, plain, 70},
		"identity":          {"", `{"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[]}`, plain, 70},
		"other options":     {"", `{"stream":true,"Stream_Options":{"Include_Usage":0},"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"Stream_Options":{"include_usage":true,"Include_Usage":true},"messages":[]}`, plain, 70},
		"another spelling":  {"", `{"Stream":true,"\u017ftream":false,"messages":[]}`, `{"stream_options":{"include_usage":true},"Stream":true,"\u017ftream":false,"messages":[]}`, plain, 70},
		"no JSON":           {"", `{"stream":true,"messages":[]`, "", plain, 10},
		"two documents":     {"", `{"stream":true,"messages":[]} {}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[]} {}`, plain, 70},
		"gzip":              {"", `{"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[]}`, plain, 70},
		"too long":          {"", long, "", plain, 10},
		"switched off":      {"/apart", `{"stream":true,"messages":[]}`, "", plain, 0},
		"of known length":   {"/v1/chat?way=length", `{"stream":true,"messages":[]}`, "-", plain, 70},
		"without its end":   {"/v1/chat?way=open", `{"stream":true,"messages":[]}`, "-", someChunks, 70},
		"no stream of such": {"/v1/chat?way=json", `{"stream":true,"messages":[]}`, "-", askedChunk, 70},
	} {
		path := c.path
		if path == "" {
			path = "/v1/chat"
		}
		customer := strings.ReplaceAll(name, " ", "-")
		header := []string{"X-Customer", customer}
		if name == "identity" || name == "gzip" {
			header = append(header, "Content-Encoding", name)
		}
		answer := f.send(t, http.MethodPost, path, strings.NewReader(c.body), header...)
		got, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want := c.came; err != nil || want != "-" && came != want && (want != "" || came != c.body) {
			t.Errorf("%s: the server got %.200q, %v", name, came, err)
		}
		if string(got) != c.got {
			t.Errorf("%s: the client got\n%q\nwant\n%q", name, got, c.got)
		}
		if c.used > 0 {
			settled(t, f, customer, c.used)
		}
	}
}

// A writesRecorder keeps each write apart.
type writesRecorder struct {
	*httptest.ResponseRecorder
	writes []string
}

func (w *writesRecorder) Write(p []byte) (int, error) {
	w.writes = append(w.writes, string(p))
	return len(p), nil
}

// TestHidePasses: comments, which keep connections alive, pass as they come; the chunk is left out behind a
// byte order mark, and where the server says that nothing is compressed.
func TestHidePasses(t *testing.T) {
	chunk := "data: " + askedChunk + "\n\n"
	for _, c := range []struct{ in, want []string }{
		{[]string{": a\n", ": b", "\r\n:\r", "data: 1\n", "\n"}, []string{": a\n", ": b", "\r\n:", "\r", "data: 1\n\n"}},
		{[]string{":", chunk, chunk, "data: 1\n\n"}, []string{":", chunk, "data: 1\n\n"}},
		{[]string{": " + strings.Repeat("x", 40_000), "\n" + chunk, "data: 1\n\n"}, []string{": " + strings.Repeat("x", 40_000), "\n", "data: 1\n\n"}},
		{[]string{": a\n" + chunk, ": b\n", chunk, "data: 1\n\n"}, []string{": b\n", "data: 1\n\n"}},
		{[]string{"\xef", "\xbb\xbf: a\n", ": b\n" + chunk, "data: 1\n\n"}, []string{"\ufeff: a\n", "data: 1\n\n"}},
		{[]string{"\ufeff" + chunk, "data: 1\n\n"}, []string{"\ufeff", "data: 1\n\n"}},
	} {
		w := &writesRecorder{ResponseRecorder: httptest.NewRecorder()}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "identity")
		if proxy.HideUsage(w, c.in...); !slices.Equal(w.writes, c.want) {
			t.Errorf("%q: the client got %q, want %q", c.in, w.writes, c.want)
		}
	}
}

// TestHideAtAnyCut cuts streams, with each way to end lines, at each two places: what is left out is
// the chunk, to the byte.
func TestHideAtAnyCut(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		want := strings.ReplaceAll(": a\n\n: b\n"+someChunks+endOfChunk, "\n", end)
		text := strings.ReplaceAll(": a\n\n: b\n"+someChunks+"data: "+askedChunk+"\n\n"+endOfChunk, "\n", end)
		for first := range len(text) {
			for second := first; second < len(text); second++ {
				w := httptest.NewRecorder()
				w.Header().Set("Content-Type", "text/event-stream")
				proxy.HideUsage(w, text[:first], text[first:second], text[second:])
				if got := w.Body.String(); got != want {
					t.Fatalf("cut at %d and %d: the client got\n%q\nwant\n%q", first, second, got, want)
				}
			}
		}
	}
}

// TestAskedBodiesFreed: a body that is held to ask for usage takes room until it has been read, or its answer
// has ended.
func TestAskedBodiesFreed(t *testing.T) {
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reads" {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	f := start(t, behind, time.Minute, yaml(t, askRules), httplimit.ClientIP{})
	for _, path := range []string{"/early", "/reads"} {
		for _, size := range []int{10, 70_000, 1 << 20, 1<<20 + 100_000} {
			for _, length := range []int64{0, -1} {
				for _, leaves := range []bool{false, true} {
					body := `{"stream":true,"messages":["` + strings.Repeat("x", size) + `"]}`
					ctx, stop := context.WithCancel(t.Context())
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.address+path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					if length < 0 {
						r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(body))
					}
					if leaves {
						time.AfterFunc(time.Millisecond, stop)
					}
					free := func() {
						t.Helper()
						await.Until(t, fmt.Sprintf("%s, %d, %d, leaves %t: no bytes are held", path, size, length, leaves), func() bool { return f.Held() == 0 })
					}
					if answer, err := http.DefaultClient.Do(r); err == nil {
						if path == "/reads" { // while it streams
							free()
						}
						stop()
						_ = answer.Body.Close()
					}
					stop()
					free()
				}
			}
		}
	}
}
