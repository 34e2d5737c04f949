package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"pgregory.net/rapid"
)

// Structured fields (RFC 9651), with httpsfv, which others have written, as the
// judge of what httplimit writes and as the writer of what it must understand.

// greatest is the greatest integer of a structured field.
const greatest = 999_999_999_999_999

// A guarded handler, with what it decided last.
type guarded struct {
	http.Handler
	limits []stint.Limit
	names  []string // as clients are to see them
	now    int64
	last   httplimit.Outcome
	asked  *rapid.T
}

// newGuarded draws a handler behind limits, bound to a limiter or to a policy.
func newGuarded(t *rapid.T) *guarded {
	g := &guarded{now: 1e18, asked: t}
	store := memstore.New(memstore.Options{Now: func() int64 { return g.now }})
	o := httplimit.Options{
		MaxWait: -1,
		Cost: func(*http.Request) int64 {
			return rapid.SampledFrom([]int64{1, 1, 1, 0, 2, 5, 1000, 1 << 40}).Draw(g.asked, "cost")
		},
		OnDecision: func(_ *http.Request, out httplimit.Outcome) { g.last = out },
		OnError:    func(_ *http.Request, err error) { t.Errorf("no decision: %v", err) },
	}
	guard := g.byPolicy
	if rapid.Bool().Draw(t, "limiter") {
		guard = g.byLimiter
	}
	middleware, err := guard(store, o)
	if err != nil {
		t.Fatal(err)
	}
	g.Handler = middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return g
}

// fieldLimit draws a limit, often one beyond the greatest integer of a field.
func fieldLimit(t *rapid.T) stint.Limit {
	if rapid.IntRange(0, 2).Draw(t, "huge") == 0 {
		l := stint.New(rapid.SampledFrom([]int64{greatest, greatest + 1, 1 << 62}).Draw(t, "huge count"), rapid.SampledFrom([]time.Duration{time.Hour, 1<<63 - 1}).Draw(t, "huge period"))
		if l.Validate() == nil {
			return l
		}
	}
	return anyLimit(t)
}

// byLimiter gives limits names of any text, and expects it percent-encoded.
func (g *guarded) byLimiter(store stint.Store, o httplimit.Options) (func(http.Handler) http.Handler, error) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{1,20}`), rapid.SampledFrom([]string{`"`, `\`, `\"`, "%0A", "é", "日本", "\u2028", "\U0001F41F"}))
	for i := range rapid.IntRange(1, 4).Draw(g.asked, "limits") {
		l := fieldLimit(g.asked).WithName(fmt.Sprint(text.Draw(g.asked, "name"), i))
		if l.Validate() != nil { // a control character, or too long
			l = l.WithName(fmt.Sprint("plain", i))
		}
		g.limits, g.names = append(g.limits, l), append(g.names, encoded(l.Name()))
	}
	l, err := stint.NewLimiter(store, "test", g.limits...)
	if err != nil {
		return nil, err
	}
	return httplimit.New(l, func(*http.Request) (string, bool) { return "key", true }, o)
}

// encoded is a name with what no header may hold percent-encoded.
func encoded(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < 0x20 || c > 0x7e {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// byPolicy spreads limits over rules, and expects the labels of its layers.
func (g *guarded) byPolicy(store stint.Store, o httplimit.Options) (func(http.Handler) http.Handler, error) {
	var rules []any
	for i := range rapid.IntRange(1, 3).Draw(g.asked, "rules") {
		var limits []any
		twice := make(map[string]bool) // which is refused
		for k := range rapid.IntRange(1, 3).Draw(g.asked, "limits") {
			if text := fieldLimit(g.asked).String(); !twice[text] {
				twice[text] = true
				limits = append(limits, map[string]any{"limit": text, "name": fmt.Sprint("limit-", k)})
			}
		}
		rules = append(rules, map[string]any{"name": fmt.Sprint("rule.", i), "key": []string{"ip"}, "limits": limits})
	}
	text, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return nil, err
	}
	read, err := policy.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, name := range read.Names() {
		for _, layer := range read.Limits(name) {
			g.limits, g.names = append(g.limits, layer.Limit), append(g.names, layer.Label)
		}
	}
	p, err := policy.New(store, read, policy.Options{})
	if err != nil {
		return nil, err
	}
	return httplimit.NewPolicy(p, httplimit.ClientIP{}, o)
}

// TestFieldsWritten draws limits, names and requests, and holds every answer to
// being what RFC 9651 and the draft say, in httpsfv's eyes, and to telling what
// was decided.
func TestFieldsWritten(t *testing.T) {
	denials := 0
	rapid.Check(t, func(t *rapid.T) {
		g := newGuarded(t)
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			g.now += rapid.SampledFrom([]int64{0, 1, 1e6, 1e9, 61e9, 1e14}).Draw(t, "pause")
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			quotas := g.checkPolicy(t, w.Header().Values("RateLimit-Policy"))
			g.checkRateLimit(t, w.Header().Values("RateLimit"), quotas)
			g.checkRetry(t, w)
			if !g.last.Decision.Allowed {
				denials++
			}
		}
	})
	if denials == 0 {
		t.Error("nothing was denied: half of the fields were never looked at")
	}
}

// checkPolicy holds RateLimit-Policy to one item for each limit, in order, and
// returns their quotas by name.
func (g *guarded) checkPolicy(t *rapid.T, lines []string) map[string]int64 {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) != len(g.names) {
		t.Fatalf("RateLimit-Policy: %q of %d limits: %v", lines, len(g.names), err)
	}
	quotas := make(map[string]int64)
	for i, member := range list {
		name, params := policyItem(t, lines, member, "q", "w")
		if name != g.names[i] {
			t.Errorf("RateLimit-Policy: %q: item %d is %q, want %q", lines, i, name, g.names[i])
		}
		if params["q"] < 1 || params["w"] < 1 {
			t.Errorf("RateLimit-Policy: %q: a quota or a window of none", lines)
		}
		quotas[name] = params["q"]
	}
	return quotas
}

// policyItem returns a policy's name and its parameters, which must be these
// and whole numbers.
func policyItem(t *rapid.T, lines []string, member httpsfv.Member, names ...string) (string, map[string]int64) {
	item, ok := member.(httpsfv.Item)
	if !ok {
		t.Fatalf("%q: %v is no item", lines, member)
	}
	name, ok := item.Value.(string)
	if got := item.Params.Names(); !ok || fmt.Sprint(got) != fmt.Sprint(names) {
		t.Fatalf("%q: %v is no string with parameters %v: %v", lines, item.Value, names, got)
	}
	params := make(map[string]int64)
	for _, p := range names {
		v, _ := item.Params.Get(p)
		n, ok := v.(int64)
		if !ok || n < 0 || n > greatest {
			t.Fatalf("%q: %s is %v: want a whole number that is not negative", lines, p, v)
		}
		params[p] = n
	}
	return name, params
}

// checkRateLimit holds RateLimit to one of the policies, what it has left and
// the time that the decision gave.
func (g *guarded) checkRateLimit(t *rapid.T, lines []string, quotas map[string]int64) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) != 1 {
		t.Fatalf("RateLimit: %q: %v", lines, err)
	}
	name, params := policyItem(t, lines, list[0], "r", "t")
	d := g.last.Decision
	quota, ok := quotas[name]
	switch left := min(d.Remaining, greatest); {
	case !ok:
		t.Errorf("RateLimit: %q is of none of the policies", lines)
	case params["r"] > quota:
		t.Errorf("RateLimit: %q: more than the quota, %d", lines, quota)
	case params["r"] != left:
		t.Errorf("RateLimit: %q: %d remain", lines, left)
	case params["t"] < 1:
		t.Errorf("RateLimit: %q: no time", lines)
	case !d.Allowed && d.RetryAfter != stint.Never && params["t"] != min(max(d.RetryAfter.Seconds(), 1), greatest):
		t.Errorf("RateLimit: %q: denied for %v", lines, d.RetryAfter)
	case len(g.limits) == 1 && d.Allowed && params["t"] < min(stint.Wait(d.ResetAfter).Seconds(), greatest):
		t.Errorf("RateLimit: %q: as if never seen after %v", lines, d.ResetAfter)
	}
}

// checkRetry holds Retry-After to whole seconds with a denial, and else none.
func (g *guarded) checkRetry(t *rapid.T, w *httptest.ResponseRecorder) {
	d, want, status := g.last.Decision, "", http.StatusOK
	if !d.Allowed {
		status = http.StatusTooManyRequests
		if d.RetryAfter != stint.Never {
			want = strconv.FormatInt(max(d.RetryAfter.Seconds(), 1), 10)
		}
	}
	if got := w.Header().Get("Retry-After"); got != want || w.Code != status {
		t.Errorf("status %d, Retry-After %q: want %d and %q after %+v", w.Code, got, status, want, d)
	}
}

// A said is what a RateLimit field says in the end: how many pass, for how
// long.
type said struct {
	known            bool
	remaining, reset int64
}

// drawRateLimit draws a RateLimit field as a server may send it: strings and
// tokens for names, parameters in any order, others among them, one line or
// several.
func drawRateLimit(t *rapid.T) (lines []string, s said) {
	for range rapid.IntRange(1, 4).Draw(t, "policies") {
		var name any = rapid.StringMatching(`[ -~]{0,12}`).Draw(t, "name")
		if rapid.Bool().Draw(t, "token") {
			name = httpsfv.Token(rapid.StringMatching(`[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_|~-]{0,8}`).Draw(t, "token name"))
		}
		item := httpsfv.NewItem(name)
		r, reset := rapid.Int64Range(0, 4).Draw(t, "r"), int64(-1)
		if rapid.IntRange(0, 4).Draw(t, "many") == 0 {
			r = rapid.Int64Range(0, greatest).Draw(t, "r of many")
		}
		params := []string{"r"}
		if rapid.IntRange(0, 4).Draw(t, "times") > 0 {
			reset = rapid.SampledFrom([]int64{0, 1, 2, 60, 3600, 86400, 1 << 31, greatest}).Draw(t, "t")
			params = append(params, "t")
		}
		params = append(params, rapid.SliceOfNDistinct(rapid.StringMatching(`[b-hj-qsu-vxyz*][a-z0-9_.*-]{0,5}|pk|w`), 0, 4, rapid.ID).Draw(t, "others")...)
		for _, p := range rapid.Permutation(params).Draw(t, "order") {
			switch p {
			case "r":
				item.Params.Add(p, r)
			case "t":
				item.Params.Add(p, reset)
			default:
				item.Params.Add(p, anyBare(t))
			}
		}
		text, err := httpsfv.Marshal(item)
		if err != nil {
			t.Fatalf("httpsfv: %v", err)
		}
		if len(lines) > 0 && rapid.Bool().Draw(t, "same line") {
			lines[len(lines)-1] += rapid.SampledFrom([]string{",", ", ", " ,\t"}).Draw(t, "comma") + text
		} else {
			lines = append(lines, text)
		}
		switch {
		case reset < 0:
		case !s.known || r < s.remaining:
			s = said{true, r, reset}
		case r == s.remaining:
			s.reset = max(s.reset, reset)
		}
	}
	return lines, s
}

// anyBare draws a bare item of any type.
func anyBare(t *rapid.T) any {
	switch rapid.IntRange(0, 7).Draw(t, "type") {
	case 0:
		return rapid.Int64Range(-greatest, greatest).Draw(t, "integer")
	case 1:
		return float64(rapid.Int64Range(-1e9, 1e9).Draw(t, "decimal")) / 1000
	case 2:
		return rapid.StringMatching(`[ -~]{0,10}`).Draw(t, "string")
	case 3:
		return httpsfv.Token(rapid.StringMatching(`[a-zA-Z*][a-z:/]{0,5}`).Draw(t, "token"))
	case 4:
		return rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
	case 5:
		return time.Unix(rapid.Int64Range(-1e10, 1e10).Draw(t, "date"), 0)
	case 6:
		return httpsfv.DisplayString(rapid.StringN(0, 6, -1).Draw(t, "display string"))
	}
	return rapid.Bool().Draw(t, "boolean")
}

// TestFieldsRead answers a Transport with what httpsfv has written: as many
// requests as remain may be under way, and when none remains, the next is held
// as long as was said.
func TestFieldsRead(t *testing.T) {
	held, flew := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		lines, s := drawRateLimit(t)
		if list, err := httpsfv.UnmarshalList(lines); err != nil || len(list) == 0 {
			t.Fatalf("httpsfv does not understand what it wrote: %q: %v", lines, err)
		}
		server := &answers{first: http.Header{"Ratelimit": lines}, entered: make(chan struct{}, 8), done: make(chan struct{})}
		client := &httplimit.Transport{Base: server, MaxPause: longest}
		begun := time.Now()
		if err := get(client, time.Minute); err != nil {
			t.Fatal(err)
		}
		<-server.entered
		var flying sync.WaitGroup
		stuck := make(chan error, 8)
		defer flying.Wait()
		defer close(server.done)
		pass := min(s.remaining, 5)
		if !s.known || s.reset == 0 {
			pass = 5
		}
		for range pass {
			flying.Go(func() {
				if err := get(client, time.Minute); err != nil {
					stuck <- err
				}
			})
			select {
			case <-server.entered:
			case err := <-stuck:
				t.Fatalf("%q: %d remain, and not as many go: %v", lines, s.remaining, err)
			}
		}
		if pass == 5 {
			return
		}
		err := get(client, time.Millisecond)
		since := time.Since(begun)
		if since >= 500*time.Millisecond {
			return // the machine was elsewhere, and what was said may be over
		}
		if len(server.entered) > 0 || err == nil {
			t.Fatalf("%q: %d remain, and one more went", lines, s.remaining)
		}
		if flew++; pass > 0 {
			return // an answer under way may change it, so that it waits
		}
		var limited *httplimit.LimitedError
		early := errors.As(err, &limited)
		if !early && errors.Is(err, context.DeadlineExceeded) {
			return // the machine was elsewhere until its time was over; held says that this is not always so
		}
		held++
		if !early || !limited.Server {
			t.Fatalf("%q: nothing remains, and the next fails with %v", lines, err)
		}
		wait, want := time.Duration(limited.RetryAfter), time.Duration(min(s.reset, int64(longest/time.Second)))*time.Second
		if wait > want || wait < want-since {
			t.Errorf("%q: held for %v, want %v", lines, wait, want)
		}
	})
	if held == 0 || flew == held {
		t.Errorf("of %d requests that were held, %d were while none remained: want some of both kinds", flew, held)
	}
}

// longest is the longest pause that a server can make the Transport keep.
const longest = 1000 * time.Hour

func get(client *httplimit.Transport, within time.Duration) error {
	ctx, stop := context.WithTimeout(context.Background(), within)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example/", nil)
	if err != nil {
		return err
	}
	resp, err := client.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// answers is a server that answers the first request with something about its
// limits, and others, saying nothing, when it is done.
type answers struct {
	first         http.Header
	asked         atomic.Bool
	entered, done chan struct{}
}

func (a *answers) RoundTrip(req *http.Request) (*http.Response, error) {
	h := a.first
	first := a.asked.CompareAndSwap(false, true)
	a.entered <- struct{}{}
	if !first {
		select {
		case <-a.done:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		h = http.Header{}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}, nil
}
