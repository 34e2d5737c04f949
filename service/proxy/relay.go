package proxy

import (
	"maps"
	"net/http"
	"slices"
)

// A relayWriter is what [httputil.ReverseProxy] writes an answer to. What the header has
// before, such as the fields of limits, is for the answer itself: interim ones (100, 103)
// go without, and ReverseProxy clears the header behind each of them.
type relayWriter struct {
	http.ResponseWriter
	own   http.Header
	taken bool // own is not in the header
}

// relay returns a writer for an answer that passes as it is: where it has no Content-Type,
// net/http does not guess one.
func relay(w http.ResponseWriter) *relayWriter {
	w.Header()["Content-Type"] = nil
	return &relayWriter{ResponseWriter: w, own: maps.Clone(w.Header())}
}

// WriteHeader implements [http.ResponseWriter].
func (w *relayWriter) WriteHeader(status int) {
	h := w.Header()
	switch interim := status < http.StatusOK; {
	case interim && !w.taken:
		for name, values := range w.own {
			if h[name] = h[name][len(values):]; len(h[name]) == 0 {
				delete(h, name)
			}
		}
		w.taken = true
	case !interim && w.taken:
		for name, values := range w.own {
			h[name] = append(slices.Clip(values), h[name]...)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
