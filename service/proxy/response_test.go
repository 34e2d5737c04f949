package proxy_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/proxy"
)

const usageRules = `
rules:
  - name: tokens
    key: [header.x-customer]
    limits: ["1000 per 10000h sliding_log"]
    cost: {usage: openai, reserve: 100}
  - name: requests
    key: [header.x-customer]
    limits: ["100 per 10000h sliding_log"]
`

// usageOf returns what a customer has used of a rule.
func usageOf(t testing.TB, f *front, rule, customer string) int64 {
	t.Helper()
	var r policy.Result
	attrs := policy.Map{"header.x-customer": customer, "ip": "127.0.0.1", "path": "/", "method": "GET"}
	if err := f.source.Policy().Peek(context.Background(), attrs, 1, &r); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Rules {
		if e.Rule == rule {
			return e.Limit.Capacity() - e.Remaining
		}
	}
	t.Fatalf("no rule %s", rule)
	return 0
}

// settled waits until a customer has used the wanted number of tokens, since the proxy settles after
// the end of an answer.
func settled(t testing.TB, f *front, customer string, want int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("customer %s has used %d tokens", customer, want), func() bool { return usageOf(t, f, "tokens", customer) == want })
}

// TestResponseUsage passes answers on unchanged, and charges the usage that they tell.
func TestResponseUsage(t *testing.T) {
	const last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\ndata: [DONE]\n\n"
	gone := make(chan struct{})
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		send := func(text string) {
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
		switch r.URL.Path {
		case "/gzip": // whatever it was asked for
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, last)
			_ = z.Close()
		case "/negotiated":
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				w.WriteHeader(http.StatusNotAcceptable)
				return
			}
			send(last)
		case "/broken":
			send("data: {\"usage\":null}\n\n")
			panic(http.ErrAbortHandler)
		case "/endless":
			send("data: {\"usage\":null}\n\n")
			<-r.Context().Done()
			close(gone)
		}
	})
	f := start(t, behind, time.Minute, yaml(t, usageRules), httplimit.ClientIP{})
	for path, want := range map[string]struct {
		body string
		used int64
	}{
		"/gzip":       {last, 100},
		"/negotiated": {last, 7},
		"/broken":     {"data: {\"usage\":null}\n\n", 100},
	} {
		answer := f.get(t, path, "X-Customer", path)
		body, err := io.ReadAll(answer.Body)
		if string(body) != want.body || (err != nil) != (path == "/broken") {
			t.Errorf("%s: %q, %v; want %q", path, body, err, want.body)
		}
		if answer.Header.Get("Trailer") != "" || len(answer.Trailer) > 0 {
			t.Errorf("%s: trailers %v", path, answer.Trailer)
		}
		settled(t, f, path, want.used)
		if used := usageOf(t, f, "requests", path); used != 1 {
			t.Errorf("%s: %d requests", path, used)
		}
	}

	answer := f.get(t, "/endless", "X-Customer", "gone")
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data:") {
		t.Fatal(line, err)
	}
	_ = answer.Body.Close()
	<-gone
	settled(t, f, "gone", 100)
}

// TestResponseOfLength: a client that has got the length that was announced has got all, though
// the server behind has not ended the answer when it leaves.
func TestResponseOfLength(t *testing.T) {
	for _, rule := range []string{usageRules, strings.Replace(usageRules, "    limits: [\"100 ", "    finish: 1s\n    limits: [5 in flight, \"100 ", 1)} {
		answer := `{"usage":{"total_tokens":7},"text":"` + strings.Repeat("x", 8<<10) + `"}`
		f := start(t, mustURL(t, "http://127.0.0.1:1"), time.Second, yaml(t, rule), httplimit.ClientIP{}, proxy.Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body, rest := io.Pipe()
			go func() {
				_, _ = io.WriteString(rest, answer)
				<-r.Context().Done()
				_ = rest.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Length": {fmt.Sprint(len(answer))}}, ContentLength: int64(len(answer)), Body: body}, nil
		})})
		resp := f.get(t, "", "X-Customer", "a")
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != answer {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		resp.Body.Close()
		f.client.CloseIdleConnections()
		settled(t, f, "a", 7)
	}
}

// TestResponseUnanswered: a request without an answer costs what a response without a value costs. A
// rule may count failures alone.
func TestResponseUnanswered(t *testing.T) {
	rules := usageRules + `
  - {name: failures, key: [header.x-customer], limits: ["10 per 10000h sliding_log"], count: {status: 5xx}}
  - {name: refused, key: [header.x-customer], limits: ["10 per 10000h sliding_log"], count: {status: [401, 403]}}
`
	f := start(t, &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, time.Minute, yaml(t, rules), httplimit.ClientIP{})
	if answer := f.get(t, "/", "X-Customer", "a"); answer.StatusCode != http.StatusBadGateway {
		t.Fatal(answer.Status)
	}
	settled(t, f, "a", 100)
	for rule, want := range map[string]int64{"failures": 1, "refused": 0, "requests": 1} {
		if used := usageOf(t, f, rule, "a"); used != want {
			t.Errorf("%s: %d used, want %d", rule, used, want)
		}
	}
}

// TestUpgradeSettles: what the header of a 101 says is charged at once, and arrives once.
func TestUpgradeSettles(t *testing.T) {
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Cost: 23\r\nX-Two: a\r\nX-Two: b\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	f := start(t, behind, time.Minute, yaml(t, `{"rules":[{"name":"a","key":["ip"],"limits":["1000/h fixed_window"],"cost":{"response":"header.x-cost","reserve":10}}]}`), httplimit.ClientIP{})
	_, _, answer := f.upgrade(t)
	h := answer.Header
	if len(h["X-Cost"]) != 1 || !slices.Equal(h["X-Two"], []string{"a", "b"}) || h.Get("Upgrade") != "websocket" || len(h["Upgrade"]) != 1 || !strings.Contains(h.Get("RateLimit"), ";r=977") {
		t.Errorf("%s: %v", answer.Status, h)
	}
	if used := usageOf(t, f, "a", ""); used != 23 {
		t.Errorf("%d used beside the connection, want 23", used)
	}
}

// TestBudgets runs the rules of docs/BUDGETS.md in front of a server that answers as OpenAI
// and Anthropic do.
func TestBudgets(t *testing.T) {
	document, err := os.ReadFile("../../docs/BUDGETS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(document), "```yaml\n")
	rules, _, found := strings.Cut(rules, "```")
	if !found {
		t.Fatal("no rules in the document")
	}
	behind := upstreamOf(t, models)
	f := start(t, behind, time.Minute, yaml(t, rules), httplimit.ClientIP{})
	for _, c := range []struct {
		rule, customer, path, body string
		status                     int
		month                      int64 // what the month counts in the end
	}{
		{"openai", "plain", "/v1/chat/completions", `{"model":"small","max_tokens":500}`, 200, 21},
		{"openai", "dear", "/v1/completions", `{"model":"large","max_tokens":500,"n":2}`, 200, 210},
		{"openai", "stream", "/v1/chat/completions", `{"model":"small","stream":true,"stream_options":{"include_usage":true}}`, 200, 21},
		{"openai", "silent", "/v1/chat/completions", `{"model":"small","stream":true,"messages":[]}`, 200, 21},
		{"openai", "sly", "/v1/chat/completions", `{"model":"small","stream":true,"max_tokens":1,"max_completion_tokens":700}`, 200, 725},
		{"openai", "other", "/v1/chat/completions", `{"model":"none","max_tokens":300}`, 400, -1},
		{"openai", "aside", "/v1/audio/speech", `{"model":"small"}`, 403, -1},
		{"openai", "greedy", "/v1/chat/completions", `{"model":"small","max_tokens":1000000}`, 200, 21},
		{"anthropic", "plain", "/v1/messages", `{"model":"small","max_tokens":500}`, 200, 21},
		{"anthropic", "stream", "/v1/messages", `{"model":"large","max_tokens":500,"stream":true}`, 200, 210},
		{"anthropic", "nameless", "/v1/messages", `{"max_tokens":500}`, 400, -1},
	} {
		for _, plan := range []string{"free", "globex"} {
			customer := plan + "-" + c.customer
			answer := f.send(t, http.MethodPost, c.path, strings.NewReader(c.body), "X-Team", customer)
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != c.status {
				t.Errorf("%s: %d, %v; want %d", c.customer, answer.StatusCode, err, c.status)
			}
			if c.month >= 0 {
				budget(t, f, c.rule, policy.Map{"method": "POST", "path": c.path, "header.x-team": customer, "body./model": "small"}, c.month)
			}
		}
	}
}

// budget waits until the month of a customer counts so many tokens.
func budget(t *testing.T, f *front, rule string, of policy.Map, want int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%v: the month counts %d", of, want), func() bool {
		var r policy.Result
		if err := f.source.Policy().Peek(t.Context(), of, 1, &r); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(r.Rules, func(e policy.RuleResult) bool {
			unit, _ := e.Limit.Calendar()
			return e.Rule == rule && strings.HasPrefix(unit, "month") && e.Limit.Capacity()-e.Remaining == want
		})
	})
}

// models answers as OpenAI and Anthropic do, with twelve tokens.
func models(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	form := map[string]string{"/v1/messages": "messages"}[r.URL.Path]
	form = cmp.Or(form, "chat")
	if asked.Stream {
		form += " stream"
		w.Header().Set("Content-Type", "text/event-stream")
	}
	deliver(w, w.(http.Flusher).Flush, tell(form, 12, asked.StreamOptions.IncludeUsage || !shapes[form].asked, true), 0)
}

// TestAnswerBreaksOff: what has come of an answer that breaks off at once reaches the client.
func TestAnswerBreaksOff(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 203 OK\r\nContent-Length: 10\r\nX-A: b\r\n\r\nabc") // who is gone needs no answer
			_ = conn.Close()
		}
	}, 0, "ip", "1000/s")
	answer, err := f.client.Get("http://" + f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusNonAuthoritativeInfo || answer.Header.Get("X-A") != "b" || string(text) != "abc" || err == nil {
		t.Errorf("%d %v %q, %v; want what came, and an error", answer.StatusCode, answer.Header, text, err)
	}
}
