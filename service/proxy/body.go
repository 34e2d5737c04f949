package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/service/server"
)

const (
	// defaultStall is how long a client may send nothing of a body.
	defaultStall = 20 * time.Second
	// defaultRate is the least rate of a body, in bytes a second.
	defaultRate = 500
	// unreadTimeout is how long net/http may wait for the unread rest of a body. It does so before
	// it answers, so that the connection can be used again.
	unreadTimeout = 5 * time.Second
	// wholeWithin is how long a body may take that is read whole before the decision.
	wholeWithin = 10 * time.Second
)

// errSlow is for a client that takes too long to send its body, errBroken for a client that breaks
// off, and errRoom and errOwnRoom for a body that there is no room to hold.
const (
	errSlow    = fault("the body of the request came too slowly")
	errBroken  = fault("the body of the request did not come")
	errRoom    = fault("the bodies that are held for rules fill the room for them")
	errOwnRoom = fault("the bodies of its address that are held for rules fill what it may have of the room for them")
)

// A pacedBody fails if its client sends it too slowly. It begins with a stall's worth of time. Waiting
// for the client spends time, and bytes that come give time back at the least rate. Time that the
// upstream takes does not count.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	rate    int64 // bytes a second

	left   time.Duration // how long the client may still be waited for
	ended  atomic.Bool
	failed atomic.Pointer[fault] // why the client's body did not come

	// Until the decision, the body is held in memory.
	room *server.Load // where its bytes count; nil if they do not, or no longer
	from server.Address
	held int
	by   time.Time // when the whole body must have come; zero before the first read
}

// paced returns the request's body as a pacedBody; nil if the request has none. The body of a gRPC call
// has no least rate, since a stream may be silent for any time once the call has passed.
func (h *Handler) paced(w http.ResponseWriter, r *http.Request) *pacedBody {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	b := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), stall: h.o.BodyStall, rate: h.o.BodyRate, left: h.o.BodyStall}
	if b.rate < 0 || isGRPC(r.Header) && r.ProtoMajor > 1 {
		b.rate = 0
	}
	return b
}

// pacedOf returns the pacedBody of a request; nil if the request has none.
func pacedOf(r *http.Request) *pacedBody {
	if v := visitOf(r); v != nil {
		return v.body
	}
	return nil
}

// Read implements [io.Reader].
func (b *pacedBody) Read(p []byte) (n int, err error) {
	began := time.Now()
	if until := b.until(began); !until.IsZero() {
		_ = b.control.SetReadDeadline(until) // a test's writer may have no deadline
	}
	n, err = b.ReadCloser.Read(p)
	if b.rate > 0 {
		earned := time.Duration(n) * time.Second / time.Duration(b.rate)
		b.left = min(max(b.left-time.Since(began), 0)+earned, b.stall)
	}
	if b.room != nil && n > 0 {
		if why := b.room.Take(b.from, n); why != "" {
			return 0, b.fail(fault(why))
		}
		b.held += n
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		b.ended.Store(true)
		_ = b.control.SetReadDeadline(time.Time{}) // net/http reads on to notice when the client hangs up
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, b.fail(errSlow)
	}
	return n, b.fail(errBroken)
}

// until returns when a read that begins now must have ended; zero for no bound.
func (b *pacedBody) until(now time.Time) (until time.Time) {
	if b.rate > 0 {
		until = now.Add(b.left)
	}
	if b.room != nil {
		if b.by.IsZero() {
			b.by = now.Add(wholeWithin)
		}
		if until.IsZero() || b.by.Before(until) {
			until = b.by
		}
	}
	return until
}

// fail notes why the body did not come, and returns the first reason that was noted.
func (b *pacedBody) fail(why fault) error {
	b.failed.CompareAndSwap(nil, &why)
	return *b.failed.Load()
}

// decided frees the room that the body takes until the decision, and ends the deadline of that time.
func (b *pacedBody) decided() {
	if b == nil || b.room == nil {
		return
	}
	b.room.Add(b.from, -b.held)
	b.room = nil
	if b.rate == 0 && !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Time{}) // a stream may last for any time
	}
}

// release bounds how long net/http waits for the unread rest of the body.
func (b *pacedBody) release() {
	if b != nil && !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(min(unreadTimeout, b.stall)))
	}
}

// fullDuplex returns a writer for a handler that reads the request's body after its answer has begun.
// Otherwise net/http, when the answer to an HTTP/1.1 request begins, throws away up to 256 KiB of the
// body, and the upstream takes the rest for the whole.
func fullDuplex(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	b := pacedOf(r)
	if b == nil || r.ProtoMajor > 1 {
		return w
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // a test's writer may not support it
	return &earlyWriter{w, b}
}

// An earlyWriter closes the connection after an answer that begins before the end of
// the body. net/http would read the next request of the connection beside what is
// left of the body, and panic.
type earlyWriter struct {
	http.ResponseWriter
	body *pacedBody
}

// WriteHeader implements [http.ResponseWriter].
func (e *earlyWriter) WriteHeader(status int) {
	if status >= http.StatusOK && !e.body.ended.Load() {
		e.Header().Set("Connection", "close")
	}
	e.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (e *earlyWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// bodyFault returns why the client's body did not come, or false if it is not
// the client's fault.
func bodyFault(r *http.Request) (fault, bool) {
	b := pacedOf(r)
	if b == nil {
		return "", false
	}
	if failed := b.failed.Load(); failed != nil {
		return *failed, true
	}
	return "", false
}

// HTTPStatus returns the status of the answer to a fault. The guard uses it, too.
func (f fault) HTTPStatus() int {
	switch f {
	case errSlow:
		return http.StatusRequestTimeout
	case errLoop:
		return http.StatusLoopDetected
	case errRoom, errOwnRoom:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}
