package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/stint-dev/stint"
)

// maxHeld bounds the body of a request that is read before it queues, in
// bytes.
const maxHeld = 64 << 10

// A gate lets requests through by a Limiter.
type gate struct {
	limiter *stint.Limiter
	limits  []stint.Limit
	queues  bool // a leaky_queue is among the limits
}

func newGate(l *stint.Limiter) *gate {
	g := &gate{limiter: l, limits: l.Limits()}
	g.queues = slices.ContainsFunc(g.limits, func(l stint.Limit) bool { return l.Kind() == stint.LeakyQueue })
	return g
}

// errBody is for a request whose body did not come.
var errBody = errors.New("the body of the request did not come")

// pass decides about a request and returns the one to pass on. Under a
// leaky_queue it returns when it is the request's turn; a client that goes
// away meanwhile frees its place, and those behind it move up.
func (g *gate) pass(r *http.Request, key string) (*http.Request, stint.Decision, error) {
	if !g.queues {
		d, err := g.limiter.Take(r.Context(), key, 1)
		return r, d, err
	}
	r, err := held(r)
	if err != nil {
		return r, stint.Decision{}, err
	}
	// Queues for one key of one limiter share its line, so a queue may be made
	// for a single request.
	queue := stint.NewQueue(g.limiter, key, stint.QueueOptions{})
	err = queue.Do(r.Context(), func(context.Context) error { return nil })
	if full, ok := errors.AsType[*stint.FullError](err); ok {
		return r, full.Decision, nil
	}
	return r, stint.Decision{Allowed: err == nil}, err
}

// held returns the request with its body read, if that is short: net/http
// notices that a client has gone only once it has read the body to its end. A
// client with a longer body keeps its place until its turn.
func held(r *http.Request) (*http.Request, error) {
	if r.ContentLength < 1 || r.ContentLength > maxHeld || r.Header.Get("Expect") != "" {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return r, errBody
	}
	r = r.WithContext(r.Context()) // a copy: a handler leaves its request as it is
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, nil
}
