package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/service/drain"
	"github.com/stint-dev/stint/service/server"
)

const (
	// headerTimeout is how long a client may take to send its headers: enough for a slow phone,
	// too little to hold connections open on purpose.
	headerTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept for its next request.
	idleTimeout = 60 * time.Second
	// maxHeader bounds the headers of a request, in bytes. Browsers send a few
	// thousand, and most servers take 8 to 32 KiB.
	maxHeader = 32 << 10
)

// ServeOptions say how a Handler is served.
type ServeOptions struct {
	// Drain is how long requests in flight may take to finish after a stop.
	Drain time.Duration
	// TLS is for https. The default is http.
	TLS *tls.Config
	// Notice is how long new connections are still accepted after a stop, so that load balancers
	// have time to notice that the proxy is not ready. The default value is 0.
	Notice time.Duration
	// OnStop is called first when Serve begins to stop. Optional.
	OnStop func()
	// AnswerStall is how long an answer may wait for its client to take any of it. AnswerRate is
	// the least rate, in bytes a second, at which clients must take answers, and what is sent over
	// upgraded connections. The default values are 60 s and 500; a negative rate means no bound.
	AnswerStall time.Duration
	AnswerRate  int64
	// Log receives failures of connections, without their addresses.
	Log *slog.Logger
}

// Serve answers on ln until ctx is done, over HTTP/1.1 and HTTP/2, with TLS or in the clear. Then it
// stops. Each connection ends with its present answer. After Notice, only connections that already
// wait are accepted. Requests in flight, requests that wait, and upgraded connections have at most
// Drain to finish, and what is left is closed. Serve returns an error if a request that was cut had
// no answer and its client was still there. Streams, answers that clients do not read, and upgraded connections may last for ever,
// so to cut one of them is no error.
//
// A request or an answer may take any time as long as its client sends and reads. A bound would cut
// streams and upgraded connections.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, o ServeOptions) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pace, paced := newPace(o.AnswerStall, o.AnswerRate)
	if paced {
		ln = answerListener{ln, pace}
	}
	flying := &inFlight{next: h, pace: pace}
	running := drain.NewHTTP(newServer(base, flying, o), ln)
	err := running.Serve(ctx, func() {
		if o.OnStop != nil {
			o.OnStop()
		}
		o.Log.Info("stopping", "drain_delay", o.Notice, "drain", o.Drain)
	}, o.Notice)
	if err != nil {
		return err
	}
	bound, release := context.WithTimeout(base, o.Drain)
	defer release()
	err = running.Stop(bound)
	left := flying.wait(bound)    // Shutdown knows nothing of upgraded connections
	lost := flying.pending.Load() // counted before cancel, which answers them
	cancel()                      // ends what outlived the drain
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what is left is an error only if it had no answer
	}
	switch {
	case lost > 0:
		err = errors.Join(err, fmt.Errorf("%d requests had no answer when the drain was over", lost))
	case left:
		o.Log.Info("answers that have begun, upgraded connections and requests without clients are cut: the drain is over")
	}
	if closing := running.Close(); err == nil {
		err = closing
	}
	return err
}

func newServer(base context.Context, h http.Handler, o ServeOptions) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		TLSConfig:         o.TLS,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		ErrorLog:          server.ErrorLog(o.Log),

		DisableGeneralOptionsHandler: true, // or net/http would answer OPTIONS * itself, past the rules
	}
}

// inFlight counts the requests that a handler has begun, upgraded connections included.
type inFlight struct {
	next    http.Handler
	pace    pace
	all     sync.WaitGroup
	pending atomic.Int64 // requests whose answer has not begun, and whose client is there
}

// ServeHTTP implements [http.Handler].
func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.all.Add(1)
	defer f.all.Done()
	f.pending.Add(1)
	a := &answerWriter{ResponseWriter: w, pending: &f.pending}
	if c, ok := r.Context().Value(clientConnKey{}).(*clientConn); ok && c.answers != nil && r.ProtoMajor > 1 {
		gone := func() bool { return r.Context().Err() != nil }
		a.stream = &slowStream{conn: c.answers, control: http.NewResponseController(w), gone: gone, pace: f.pace}
	}
	defer context.AfterFunc(r.Context(), a.begin)() // who has left gets no answer
	defer a.end()
	f.next.ServeHTTP(a, r)
}

// wait returns when all requests have ended or ctx is done, and reports whether some are left. The
// server must take no new requests.
func (f *inFlight) wait(ctx context.Context) (left bool) {
	ended := make(chan struct{})
	go func() {
		f.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return false
	case <-ctx.Done():
		return true
	}
}
