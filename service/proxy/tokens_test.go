package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/service/proxy"
)

const tokenRules = `
rules:
  - name: tokens
    match: {header.x-dialect: %s}
    key: [header.x-customer]
    limits: ["%d per 10000h fixed_window"]
    cost: {usage: %s, cut: %t, reserve: {attribute: [body./max_completion_tokens, body./max_tokens], default: 20, max: 200}}
  - name: places
    key: []
    limits: [1000 in flight]
`

// A said is what a server of models says to one request: pieces with a token each, and what it
// says of all of them.
type said struct {
	pieces []string // each is an event, or a line
	tokens []int    // of each
	usage  int      // the most that it says; 0 if nothing
}

// tell returns an answer of a number of tokens as one of the dialects has it.
func tell(dialect string, tokens int, usage, ends bool) (s said) {
	data := func(name, format string, args ...any) string {
		event := "data: " + fmt.Sprintf(format, args...) + "\n\n"
		if name != "" {
			event = "event: " + name + "\n" + event
		}
		return event
	}
	add := func(piece string, n int) { s.pieces, s.tokens = append(s.pieces, piece), append(s.tokens, n) }
	total := tokens + 9
	if dialect == "anthropic" {
		add(data("message_start", `{"message":{"usage":{"input_tokens":9,"output_tokens":1}}}`), 0)
		s.usage = 10 // which stands where nothing else is said
	}
	for i := range tokens {
		switch dialect {
		case "openai":
			add(data("", `{"choices":[{"delta":{"content":"t%d \"usage\":{"}}],"usage":null}`, i), 1)
		case "anthropic":
			add(data("content_block_delta", `{"type":"content_block_delta","delta":{"text":"t%d"}}`, i), 1)
		case "gemini":
			add(data("", `{"candidates":[{"text":"t%d"}],"usageMetadata":{"totalTokenCount":%d}}`, i, i+10), 1)
		case "ollama":
			add(fmt.Sprintf(`{"response":"t%d","done":false}`+"\n", i), 1)
		}
	}
	switch {
	case dialect == "gemini":
		s.usage = total
	case !usage:
	case dialect == "openai":
		add(data("", `{"choices":[],"usage":{"total_tokens":%d}}`, total), 0)
		s.usage = total
	case dialect == "anthropic":
		add(data("message_delta", `{"usage":{"output_tokens":%d}}`, tokens), 0)
		s.usage = max(s.usage, total)
	case dialect == "ollama":
		add(fmt.Sprintf(`{"done":true,"prompt_eval_count":9,"eval_count":%d}`+"\n", tokens), 0)
		s.usage = total
	}
	if ends && dialect == "openai" {
		add("data: [DONE]\n\n", 0)
	}
	return s
}

// deliver writes an answer in one of six ways.
func deliver(w io.Writer, flush func(), s said, way int) {
	text := strings.Join(s.pieces, "")
	switch way {
	case 0: // as it is made
		for _, piece := range s.pieces {
			_, _ = io.WriteString(w, piece)
			flush()
		}
		return
	case 1: // all at once
		_, _ = io.WriteString(w, text)
		return
	case 2:
		text = strings.ReplaceAll(text, "\n", "\r\n")
	case 3:
		text = strings.ReplaceAll(text, "data:", ": ping\n\ndata:")
	case 4:
		text = strings.ReplaceAll(text, "data: ", "data:")
	}
	for len(text) > 0 { // cut anywhere
		n := min(1+way*7, len(text))
		_, _ = io.WriteString(w, text[:n])
		text = text[n:]
		flush()
	}
}

// TestTokens holds what is charged between what was served, less the last piece, and the
// greatest of what was served, the reservation and the estimate, whatever clients write and
// whenever they leave.
func TestTokens(t *testing.T) {
	histories := 10_000
	if testing.Short() {
		histories = 240
	}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, way := answers(r)
		w.Header().Set("Content-Type", "text/event-stream")
		deliver(w, w.(http.Flusher).Flush, s, way)
	}))
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	for _, dialect := range []string{"openai", "anthropic", "gemini", "ollama"} {
		f := start(t, target, time.Minute, yaml(t, fmt.Sprintf(tokenRules, dialect, int(1e9), dialect, false)), httplimit.ClientIP{})
		var all sync.WaitGroup
		bounds := make([][2]int64, histories/4)
		turn := make(chan struct{}, 8)
		for i := range bounds {
			turn <- struct{}{}
			all.Go(func() {
				defer func() { <-turn }()
				bounds[i], _ = tokenHistory(t, f, dialect, fmt.Sprint("c", i), rand.New(rand.NewPCG(seed, uint64(i))))
			})
		}
		all.Wait()
		await.Until(t, "all have ended", func() bool { return f.source.Policy().InFlight()["places"] == 0 })
		for i, b := range bounds {
			used, err := f.source.Policy().UsedOf(t.Context(), "tokens", fmt.Sprint("c", i))
			if err != nil || len(used) != 1 {
				t.Fatal(used, err)
			}
			if got := used[0].Limit.Count() - used[0].Remaining; got < b[0] || got > b[1] {
				t.Errorf("seed %d, %s %d: charged %d, want from %d to %d", seed, dialect, i, got, b[0], b[1])
			}
		}
	}
}

// answers is what a server of models answers to a request of tokenHistory.
func answers(r *http.Request) (s said, way int) {
	var q struct {
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	var tokens int
	var usage, ends bool
	_, _ = fmt.Sscan(r.Header.Get("X-Answer"), &tokens, &way, &usage, &ends)
	dialect := r.Header.Get("X-Dialect")
	if dialect == "openai" {
		usage = q.Options.Usage
	}
	return tell(dialect, tokens, usage, ends), way
}

// byChunk answers as a server does whose every piece, or so many together as the way says,
// comes by itself.
type byChunk struct{}

func (byChunk) RoundTrip(r *http.Request) (*http.Response, error) {
	s, way := answers(r)
	var chunks []io.Reader
	for at := 0; at < len(s.pieces); at += 1 + way {
		chunks = append(chunks, strings.NewReader(strings.Join(s.pieces[at:min(at+1+way, len(s.pieces))], "")))
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(slowly{io.MultiReader(chunks...)}), Request: r,
	}, nil
}

// slowly lets others read in between.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(50 * time.Microsecond)
	return s.Reader.Read(p)
}

// TestTokensCut has up to six streams of one key share a budget, which cuts them: what is
// served above it is at most a chunk of each, and what is charged is bounded as ever.
func TestTokensCut(t *testing.T) {
	const budget = 100
	histories := 10_000
	if testing.Short() {
		histories = 240
	}
	seed := rand.Uint64()
	for _, dialect := range []string{"openai", "anthropic", "gemini", "ollama"} {
		f := start(t, mustURL(t, "http://127.0.0.1:1"), time.Minute, yaml(t, fmt.Sprintf(tokenRules, dialect, budget, dialect, true)), httplimit.ClientIP{}, proxy.Options{Transport: byChunk{}})
		for i := range histories / 4 {
			customer, rnd := fmt.Sprint("c", i), rand.New(rand.NewPCG(seed, uint64(i)))
			bounds, served := make([][2]int64, 1+rnd.IntN(6)), make([]int64, 6)
			var all sync.WaitGroup
			for k := range bounds {
				own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
				all.Go(func() { bounds[k], served[k] = tokenHistory(t, f, dialect, customer, own) })
			}
			all.Wait()
			await.Until(t, "all have ended", func() bool { return f.source.Policy().InFlight()["places"] == 0 })
			used, err := f.source.Policy().UsedOf(t.Context(), "tokens", customer)
			if err != nil || len(used) != 1 {
				t.Fatal(used, err)
			}
			least, most, sum := int64(0), int64(0), int64(0)
			for k, b := range bounds {
				least, most, sum = least+b[0], most+b[1], sum+served[k]
			}
			if got := used[0].Used(); sum > budget+6*int64(len(bounds)) || got < least || got > most {
				t.Errorf("seed %d, %s %d: %d served of %d by %d, charged %d, want from %d to %d", seed, dialect, i, sum, budget, len(bounds), got, least, most)
			}
		}
	}
}

// isToken matches a token that has been served.
var isToken = regexp.MustCompile(`"t[0-9]+`)

// tokenHistory asks once, reads as far as it likes, and returns what may be charged, and what
// was served.
func tokenHistory(t *testing.T, f *front, dialect, customer string, rnd *rand.Rand) (bounds [2]int64, served int64) {
	tokens, way, usage, ends := rnd.IntN(60), rnd.IntN(6), rnd.IntN(2) == 0, rnd.IntN(2) == 0
	reserve, body := int64(20), `{"stream":true`
	if rnd.IntN(2) == 0 {
		reserve = 1 + rnd.Int64N(50)
		body += fmt.Sprintf(`,"max_tokens":1,"max_completion_tokens":%d`, reserve)
	}
	asks := rnd.IntN(3)
	body += [...]string{`,"messages":[]}`, `,"messages":[],"stream_options":{"include_usage":true}}`, `}`}[asks]
	if dialect == "openai" {
		usage = asks < 2
	}
	s := tell(dialect, tokens, usage, ends)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.address+"/v1/chat", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return bounds, 0
	}
	r.Header.Set("X-Dialect", dialect)
	r.Header.Set("X-Customer", customer)
	r.Header.Set("X-Answer", fmt.Sprint(tokens, way, usage, ends))
	answer, err := f.client.Do(r)
	if err != nil {
		t.Error(err)
		return bounds, 0
	}
	if answer.StatusCode == http.StatusTooManyRequests {
		_ = answer.Body.Close() // nothing was served
		return bounds, 0
	}
	read := int64(1 << 30)
	if rnd.IntN(2) == 0 {
		read = rnd.Int64N(3000)
	}
	got, err := io.ReadAll(io.LimitReader(answer.Body, read))
	if err != nil && read == 1<<30 && !errors.Is(err, io.ErrUnexpectedEOF) { // it was cut
		t.Errorf("%s: %v", customer, err)
	}
	cancel()
	_ = answer.Body.Close() // it has been read, or is left
	served = int64(len(isToken.FindAll(got, -1)))
	most := max(int64(s.usage), reserve, int64(len(s.pieces)), served)
	if dialect == "ollama" { // a line alone is no stream: its bytes count
		most = max(most, int64(len(strings.Join(s.pieces[:min(2, len(s.pieces))], ""))+3)/4+1)
	}
	return [2]int64{served - 1, most}, served
}
