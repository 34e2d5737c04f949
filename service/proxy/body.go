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
	// unreadTimeout is how long the unread rest of a body may take, so that the
	// connection can be used again. net/http waits for it before it answers.
	unreadTimeout = 5 * time.Second
	// wholeWithin is how long a body may take of which all is read before the decision.
	wholeWithin = 10 * time.Second
)

// errSlow is for a client that takes too long to send its body, errBroken for
// one that breaks off, errRoom and errOwnRoom where there is no room to hold it.
const (
	errSlow    = fault("the body of the request came too slowly")
	errBroken  = fault("the body of the request did not come")
	errRoom    = fault("the bodies that are held for rules fill the room for them")
	errOwnRoom = fault("the bodies of its address that are held for rules fill what it may have of the room for them")
)

// A paced body fails when its client takes too long to send it. It begins with
// some time to spend; waiting for the client spends it, and what comes gives
// back time at the least rate. What the upstream takes is not counted.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	rate    int64 // bytes a second

	left   time.Duration // time that may be waited
	ended  atomic.Bool
	failed atomic.Pointer[fault] // why the client's body did not come

	// Until the decision, what comes is held in memory.
	room *server.Load // where it counts; nil if it does not, or no longer
	from server.Address
	held int
	by   time.Time // when all must have come; zero until something is read
}

// paced returns the request's body as one that fails when it comes too slowly; nil if the
// request has none. Calls of gRPC are streams that may say nothing for long, once it has
// been decided about them.
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

// pacedOf returns the body that paced made of a request's; nil if the request has none.
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
		_ = b.control.SetReadDeadline(until) // a writer of a test may have none
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
		_ = b.control.SetReadDeadline(time.Time{}) // what is read next is the client's hanging up
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

// fail notes why the body did not come. The first reason is it.
func (b *pacedBody) fail(why fault) error {
	b.failed.CompareAndSwap(nil, &why)
	return *b.failed.Load()
}

// decided ends what holds until the decision.
func (b *pacedBody) decided() {
	if b == nil || b.room == nil {
		return
	}
	b.room.Add(b.from, -b.held)
	b.room = nil
	if b.rate == 0 && !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Time{}) // a stream may last
	}
}

// release bounds how long net/http waits for the unread rest of the body.
func (b *pacedBody) release() {
	if b != nil && !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(min(unreadTimeout, b.stall)))
	}
}

// fullDuplex returns a writer for a handler that goes on reading the request's body
// after its answer has begun. Else net/http throws away up to 256 KiB of the body of
// an HTTP/1.1 request then, and the upstream gets the rest as if it were the whole.
func fullDuplex(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	b := pacedOf(r)
	if b == nil || r.ProtoMajor > 1 {
		return w
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // a writer of a test may have none
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

// HTTPStatus returns what a fault is answered with, also by the guard.
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
