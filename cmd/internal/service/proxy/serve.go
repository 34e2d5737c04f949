package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/service/drain"
	"github.com/stint-dev/stint/cmd/internal/service/server"
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
	// Log receives failures of connections, without their addresses.
	Log *slog.Logger
}

// Serve answers on ln until ctx is done, over HTTP/1.1 and HTTP/2, the latter
// in the clear too. It then ends each connection with its answer, and takes no
// new ones after Notice but those that wait to be accepted, lets the
// requests in flight, those that wait and upgraded connections finish for at
// most Drain, closes what is left, and returns nil if no request was.
//
// There is no bound on how long a request or an answer may take as long as
// bytes come: that would cut streams and upgraded connections.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, o ServeOptions) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	flying := &inFlight{next: h}
	running := drain.NewHTTP(newServer(base, flying, o), ln)
	stopped := running.Start()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	if o.OnStop != nil {
		o.OnStop()
	}
	o.Log.Info("stopping", "drain_delay", o.Notice, "drain", o.Drain)
	running.Leave()
	select {
	case err := <-stopped:
		return err
	case <-time.After(o.Notice):
	}
	bound, release := context.WithTimeout(base, o.Drain)
	defer release()
	err := running.Stop(bound)
	if left := flying.wait(bound); err == nil && left { // Shutdown knows nothing of upgraded connections
		o.Log.Info("upgraded connections are cut: the drain is over")
	}
	cancel() // whatever outlived the drain
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("not all requests had finished when the drain was over")
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
	next http.Handler
	all  sync.WaitGroup
}

// ServeHTTP implements [http.Handler].
func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.all.Add(1)
	defer f.all.Done()
	f.next.ServeHTTP(w, r)
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
