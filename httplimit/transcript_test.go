package httplimit_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/memstore"
)

// TestTranscripts plays the files of testdata: first what the guard is made
// of, then requests, each with the answer that must come, whole, at a virtual
// time that starts with the year 2000:
//
//	limit 2/1m name login        one line for each limit
//	dialect draft11
//
//	GET / 192.0.2.7
//	Accept: text/plain
//	----
//	200
//	…
//
// "wait 3s" lets time pass; "go test -update" writes the answers.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text := disk.Read(t, file)
			var played string
			synctest.Test(t, func(t *testing.T) { played = play(t, string(text)) })
			golden.Equal(t, file, played)
		})
	}
}

// play returns the transcript with the answers that come now.
func play(t *testing.T, text string) string {
	var out strings.Builder
	setup, rest, _ := strings.Cut(text, "\n\n")
	handler := guardOf(t, setup)
	out.WriteString(setup + "\n")
	for _, block := range strings.Split(rest, "\n\n") {
		block = strings.TrimSpace(block)
		if block == "" {
			continue
		}
		if comment := strings.HasPrefix(block, "#"); comment {
			fmt.Fprintf(&out, "\n%s\n", block)
			continue
		}
		if wait, ok := strings.CutPrefix(block, "wait "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			fmt.Fprintf(&out, "\n%s\n", block)
			continue
		}
		asked, _, _ := strings.Cut(block, "\n----")
		began := time.Now()
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, asRequest(t, asked))
		fmt.Fprintf(&out, "\n%s\n----\n%s", asked, answer(rec, time.Since(began)))
	}
	return out.String()
}

// guardOf makes the guard that the head of a transcript describes.
func guardOf(t *testing.T, setup string) http.Handler {
	var o httplimit.Options
	var limits []stint.Limit
	for _, line := range strings.Split(setup, "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "limit":
			rest, name, named := strings.Cut(rest, " name ")
			l := made.Limit(t, rest)
			if named {
				l = l.WithName(name)
			}
			limits = append(limits, l)
		case "dialect":
			var err error
			if o.Dialect, err = httplimit.ParseDialect(rest); err != nil {
				t.Fatal(err)
			}
		case "shadow":
			o.Shadow = true
		case "cost":
			o.Cost = func(r *http.Request) int64 { return int64(len(r.URL.Path) - 1) }
		case "maxwait":
			o.MaxWait, _ = time.ParseDuration(rest)
		case "missing":
			o.Missing = map[string]httplimit.Missing{"deny": httplimit.MissingDeny, "skip": httplimit.MissingSkip}[rest]
		case "#":
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	l := made.Limiter(t, memstore.New(memstore.Options{}), limits[0].Name(), limits...)
	guard := sound(t)(httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), o))
	return guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
}

func asRequest(t *testing.T, text string) *http.Request {
	head, headers, _ := strings.Cut(text, "\n")
	words := strings.Fields(head)
	if len(words) != 3 {
		t.Fatalf("%q: method, path, peer", head)
	}
	r := httptest.NewRequest(words[0], words[1], nil)
	r.RemoteAddr = words[2]
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(headers + "\n\n"))).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range h {
		r.Header[name] = values
	}
	return r
}

// answer prints a response, fields in order, and how long it took.
func answer(rec *httptest.ResponseRecorder, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", rec.Code)
	if took > 0 {
		fmt.Fprintf(&b, " after %v", took)
	}
	b.WriteString("\n")
	var names []string
	for name := range rec.Header() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range rec.Header()[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if body := rec.Body.String(); body != "" && body != "hello\n" {
		fmt.Fprintf(&b, "> %s", body)
	}
	return b.String()
}

// TestDialectsDocumented: the page names each dialect as flags do.
func TestDialectsDocumented(t *testing.T) {
	page := pages.Read(t, "docs/HTTP.md")
	for _, name := range httplimit.DialectNames() {
		if !strings.Contains(page, "`, `"+name+"` |") {
			t.Errorf("the table of docs/HTTP.md has no dialect %s", name)
		}
	}
}
