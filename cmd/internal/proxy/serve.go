package proxy

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"
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

// Serve answers on ln until ctx is done. It then takes no new connections,
// lets the requests in flight and those that wait finish for at most drain,
// closes what is left, and returns nil if nothing was.
//
// There is no bound on how long a request or an answer may take: that would
// cut streams and upgraded connections.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, drain time.Duration, logger *slog.Logger) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          quietLog(logger),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(ln) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	logger.Info("stopping", "drain", drain)
	bound, release := context.WithTimeout(base, drain)
	defer release()
	err := server.Shutdown(bound)
	cancel() // upgraded connections, and whatever outlived the drain
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("not all requests had finished when the drain was over")
	}
	if closing := server.Close(); err == nil {
		err = closing
	}
	<-stopped
	return err
}

// quietLog is a log for net/http, which likes to name its clients.
func quietLog(logger *slog.Logger) *log.Logger {
	return log.New(writerFunc(func(line []byte) (int, error) {
		logger.Warn("http", "error", redact(strings.TrimSpace(string(line))))
		return len(line), nil
	}), "", 0)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// addresses are IPv4 and IPv6 addresses as Go prints them, ports included.
var addresses = regexp.MustCompile(`\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[^\]]*)?\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\b[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){3,7}\b`)

// redact takes addresses out of what Go says went wrong.
func redact(text string) string { return addresses.ReplaceAllString(text, "[address]") }
