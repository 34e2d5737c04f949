package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Demo returns a small upstream: a login that refuses every user, an API, and a report that
// says when it was begun.
func Demo() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "Hello from behind stint.")
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Wrong password.", http.StatusUnauthorized)
	})
	mux.HandleFunc("GET /api/items", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"items":["a stretch","a bound"]}`)
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "begun at %s\n", time.Now().Format("15:04:05.0"))
	})
	return mux
}

// demoTokens is how many tokens an answer of [DemoModel] has.
const demoTokens = 60

// DemoModel returns a small upstream that answers like a language model, in the format of
// OpenAI's chat completions. It can stream.
func DemoModel() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var asked struct {
			Stream        bool `json:"stream"`
			StreamOptions struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err != nil || json.Unmarshal(body, &asked) != nil {
			http.Error(w, "no request of a chat", http.StatusBadRequest)
			return
		}
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, len(body)/4, demoTokens, len(body)/4+demoTokens)
		if !asked.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"stint %s"}}],%s}`+"\n", strings.Repeat("and on ", demoTokens/2), usage)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range demoTokens / 10 {
			fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"and on and on "}}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush() // a client that has gone sees no more
			select {
			case <-r.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
		if asked.StreamOptions.Usage {
			fmt.Fprintf(w, `data: {"choices":[],%s}`+"\n\n", usage)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	return mux
}
