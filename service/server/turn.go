package server

import (
	"context"
	"net/http"
	"time"
)

const (
	// turnWithin is how long a request with a document waits for its turn.
	turnWithin = 20 * time.Second
	// mostTurns is how many wait.
	mostTurns = 16
	// bodyWithin is how long a client may hold its turn before all of it is there.
	bodyWithin = 10 * time.Second
)

// documents has the turn of requests that bring rules, of which each may take some
// hundred megabytes of memory to read: one at a time in this process, and further ones
// wait with their bodies unread. waiting has those.
var documents, waiting = make(chan struct{}, 1), make(chan struct{}, mostTurns)

// DocumentTurn waits until a request may have its document read. It answers one that
// may not; done must be called if it may, and the client then has bodyWithin to send it.
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
	_ = control.SetReadDeadline(time.Now().Add(turnWithin + bodyWithin)) // in a test there is no server
	select {
	case documents <- struct{}{}:
		_ = control.SetReadDeadline(time.Now().Add(bodyWithin))
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
