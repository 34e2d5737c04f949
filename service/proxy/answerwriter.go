package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An answerWriter knows whether an answer has begun, and over HTTP/2 cuts a stream
// whose client does not let it go on: its connection may well be written to.
type answerWriter struct {
	http.ResponseWriter
	pending *atomic.Int64 // requests without an answer, of which this is one until it has begun
	begun   bool
	stream  *slowStream // nil over HTTP/1
}

// begin notes that the answer has begun.
func (a *answerWriter) begin() {
	if !a.begun {
		a.begun = true
		a.pending.Add(-1)
	}
}

// end is called when the handler has.
func (a *answerWriter) end() {
	a.begin()
	if a.stream != nil {
		a.stream.end()
	}
}

// WriteHeader implements [http.ResponseWriter].
func (a *answerWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (a *answerWriter) Write(p []byte) (int, error) {
	a.begin()
	if a.stream == nil {
		return a.ResponseWriter.Write(p)
	}
	a.stream.waits()
	n, err := a.ResponseWriter.Write(p)
	a.stream.goesOn(n)
	return n, err
}

// FlushError sends what is buffered, for [http.ResponseController].
func (a *answerWriter) FlushError() error {
	a.begin()
	if a.stream != nil {
		a.stream.waits()
		defer a.stream.goesOn(0)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker]: what is written then is paced by the
// connection.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begin()
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// A slowStream is a stream of HTTP/2 whose client may give it no window. What its
// connection takes counts as taken: a browser on a slow line has many streams, of
// which some wait for others.
type slowStream struct {
	conn    *answerConn
	control *http.ResponseController
	gone    func() bool // whether the client has ended the stream
	timer   *time.Timer

	mu      sync.Mutex
	pace    pace
	waiting bool
	seen    int64 // what the connection had written when the stream was last looked at
}

// waits is called before a write.
func (s *slowStream) waits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.seen = true, s.conn.written.Load()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.pace.step(), s.check)
		return
	}
	s.timer.Reset(s.pace.step())
}

// goesOn is called after a write of n bytes.
func (s *slowStream) goesOn(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.timer.Stop()
	s.pace.spend(0, int64(n))
}

// check resets the stream if it has waited too long. The handler cannot end
// meanwhile, after which its control must not be used.
func (s *slowStream) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting {
		return
	}
	written := s.conn.written.Load()
	if s.pace.spend(s.pace.step(), written-s.seen) {
		s.seen = written
		s.timer.Reset(s.pace.step())
		return
	}
	_ = s.control.SetWriteDeadline(time.Unix(1, 0)) // one that is over
}

// lastStalls is how many stalls the end of an answer may wait for its client, of
// which net/http keeps up to 4 KiB until the handler has ended.
const lastStalls = 5

// end is called when the handler has ended, before net/http sends the rest.
func (s *slowStream) end() {
	if !s.gone() { // or the timer would outlive the stream
		_ = s.control.SetWriteDeadline(time.Now().Add(lastStalls * s.pace.stall))
	}
}
