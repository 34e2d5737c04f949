package proxy

import (
	"net"
	"net/http"
	"time"
)

// For the tests, which are outside of the package.

// Reserved returns how many reservations requests have open.
func (h *Handler) Reserved() int { return h.reserved.Count() }

// Held returns how many bytes of bodies are held.
func (h *Handler) Held() int { return h.bodies.Count() }

// NewAnswerConn returns an answerConn whose client has got as many bytes as acknowledged says.
func NewAnswerConn(conn net.Conn, acknowledged func() (int64, bool), stall time.Duration, rate int64) net.Conn {
	pace, _ := newPace(stall, rate)
	return &answerConn{Conn: conn, acknowledged: acknowledged, pace: pace}
}

// HideUsage passes a stream in parts through the writer that takes the chunk with usage out.
func HideUsage(w http.ResponseWriter, parts ...string) {
	hides := hidingWriter{ResponseWriter: w, on: true}
	for _, part := range parts {
		_, _ = hides.Write([]byte(part))
	}
	hides.end()
}
