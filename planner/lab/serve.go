package lab

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// The bounds of a connection. On this machine the largest body is read, and the largest answer
// written, well within them.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 32 << 10 // bytes
	drain         = 2 * time.Second
)

// Serve answers on ln, behind a [Guard], until ctx is done. Requests in flight
// then have two seconds.
func Serve(ctx context.Context, ln net.Listener, o Options) error {
	server := &http.Server{
		Handler:           Guard(New(o)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(io.Discard, "", 0), // the server's errors would name clients
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(ln) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(bound); err != nil {
		_ = server.Close() // requests that are still in flight have had their time
	}
	<-stopped
	return nil
}
