package proxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// A relayWriter is the writer that [httputil.ReverseProxy] gets. The fields that the header has
// before, such as those of limits, belong to the final answer. Interim answers (100, 103) go
// without them, and ReverseProxy clears the header after each.
type relayWriter struct {
	http.ResponseWriter
	own   []headerField
	room  [4]headerField // the usual array of own, to save an allocation
	taken bool           // own is not in the header now
	begun bool           // the answer has begun
	ended bool           // the handler has returned, without a panic
}

type headerField struct {
	name   string
	values []string
}

// relay returns a writer for an answer that passes unchanged: if it has no Content-Type,
// net/http does not guess one.
func relay(w http.ResponseWriter) *relayWriter {
	h := w.Header()
	h["Content-Type"] = nil
	relay := &relayWriter{ResponseWriter: w}
	relay.own = relay.room[:0]
	for name, values := range h {
		relay.own = append(relay.own, headerField{name, values})
	}
	return relay
}

// WriteHeader implements [http.ResponseWriter].
func (w *relayWriter) WriteHeader(status int) {
	h := w.Header()
	w.begun = w.begun || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	switch interim := status < http.StatusOK; {
	case interim && !w.taken:
		for _, f := range w.own {
			if h[f.name] = h[f.name][len(f.values):]; len(h[f.name]) == 0 {
				delete(h, f.name)
			}
		}
		w.taken = true
	case !interim:
		for _, f := range w.own {
			if w.taken {
				h[f.name] = append(slices.Clip(f.values), h[f.name]...)
			}
			if f.name == "Ratelimit" || f.name == "Ratelimit-Policy" {
				h[f.name] = joined(h[f.name], len(f.values))
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// items are a list of strings with parameters (RFC 9651), as RateLimit and RateLimit-Policy are
// since draft 08.
var items = regexp.MustCompile(`^` + item + `(?:[ \t]*,[ \t]*` + item + `)*$`)

const (
	quoted = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	item   = quoted + `(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` + quoted + `|[!#-+\--:<-~]+))?)*`
)

// joined makes one list of our lines of a field, which come first, and of those of the server
// behind. If these are in another form, only ours remain: clients ignore a list that is broken
// anywhere.
func joined(lines []string, ours int) []string {
	if len(lines) <= ours {
		return lines
	}
	if !items.MatchString(strings.Join(lines[ours:], ", ")) {
		return slices.Clip(lines[:ours])
	}
	return []string{strings.Join(lines, ", ")}
}

// flushCut sends what net/http holds of an answer that breaks off. Otherwise net/http would
// drop it, since it closes the connection.
func (w *relayWriter) flushCut() {
	if w.begun && !w.ended {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // a client that has gone needs nothing
	}
}

// Unwrap is for [http.ResponseController].
func (w *relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
