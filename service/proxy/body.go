package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	// defaultStall is how long a client may send nothing of a body.
	defaultStall = 20 * time.Second
	// defaultRate is the least rate of a body, in bytes a second.
	defaultRate = 500
	// unreadTimeout is how long the unread rest of a body may take, so that the
	// connection can be used again. net/http waits for it before it answers.
	unreadTimeout = 5 * time.Second
)

// errSlow is for a client that takes too long to send its body, errBroken for
// one that breaks off.
const (
	errSlow   = fault("the body of the request came too slowly")
	errBroken = fault("the body of the request did not come")
)

// A paced body fails when its client takes too long to send it. It begins with
// some time to spend; waiting for the client spends it, and what comes gives
// back time at the least rate. What the upstream takes is not counted.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	rate    int64 // bytes a second

	decided func()        // called when rules have; nil if they do not look into bodies
	left    time.Duration // time that may be waited
	ended   atomic.Bool
	failed  atomic.Pointer[fault] // why the client's body did not come
}

type pacedKey struct{}

// paced returns the request with a body that fails when it comes too slowly,
// and that body; nil if the request has none. Calls of gRPC are streams that
// may say nothing for long.
func (h *Handler) paced(w http.ResponseWriter, r *http.Request) (*http.Request, *pacedBody) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, nil
	}
	b := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), stall: h.o.BodyStall, rate: h.o.BodyRate, left: h.o.BodyStall}
	if b.rate < 0 || isGRPC(r.Header) && r.ProtoMajor > 1 {
		b.rate = 0
	}
	r = r.WithContext(context.WithValue(r.Context(), pacedKey{}, b))
	r.Body = b
	return r, b
}

// pacedOf returns the body that paced made of a request's; nil if the request has none.
func pacedOf(r *http.Request) *pacedBody {
	b, _ := r.Context().Value(pacedKey{}).(*pacedBody)
	return b
}

// Read implements [io.Reader].
func (b *pacedBody) Read(p []byte) (n int, err error) {
	if b.rate == 0 {
		n, err = b.ReadCloser.Read(p)
	} else {
		began := time.Now()
		_ = b.control.SetReadDeadline(began.Add(b.left)) // a writer of a test may have none
		n, err = b.ReadCloser.Read(p)
		earned := time.Duration(n) * time.Second / time.Duration(b.rate)
		b.left = min(max(b.left-time.Since(began), 0)+earned, b.stall)
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		b.ended.Store(true)
		_ = b.control.SetReadDeadline(time.Time{}) // what is read next is the client's hanging up
	case errors.Is(err, os.ErrDeadlineExceeded):
		slow := errSlow
		b.failed.CompareAndSwap(nil, &slow)
	default:
		broken := errBroken
		b.failed.CompareAndSwap(nil, &broken)
	}
	return n, err
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

// status returns what a fault is answered with.
func (f fault) status() int {
	switch f {
	case errSlow:
		return http.StatusRequestTimeout
	case errLoop:
		return http.StatusLoopDetected
	}
	return http.StatusBadRequest
}
