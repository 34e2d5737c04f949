package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"time"
)

// For the tests, which are outside of the package.

func NewTransport() http.RoundTripper { return newTransport(nil, "") }
func NewBuffers() httputil.BufferPool { return &buffers{} }

// NewAnswerConn returns a connection whose client takes what acknowledged says.
func NewAnswerConn(conn net.Conn, acknowledged func() (int64, bool), stall time.Duration, rate int64) net.Conn {
	pace, _ := newPace(stall, rate)
	return &answerConn{Conn: conn, acknowledged: acknowledged, pace: pace}
}
