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
	// headerTimeout bounds how long a client may take to send its headers: a
	// slow phone makes it, one that holds connections open on purpose does not.
	headerTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept for a next request.
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
	// Notice is how long new connections are still accepted after a stop, so that
	// balancers have seen by then that the proxy is not ready. The default value
	// is 0.
	Notice time.Duration
	// OnStop is called first when Serve begins to stop. Optional.
	OnStop func()
	// AnswerStall is how long a client may take nothing of an answer that waits for
	// it, and AnswerRate the least rate at which it takes answers and what comes over
	// upgraded connections, in bytes a second. The default values are 60 s and 500; a
	// negative rate is no bound.
	AnswerStall time.Duration
	AnswerRate  int64
	// Log receives failures of connections, without their addresses.
	Log *slog.Logger
}

// Serve answers on ln until ctx is done, over HTTP/1.1 and HTTP/2, the latter
// in the clear too. It then ends each connection with its answer, and takes no
// new ones after Notice but those that wait to be accepted, lets the
// requests in flight, those that wait and upgraded connections finish for at
// most Drain, and closes what is left. That is an error if a request had no answer
// yet; answers that have begun, such as streams and those that clients do not read,
// and upgraded connections may last for ever, and to cut them is not.
//
// There is no bound on how long a request or an answer may take as long as
// clients send and read: that would cut streams and upgraded connections.
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
	lost := flying.pending.Load() // before they are cut: that would answer them
	cancel()                      // whatever outlived the drain
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // of those that are left, an answer is what matters
	}
	switch {
	case lost > 0:
		err = errors.Join(err, fmt.Errorf("%d requests had no answer when the drain was over", lost))
	case left:
		o.Log.Info("answers that have begun and upgraded connections are cut: the drain is over")
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

// inFlight counts the requests that a handler has begun, with those whose
// connection has been upgraded.
type inFlight struct {
	next    http.Handler
	pace    pace
	all     sync.WaitGroup
	pending atomic.Int64 // of these, those whose answer has not begun
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
	defer a.end()
	f.next.ServeHTTP(a, r)
}

// wait returns when all have ended or ctx is done, and reports whether some are
// left. The server must take no new ones.
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
