package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/testkit/openapi"
)

// The tokens of the transcripts.
const (
	askToken      = "ask-0123456789abcdef"
	operatorToken = "operator-0123456789abcdef"
)

// setups are what differs from one transcript to the next, by its name.
var setups = map[string]func(t *testing.T, o *server.Options){
	"draft06":     func(_ *testing.T, o *server.Options) { o.Dialect = httplimit.Draft06 },
	"x-ratelimit": func(_ *testing.T, o *server.Options) { o.Dialect = httplimit.XRateLimit },
	"none":        func(_ *testing.T, o *server.Options) { o.Dialect = httplimit.NoFields },
	"failure":     withoutStore,
	"batch":       func(_ *testing.T, o *server.Options) { o.MaxBatch = 3 },
	"bodies":      func(_ *testing.T, o *server.Options) { o.MaxBody = 1 << 10 },
	"operate":     withTokens,
	"roles":       withTokens,
}

func withTokens(t *testing.T, o *server.Options) {
	o.Open = false
	o.Clients = writeTokens(t, "# asking\n\n"+askToken+"\nask-another-0123456789\n")
	o.Operators = writeTokens(t, operatorToken+"\n")
}

func writeTokens(tb testing.TB, text string) *server.Tokens {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tokens")
	disk.Write(tb, path, text)
	tokens, err := server.ReadTokens(path)
	if err != nil {
		tb.Fatal(err)
	}
	return tokens
}

// TestTranscripts sends the requests of testdata and compares what comes back,
// on a clock that stands still but for lines such as "+ 12s":
//
//	# why
//	+ 12s
//	POST /v1/check
//	Peer: 127.0.0.1
//
//	{"attributes": …
//	----
//	200
//	Content-Type: …
//
//	{"allowed": …
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOptions(t, someRules)
				if change := setups[name]; change != nil {
					change(t, &o)
				}
				transcript(t, file, server.NewHandler(o))
			})
		})
	}
}

func transcript(t *testing.T, file string, h http.Handler) {
	token := ""
	golden.Play(t, file, "\n\n====\n\n", func(question string) string { return play(t, h, question, &token) })
}

var reservation = regexp.MustCompile(`"reservation":"([^"]+)"`)

// play sends one question. TOKEN in it is the reservation that was given last,
// which is not the same from run to run.
func play(t *testing.T, h http.Handler, question string, token *string) string {
	t.Helper()
	head, body, _ := strings.Cut(question, "\n\n")
	var r *http.Request
	for line := range strings.Lines(head) {
		line = strings.TrimSuffix(line, "\n")
		if wait, ok := strings.CutPrefix(line, "+ "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			continue
		}
		if strings.HasPrefix(line, "# ") {
			continue
		}
		if r == nil {
			method, target, _ := strings.Cut(line, " ")
			body := strings.ReplaceAll(strings.ReplaceAll(body, "TOKEN", *token), "LONG", strings.Repeat("x", 1<<10))
			r = httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
			if method == http.MethodPost {
				r.Header.Set("Content-Type", "application/json")
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case name == "Peer":
			r.RemoteAddr = value + ":4711"
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		case name == "Content-Type":
			r.Header.Set(name, value)
		default:
			r.Header.Add(name, value)
		}
	}
	asked, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(asked))
	w := served(h, r)
	described(t, r, asked, w)
	answer := w.Body.String()
	if m := reservation.FindStringSubmatch(answer); m != nil {
		*token = m[1]
		answer = strings.Replace(answer, m[1], "TOKEN", 1)
	}
	return printed(w, answer)
}

// printed is an answer as text, its fields in order of their names.
func printed(w *httptest.ResponseRecorder, body string) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Code)
	var lines []string
	for name, values := range w.Header() {
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	b.WriteString("\n" + body)
	return strings.TrimSuffix(b.String(), "\n")
}

// described holds a question of /v1 and its answer to the description that the server gives:
// what it does not describe is refused, and what is answered is described.
func described(t *testing.T, r *http.Request, asked []byte, w *httptest.ResponseRecorder) {
	t.Helper()
	text := disk.Read(t, "openapi.json")
	api, err := openapi.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if api.Operation(r.Method, r.URL.Path) == nil {
		return
	}
	var question, answer any
	if err := json.Unmarshal(asked, &question); err == nil && w.Code == http.StatusOK {
		err = api.Request(r.Method, r.URL.Path, question)
		if err != nil {
			t.Errorf("%s: %s\nis answered, and not described: %v", r.URL.Path, asked, err)
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Errorf("%s: %s: %v", r.URL.Path, w.Body, err)
	} else if err := api.Answer(r.Method, r.URL.Path, w.Code, w.Header().Get("Content-Type"), answer); err != nil {
		t.Errorf("%s: %d %s\nis not described: %v", r.URL.Path, w.Code, w.Body, err)
	}
}

// TestOpenAPI serves the description, which names each verb and each field that it reads.
func TestOpenAPI(t *testing.T) {
	o := newOptions(t, someRules)
	withTokens(t, &o)
	h, operator := server.NewHandler(o), func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+operatorToken) }
	w := served(h, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	api, err := openapi.Parse(w.Body.Bytes())
	if err != nil {
		t.Fatalf("%d: %v", w.Code, err)
	}
	described := 0
	for range api.Operations {
		described++
	}
	if paths := server.Verbs(); described != len(paths) {
		t.Errorf("%d operations are described, of %d", described, len(paths))
	}
	who := map[string]any{"path": "/"}
	values := map[string]any{
		"attributes": who, "cost": 1.0, "costs": map[string]any{"work": 1.0}, "ttl": "1m", "reservation": "x",
		"requests": []any{map[string]any{"attributes": who}},
	}
	for _, path := range server.Verbs() {
		for name, value := range values {
			body := map[string]any{name: value}
			for _, must := range []string{"attributes", "reservation", "cost"} {
				if name != "requests" && api.Request("POST", path, body) != nil {
					body[must] = values[must]
				}
			}
			text, _ := json.Marshal(body)
			reads := !strings.Contains(post(h, path, string(text), operator).Body.String(), "unknown field")
			if err := api.Request("POST", path, body); reads != (err == nil) {
				t.Errorf("%s %s is read: %v, and described: %v", path, text, reads, err)
			}
		}
	}
}
