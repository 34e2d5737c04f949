package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An answerWriter knows whether an answer has begun. Over HTTP/2 it also cuts a stream whose client
// gives it no window, which an answerConn cannot notice.
type answerWriter struct {
	http.ResponseWriter
	pending *atomic.Int64 // counts requests whose answer has not begun, this one included
	begun   atomic.Bool
	stream  *slowStream // nil over HTTP/1
}

func (a *answerWriter) begin() {
	if a.begun.CompareAndSwap(false, true) {
		a.pending.Add(-1)
	}
}

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

// Hijack implements [http.Hijacker]. The connection paces what is written after it.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begin()
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// A slowStream is an HTTP/2 stream that is cut if its client gives it no window for too long. Bytes
// of other streams on its connection count as taken, too, since on a slow line the streams of a
// browser wait for one another.
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

func (s *slowStream) goesOn(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.timer.Stop()
	s.pace.spend(0, int64(n))
}

// check resets the stream if it has waited too long. control must not be used once the handler has
// returned; while check has the lock, the handler cannot return from its write.
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
	_ = s.control.SetWriteDeadline(time.Unix(1, 0)) // a time in the past
}

// lastStalls is how many stalls the end of an answer may wait for its client: up to 4 KiB, which
// net/http keeps until the handler has returned.
const lastStalls = 5

// end is called when the handler has returned, before net/http sends the rest.
func (s *slowStream) end() {
	if !s.gone() { // on an ended stream, the deadline's timer would outlive it
		_ = s.control.SetWriteDeadline(time.Now().Add(lastStalls * s.pace.stall))
	}
}
