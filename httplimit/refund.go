package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// settleWithin is how long a refund may take. It is made after the response, when
// only the connection's goroutine waits for it.
const settleWithin = time.Second

// serveCounting runs the handler, and refunds what its status says. It refunds
// in the same goroutine, after the handler, also when the client has gone.
func (o *Options) serveCounting(w http.ResponseWriter, r *http.Request, next http.Handler, refund func(context.Context) error) {
	s := &statusWriter{ResponseWriter: w}
	panicked := true
	defer func() {
		if !s.refunded(o.Refund, panicked) {
			return
		}
		ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), settleWithin)
		defer stop()
		if err := refund(ctx); err != nil {
			o.reportError(r, err)
		}
	}()
	next.ServeHTTP(s.withPowers(), r)
	panicked = false
}

// A statusWriter remembers the status of a response. It unwraps for
// [http.ResponseController], and has the powers of the writer in it.
type statusWriter struct {
	http.ResponseWriter
	status int // 0 until it is known
}

// refunded reports whether the response gives back what its request took. After a
// panic both 500 and the status that the client has seen must: a client that
// leaves can make a reverse proxy panic.
func (s *statusWriter) refunded(refund func(status int) bool, panicked bool) bool {
	if panicked {
		return refund(http.StatusInternalServerError) && (s.status == 0 || refund(s.status))
	}
	s.ok()
	return refund(s.status)
}

// WriteHeader implements [http.ResponseWriter].
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (s *statusWriter) Write(b []byte) (int, error) {
	s.ok()
	return s.ResponseWriter.Write(b)
}

// WriteString implements [io.StringWriter].
func (s *statusWriter) WriteString(text string) (int, error) {
	s.ok()
	return io.WriteString(s.ResponseWriter, text)
}

// ReadFrom implements [io.ReaderFrom], so that files are still sent by the
// system where they can be.
func (s *statusWriter) ReadFrom(from io.Reader) (int64, error) {
	s.ok()
	return io.Copy(s.ResponseWriter, from)
}

// FlushError is for [http.ResponseController]: handlers of streams learn by its
// error that their client has gone.
func (s *statusWriter) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // else nothing is sent yet
		s.ok()
	}
	return err
}

// Unwrap is for [http.ResponseController].
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) ok() {
	if s.status == 0 {
		s.status = http.StatusOK
	}
}

// withPowers returns s as a writer that is an [http.Flusher] and an
// [http.Hijacker] where the writer in it is, for handlers that ask for those
// and not for an http.ResponseController.
func (s *statusWriter) withPowers() http.ResponseWriter {
	_, flush := s.ResponseWriter.(http.Flusher)
	_, hijack := s.ResponseWriter.(http.Hijacker)
	switch {
	case flush && hijack:
		return struct {
			*statusWriter
			flusher
			hijacker
		}{s, flusher{s}, hijacker{s}}
	case flush:
		return struct {
			*statusWriter
			flusher
		}{s, flusher{s}}
	case hijack:
		return struct {
			*statusWriter
			hijacker
		}{s, hijacker{s}}
	}
	return s
}

type flusher struct{ s *statusWriter }

// Flush implements [http.Flusher].
func (f flusher) Flush() { _ = f.s.FlushError() }

type hijacker struct{ s *statusWriter }

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.s.ResponseWriter.(http.Hijacker).Hijack()
}
