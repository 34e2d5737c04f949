package proxy

import (
	"context"
	"mime"
	"net/http"
	"sync/atomic"
	"time"
)

// A finish is how a request goes on behind its client, where rules in flight say so: a server
// that does not notice when clients leave goes on with what holds a place.
type finish struct {
	within  time.Duration      // 0 is that the request ends with its client
	client  context.Context    // ends when it leaves
	cancel  context.CancelFunc // of the request to the server behind
	streams atomic.Bool        // the answer is a stream
	lost    bool               // nobody has got some of the answer
}

// goOn returns the request for the server behind, and what ends it. When the client leaves, a
// request that was read whole goes on as long as rules say. When the listener closes, none does.
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

// answers is told of the answer: the client of a stream has to be there for it.
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
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")) // what cannot be read is none
	switch kind {
	case "text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace":
		return true
	}
	return a.StatusCode == http.StatusSwitchingProtocols || isGRPC(a.Header)
}

// A leftWriter throws away the answer of a request that goes on behind its client. It stands
// outside the guard, so that rules see all of the answer.
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
