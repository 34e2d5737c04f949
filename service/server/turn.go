package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// turnWithin is how long a request with a document waits for its turn.
	turnWithin = 20 * time.Second
	// mostTurns is how many wait.
	mostTurns = 16
	// bodyWithin is how long a client has to send all of a body.
	bodyWithin = 10 * time.Second
	// mostWhole is how much there may be of bodies that are kept before their requests are
	// served, in bytes that have come, and wholeParts the part of what is free that one may
	// have.
	mostWhole  = 192 << 20
	wholeParts = 2
)

var (
	// documents has the turn of requests that bring rules, of which each may take some
	// hundred megabytes of memory to read: one at a time in this process. waiting has those
	// that wait, and wholes how much their bodies take.
	documents, waiting = make(chan struct{}, 1), make(chan struct{}, mostTurns)
	wholes             atomic.Int64
)

// WholeBody reads the body of a request, up to a byte more than most, so that a client that
// is slow to send it holds nothing meanwhile that others wait for: only what has come
// counts. An error of the body is for who reads it. WholeBody answers a request for which
// there is no room; release must be called if there is.
func WholeBody(w http.ResponseWriter, r *http.Request, most int64) (release func(), ok bool) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyWithin)) // in a test there is no server
	var body []byte
	chunk := make([]byte, 32<<10)
	for err := error(nil); err == nil && int64(len(body)) <= most; {
		var n int
		n, err = r.Body.Read(chunk)
		body = append(body, chunk[:n]...)
		others := wholes.Add(int64(n)) - int64(len(body))
		if int64(len(body)) > (mostWhole-others)/wholeParts {
			wholes.Add(-int64(len(body)))
			w.Header().Set("Retry-After", "2")
			WriteProblem(w, http.StatusServiceUnavailable, "", "the bodies of other requests fill the room for them: try again")
			return nil, false
		}
		if err != nil && !errors.Is(err, io.EOF) {
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failedBody{err}))
			return func() { wholes.Add(-int64(len(body))) }, true
		}
	}
	_ = control.SetReadDeadline(time.Time{}) // net/http waits for the client to leave
	r.Body = io.NopCloser(bytes.NewReader(body))
	return func() { wholes.Add(-int64(len(body))) }, true
}

// failedBody is the rest of a body that did not come.
type failedBody struct{ error }

func (f failedBody) Read([]byte) (int, error) { return 0, f.error }

// DocumentTurn waits until a request may have its document read, whose body is whole. It
// answers one that may not; done must be called if it may.
func DocumentTurn(w http.ResponseWriter, r *http.Request) (done func(), ok bool) {
	select {
	case waiting <- struct{}{}:
		defer func() { <-waiting }()
	default:
		return nil, refuseTurn(w)
	}
	ctx, stop := context.WithTimeout(r.Context(), turnWithin)
	defer stop()
	control := http.NewResponseController(w)
	select {
	case documents <- struct{}{}:
		_ = control.SetWriteDeadline(time.Now().Add(bodyWithin + turnWithin))
		return func() { <-documents }, true
	case <-ctx.Done():
		return nil, refuseTurn(w)
	}
}

func refuseTurn(w http.ResponseWriter) bool {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second)) // the wait has used up the time
	w.Header().Set("Retry-After", "2")
	WriteProblem(w, http.StatusServiceUnavailable, "", "rules are read one document at a time, and others wait: try again")
	return false
}
