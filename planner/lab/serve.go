package lab

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// The bounds of a connection. The largest body is read in well under
// readTimeout from this machine, and the largest answer written.
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
		ErrorLog:          log.New(io.Discard, "", 0), // it names clients, and has nothing else to say
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
		_ = server.Close() // what is left has had its time
	}
	<-stopped
	return nil
}
