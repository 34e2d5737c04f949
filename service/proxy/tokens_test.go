package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/service/proxy"
)

const tokenRules = `
rules:
  - name: tokens
    match: {header.x-usage: %s}
    key: [header.x-customer]
    limits: ["%d per 10000h fixed_window"]
    cost: {usage: %s, cut: %t, reserve: {attribute: [body./max_completion_tokens, body./max_tokens], default: 20, max: 200}}
  - name: places
    key: []
    limits: [1000 in flight]
`

// A said is the answer of a model's server to one request: pieces with a token each, and its usage.
type said struct {
	pieces []string // each is an event, a line, or a part of a document
	usage  int      // the most tokens that its usage tells; 0 if it has none
	whole  bool     // it tells its final usage, and ends
}

// TestTokens holds what is charged between what was served, less the last piece, and the
// greatest of what was served, the reservation and the estimate, whatever clients write and
// whenever they leave. A whole answer that says its usage is charged that.
func TestTokens(t *testing.T) {
	histories := 10_000
	if testing.Short() {
		histories = 240
	}
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		s, way := answers(r)
		w.Header().Set("Content-Type", "text/event-stream")
		deliver(w, w.(http.Flusher).Flush, s, way)
	})
	seed := rand.Uint64()
	for form, is := range shapes {
		f := start(t, behind, time.Minute, yaml(t, fmt.Sprintf(tokenRules, is.dialect, int(1e9), is.dialect, false)), httplimit.ClientIP{})
		var all sync.WaitGroup
		bounds := make([][2]int64, histories/len(shapes))
		turn := make(chan struct{}, 8)
		for i := range bounds {
			turn <- struct{}{}
			all.Go(func() {
				defer func() { <-turn }()
				bounds[i], _ = tokenHistory(t, f, form, fmt.Sprint("c", i), rand.New(rand.NewPCG(seed, uint64(i))))
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
				t.Errorf("seed %d, %s %d: charged %d, want from %d to %d", seed, form, i, got, b[0], b[1])
			}
		}
	}
}

// answers answers a request of tokenHistory as a model's server does.
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
	form := r.Header.Get("X-Form")
	if shapes[form].asked {
		usage = q.Options.Usage
	}
	return tell(form, tokens, usage, ends), way
}

// byChunk answers in chunks of 1 + way pieces, or of so few bytes that they cut pieces.
type byChunk struct{}

func (byChunk) RoundTrip(r *http.Request) (*http.Response, error) {
	s, way := answers(r)
	var chunks []io.Reader
	for all := range slices.Chunk(s.pieces, 1+way) {
		most := 1 << 20
		if way > 3 {
			most = 50
		}
		for text := range slices.Chunk([]byte(strings.Join(all, "")), most) {
			chunks = append(chunks, bytes.NewReader(text))
		}
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(slowly{io.MultiReader(chunks...)}), Request: r,
	}, nil
}

// slowly lets others read between two of its reads.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(50 * time.Microsecond)
	return s.Reader.Read(p)
}

// TestTokensCut has up to six streams of one key share a budget, which cuts them: each serves at most a
// chunk above it, and the charge is bounded as in TestTokens.
func TestTokensCut(t *testing.T) { inStores(t, tokensCut) }

func tokensCut(t *testing.T, store stint.Store) {
	const budget = 100
	histories := 5_000
	if testing.Short() {
		histories = 240
	}
	seed := rand.Uint64()
	for form, is := range shapes {
		f := start(t, mustURL(t, "http://127.0.0.1:1"), time.Minute, nil, httplimit.ClientIP{}, proxy.Options{Transport: byChunk{},
			Source: sourceOn(t, store, yaml(t, fmt.Sprintf(tokenRules, is.dialect, budget, is.dialect, true)))})
		for i := range histories / len(shapes) {
			customer, rnd := fmt.Sprint(form, i), rand.New(rand.NewPCG(seed, uint64(i)))
			bounds, served := make([][2]int64, 1+rnd.IntN(6)), make([]int64, 6)
			var all sync.WaitGroup
			for k := range bounds {
				own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
				all.Go(func() { bounds[k], served[k] = tokenHistory(t, f, form, customer, own) })
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
			if got := used[0].Used; sum > budget+6*int64(len(bounds)) || got < least || got > most {
				t.Errorf("seed %d, %s %d: %d served of %d by %d, charged %d, want from %d to %d", seed, form, i, sum, budget, len(bounds), got, least, most)
			}
		}
	}
}

// isToken matches a token that has been served.
var isToken = regexp.MustCompile(`"t[0-9]+`)

// tokenHistory sends one request, reads some of the answer, and returns what may be charged, and what
// was served. A final usage counts alone.
func tokenHistory(t *testing.T, f *front, form, customer string, rnd *rand.Rand) (bounds [2]int64, served int64) {
	tokens, way, usage, ends := rnd.IntN(60), rnd.IntN(6), rnd.IntN(2) == 0, rnd.IntN(2) == 0
	reserve, body := int64(20), `{"stream":true`
	if rnd.IntN(2) == 0 {
		reserve = 1 + rnd.Int64N(50)
		body += fmt.Sprintf(`,"max_tokens":1,"max_completion_tokens":%d`, reserve)
	}
	asks := rnd.IntN(3)
	body += [...]string{`,"messages":[]}`, `,"messages":[],"stream_options":{"include_usage":true}}`, `}`}[asks]
	if shapes[form].asked {
		usage = asks < 2
	}
	s := tell(form, tokens, usage, ends)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.address+"/v1/chat", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return bounds, 0
	}
	r.Header.Set("X-Form", form)
	r.Header.Set("X-Usage", shapes[form].dialect)
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
	if s.whole && err == nil && len(got) < int(read) {
		return [2]int64{int64(s.usage), int64(s.usage)}, served
	}
	told := int64(0)
	if shapes[form].atFirst > 0 { // the prompt is told first, and the pieces come on top
		told = prompt
	}
	most := max(int64(s.usage), reserve, told+int64(len(s.pieces)), told+served)
	switch shapes[form].event {
	case "": // the bytes of a document count
		most = max(most, int64(len(strings.Join(s.pieces, ""))+3)/4+1)
	case line: // so do those of a line alone, which is no stream
		most = max(most, int64(len(strings.Join(s.pieces[:min(2, len(s.pieces))], ""))+3)/4+1)
	}
	return [2]int64{min(served, 1)*told + served - 1, most}, served
}
