package proxy

import (
	"fmt"
	"net/http"
	"time"
)

// Demo returns a small server to stand behind a proxy: a page, one that takes
// its time and a stream of events.
func Demo() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "Hello from behind stint.")
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		if pause(r, 2*time.Second) {
			fmt.Fprintln(w, "That took two seconds.")
		}
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		for i := 1; i <= 5; i++ {
			fmt.Fprintf(w, "data: %d of 5\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil || !pause(r, time.Second) {
				return
			}
		}
	})
	return mux
}

// pause waits and reports whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
