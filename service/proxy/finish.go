package proxy

import (
	"context"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// statusWithin is how long a request goes on after its client has left for rules that count statuses.
const statusWithin = 10 * time.Second

// mostLeft is how many such requests of one connection go on.
const mostLeft = 32

// A finish is how long a request holds its place after its client has left, if rules in flight say so:
// an upstream that does not notice such clients goes on working. Rules that count by the status let it go
// on until that is known: who leaves before a failure would else fail for nothing.
type finish struct {
	within   time.Duration      // for how long; 0 means that the place is free at once
	counts   bool               // rules count by the status
	status   bool               // it ends as soon as that is known, since nothing else lets it go on
	client   context.Context    // ends when the client leaves
	cancel   context.CancelFunc // cancels the request to the upstream
	with     atomic.Bool        // from now on, the request ends with its client
	answered bool               // the upstream has begun to answer
	lost     bool               // some of the answer was thrown away
}

// goOn returns the request for the upstream, and a function that ends it. After its client has left, a
// request that was read whole goes on as long as rules say, or until the listener closes. Any other is
// cancelled, and so is one whose body breaks off. Since nobody knows when the upstream stops working on
// that one, end waits as long, unless the answer was whole or too many wait so.
func (v *visit) goOn(r *http.Request) (out *http.Request, end func(*relayWriter)) {
	f := &v.finish
	if f.within == 0 || r.Context().Err() != nil {
		return r, func(*relayWriter) {}
	}
	place, free := context.WithCancel(context.WithoutCancel(r.Context()))
	ctx, cancel := context.WithCancel(place)
	f.cancel = cancel
	last := sync.OnceFunc(func() { // the client has left
		late := time.AfterFunc(f.within, free)
		context.AfterFunc(place, func() { late.Stop() })
	})
	c, _ := r.Context().Value(clientConnKey{}).(*clientConn)
	left := context.AfterFunc(r.Context(), func() {
		if last(); f.with.Load() || v.body != nil && !v.body.ended.Load() || f.status && c.crowded(place) {
			cancel()
		}
	})
	if c != nil {
		stopped := context.AfterFunc(c.served, free)
		context.AfterFunc(place, func() { stopped() })
	}
	return r.WithContext(ctx), func(w *relayWriter) {
		whole := f.answered && w.ended
		if _, broke := bodyFault(r); !f.status && !whole && (broke || ctx.Err() != nil) && v.h.held.Take(v.from, 1) == "" {
			last()
			_ = http.NewResponseController(w).Flush() // the client hears at once why its body was too slow
			<-place.Done()
			v.h.held.Add(v.from, -1)
		}
		left()
		free()
	}
}

// crowded counts a request whose client has left until its place is free, and reports whether the
// connection has many such. Over HTTP/2, they take the handlers of others, such as clients of a balancer.
func (c *clientConn) crowded(place context.Context) bool {
	if c == nil {
		return false
	}
	context.AfterFunc(place, func() { c.left.Add(-1) })
	return c.left.Add(1) > mostLeft
}

// answers notes the upstream's answer. If it is a stream, or all that rules wait for is its status, the
// request ends with its client.
func (f *finish) answers(a *http.Response) {
	f.answered = true
	unknown := f.counts && isGRPC(a.Header) && a.Header.Get("Grpc-Status") == "" // it comes in the trailer
	if f.cancel == nil || unknown || !f.status && !isStream(a) {
		return
	}
	if f.with.Store(true); f.client.Err() != nil {
		f.cancel()
	}
}

// isStream reports whether an answer says that it goes on as long as its client reads.
func isStream(a *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")) // "" if it cannot be parsed
	switch kind {
	case "text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace":
		return true
	}
	return a.StatusCode == http.StatusSwitchingProtocols || isGRPC(a.Header)
}

// goesOn reports whether the request goes on without its client.
func (f *finish) goesOn() bool { return f.cancel != nil && !(f.status && f.with.Load()) }

// left reports whether the client has left while its request may go on. If a body comes too slowly,
// net/http ends the request's context, though the client is still there.
func (v *visit) left() bool {
	if !v.finish.goesOn() || v.finish.client.Err() == nil {
		return false
	}
	return v.body == nil || v.body.failed.Load() == nil || *v.body.failed.Load() != errSlow
}

// A leftWriter throws away the answer of a request whose client has left. It stands outside the
// guard, so that rules see all of the answer.
type leftWriter struct {
	http.ResponseWriter
	of *visit
}

// Write implements [io.Writer].
func (w leftWriter) Write(p []byte) (n int, err error) {
	if !w.of.left() {
		if n, err = w.ResponseWriter.Write(p); err == nil || !w.of.finish.goesOn() {
			return n, err
		}
	}
	w.of.finish.lost = true
	return len(p), nil
}

// FlushError is for [http.ResponseController].
func (w leftWriter) FlushError() error {
	if w.of.left() {
		return nil
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err != nil && w.of.finish.goesOn() {
		w.of.finish.lost, err = true, nil
	}
	return err
}

// Unwrap is for [http.ResponseController].
func (w leftWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
