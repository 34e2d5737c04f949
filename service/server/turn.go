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
	// mostTurns is how many requests may wait for their turn.
	mostTurns = 16
	// bodyWithin is how long a client may take to send all of a body.
	bodyWithin = 10 * time.Second
	// mostWhole is how many bytes WholeBody may keep of all bodies together. One body may
	// take one wholeParts-th of what the others leave.
	mostWhole  = 192 << 20
	wholeParts = 2
)

var (
	// documents is the turn of requests that bring rules. To read them may take some
	// hundred megabytes of memory, so this process reads one at a time. waiting counts the
	// requests that wait, and wholes the bytes of bodies that are kept.
	documents, waiting = make(chan struct{}, 1), make(chan struct{}, mostTurns)
	wholes             atomic.Int64
)

// WholeBody reads the body of a request before the request takes its turn, so that a client
// that sends slowly does not make others wait. It reads at most one byte more than most. The
// handler gets an error of the body when it reads the body itself. If the bodies of others
// leave no room, WholeBody answers the request, and ok is false; else release must be called.
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

// failedBody is the end of a body that could not be read: it returns the error.
type failedBody struct{ error }

func (f failedBody) Read([]byte) (int, error) { return 0, f.error }

// DocumentTurn waits until the document of a request may be read, after WholeBody. If too
// many wait, or the wait is too long, it answers the request, and ok is false; else done
// must be called.
func DocumentTurn(w http.ResponseWriter, r *http.Request) (done func(), ok bool) {
	select {
	case waiting <- struct{}{}:
		defer func() { <-waiting }()
	default:
		return nil, refuseTurn(w)
	}
	ctx, stop := context.WithTimeout(r.Context(), turnWithin)
	defer stop()
	select {
	case documents <- struct{}{}: // tried first, since net/http ends the context of a body that broke off
	default:
		select {
		case documents <- struct{}{}:
		case <-ctx.Done():
			return nil, refuseTurn(w)
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWithin + turnWithin))
	return func() { <-documents }, true
}

func refuseTurn(w http.ResponseWriter) bool {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second)) // the wait has used up the time
	w.Header().Set("Retry-After", "2")
	WriteProblem(w, http.StatusServiceUnavailable, "", "rules are read one document at a time, and others wait: try again")
	return false
}
