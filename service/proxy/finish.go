package proxy

import (
	"context"
	"mime"
	"net/http"
	"sync/atomic"
	"time"
)

// A finish is how a request goes on after its client has left, if rules in flight say so. An
// upstream that does not notice such clients goes on working, so the request keeps its place.
type finish struct {
	within  time.Duration      // for how long; 0 means that the request ends with its client
	client  context.Context    // ends when the client leaves
	cancel  context.CancelFunc // cancels the request to the upstream
	streams atomic.Bool        // the answer is a stream
	lost    bool               // some of the answer was thrown away
}

// goOn returns the request for the upstream, and a function that ends it. After its client has
// left, a request that was read whole goes on as long as rules say, or until the listener closes.
func (v *visit) goOn(r *http.Request) (out *http.Request, end func()) {
	f := &v.finish
	if f.within == 0 || r.Context().Err() != nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	f.cancel = cancel
	left := context.AfterFunc(r.Context(), func() {
		if f.streams.Load() || v.body != nil && !v.body.ended.Load() {
			cancel()
			return
		}
		late := time.AfterFunc(f.within, cancel)
		context.AfterFunc(ctx, func() { late.Stop() })
	})
	if c, ok := r.Context().Value(clientConnKey{}).(*clientConn); ok {
		stopped := context.AfterFunc(c.served, cancel)
		context.AfterFunc(ctx, func() { stopped() })
	}
	return r.WithContext(ctx), func() {
		left()
		cancel()
	}
}

// answers notes the upstream's answer. If it is a stream, the request ends with its client.
func (f *finish) answers(a *http.Response) {
	if f.cancel == nil || !isStream(a) {
		return
	}
	if f.streams.Store(true); f.client.Err() != nil {
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

// A leftWriter throws away the answer of a request whose client has left. It stands outside the
// guard, so that rules see all of the answer.
type leftWriter struct {
	http.ResponseWriter
	of *finish
}

// Write implements [io.Writer].
func (w leftWriter) Write(p []byte) (n int, err error) {
	if !w.left() {
		if n, err = w.ResponseWriter.Write(p); err == nil || w.of.cancel == nil {
			return n, err
		}
	}
	w.of.lost = true
	return len(p), nil
}

// FlushError is for [http.ResponseController].
func (w leftWriter) FlushError() error {
	if w.left() {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w leftWriter) left() bool { return w.of.cancel != nil && w.of.client.Err() != nil }

// Unwrap is for [http.ResponseController].
func (w leftWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
