package proxy

import (
	"fmt"
	"net/http"
	"time"
)

// Demo returns a small server to stand behind a proxy: a login that refuses every
// user, an API, and a report that says when it was begun.
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
