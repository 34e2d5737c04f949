package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strings"
)

// mostChunk bounds an event that may be the chunk with usage, in bytes. A longer event passes as it
// comes, unless one write has all of it.
const mostChunk = 16 << 10

// orderMark may come before a stream.
const orderMark = "\ufeff"

// A hidingWriter takes the chunk that the client has not asked for out of a stream. It holds an event
// only until the event is whole, but for comments before its first field, which keep connections alive.
// It stands outside the guard, which has read the chunk by then.
type hidingWriter struct {
	http.ResponseWriter
	on     bool   // the proxy has asked for usage
	stream bool   // the answer is a stream of events
	begun  bool   // the answer has begun
	held   []byte // the present event, as far as it has come
	long   bool   // the present event is too long to be the chunk, and passes
	hid    bool   // the last event was the chunk
	past   bool   // what may be a byte order mark has come
	in     bool   // the present line is a comment, whose beginning has passed
	ends   eventEnds
}

// WriteHeader implements [http.ResponseWriter].
func (w *hidingWriter) WriteHeader(status int) {
	if w.on && !w.begun && status >= http.StatusOK {
		h := w.Header()
		w.begun = true
		coding := h.Get("Content-Encoding")
		w.stream = strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream") && (coding == "" || strings.EqualFold(coding, "identity"))
		if w.stream {
			h.Del("Content-Length")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *hidingWriter) Write(p []byte) (int, error) {
	if w.on && !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if !w.stream {
		return w.ResponseWriter.Write(p)
	}
	all, at := p, 0 // the bytes to pass, and where to search on
	if len(w.held) > 0 {
		at = len(w.held)
		all, w.held = append(w.held, p...), nil
	}
	begin := 0 // where the present event begins, without comments before it
	if !w.past {
		if len(all) < len(orderMark) && strings.HasPrefix(orderMark, string(all)) {
			w.held = append(w.held, all...)
			return len(p), nil
		}
		if w.past, at = true, 0; bytes.HasPrefix(all, []byte(orderMark)) {
			begin, at = len(orderMark), len(orderMark)
		}
	}
	if w.in {
		begin = w.comments(all)
	}
	for {
		n := w.ends.next(all[at:])
		if n < 0 {
			break
		}
		at += n
		event := all[begin:at]
		if w.hid = !w.long && (isUsage(event) || w.hid && string(event) == "\n"); w.hid {
			if err := w.pass(all[:begin]); err != nil {
				return 0, err
			}
			all, at = all[at:], 0
		}
		w.long, begin = false, at
	}
	if !w.long {
		begin += w.comments(all[begin:])
	}
	if w.long = w.long || len(all)-begin > mostChunk; w.long {
		begin = len(all)
	}
	w.held = append(w.held, all[begin:]...)
	if err := w.pass(all[:begin]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// comments returns the length of the comments at the beginning of p, the last of which may go on.
func (w *hidingWriter) comments(p []byte) (n int) {
	for n < len(p) && (w.in || p[n] == ':') {
		i := bytes.IndexAny(p[n:], "\r\n")
		if w.in = i < 0; w.in {
			return len(p)
		}
		if n += i; p[n] == '\r' && n+1 == len(p) { // a line feed may follow
			w.in = true
			return n
		}
		if n++; p[n-1] == '\r' && p[n] == '\n' {
			n++
		}
	}
	return n
}

func (w *hidingWriter) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(p)
	return err
}

// end passes what is held of an event that has no end.
func (w *hidingWriter) end() {
	if !isUsage(w.held) {
		_ = w.pass(w.held) // a client that has gone has no use for it
	}
	w.held = nil
}

// Flush implements [http.Flusher].
func (w *hidingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// FlushError is for [http.ResponseController].
func (w *hidingWriter) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker].
func (w *hidingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (w *hidingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// eventEnds finds the empty lines that end events, wherever a stream is cut. A line feed that comes apart
// from the carriage return before it, which has ended an event, is an event of its own.
type eventEnds struct {
	filled bool // the line is not empty
	cr     bool // the byte before was a carriage return
	ended  bool // the byte before has ended an event
}

// next returns how many bytes of p belong to the present event, or -1 if it does not end in p.
func (e *eventEnds) next(p []byte) int {
	for i := 0; i < len(p); i++ {
		c, ended := p[i], e.ended
		e.ended = false
		if e.cr && c == '\n' {
			if e.cr = false; ended {
				return i + 1
			}
			continue
		}
		if e.cr = c == '\r'; c != '\n' && c != '\r' {
			e.filled = true
			n := bytes.IndexAny(p[i:], "\r\n")
			if n < 0 {
				return -1
			}
			i += n - 1
			continue
		}
		if e.filled {
			e.filled = false
			continue
		}
		if e.cr && i+1 < len(p) && p[i+1] == '\n' {
			e.cr = false
			i++
		}
		e.ended = true
		return i + 1
	}
	return -1
}

// isUsage reports whether an event is the chunk that has usage and nothing else.
func isUsage(event []byte) bool {
	if !bytes.Contains(event, []byte(`usage`)) {
		return false
	}
	var data []byte
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, rest...), '\n')
		}
	}
	var chunk struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   map[string]any    `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(chunk.Choices) == 0 && chunk.Usage != nil
}
