package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/stint-dev/stint/policy"
)

// settleWithin is how long a refund may take. It is made after the response, when
// only the connection's goroutine waits for it.
const settleWithin = time.Second

// ErrSettle is for a request that was decided, and whose response could not be settled
// or refunded: it stands as charged.
var ErrSettle = errors.New("httplimit: the response was not settled")

// serveCounting runs the handler, and refunds what its status says, or settles what rules
// take from the response; pending is nil without rules. It does so in the same goroutine,
// after the handler, also when the client has gone.
func (o *Options) serveCounting(w http.ResponseWriter, r *http.Request, next http.Handler, pending *policy.Pending, refund func(context.Context) error) {
	s := &statusWriter{ResponseWriter: w, pending: pending}
	if pending != nil && pending.Reads() && r.Header["Accept-Encoding"] != nil {
		r = r.WithContext(r.Context())
		r.Header = r.Header.Clone()
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
	if pending != nil && pending.Cuts() {
		s.cuts, s.ctx = true, r.Context()
	}
	panicked := true
	defer func() {
		if s.status != 0 && (s.cut || errors.Is(r.Context().Err(), context.Canceled)) {
			panicked = false // if at all, because nobody is to be sent the rest
		}
		end := refund
		if o.Refund == nil || !s.refunded(o.Refund, panicked) {
			if pending == nil {
				return
			}
			s.okUnless(panicked)
			whole := !panicked && !s.failed && r.Context().Err() == nil
			end = func(ctx context.Context) error { return pending.End(ctx, whole, panicked) }
		}
		ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), settleWithin)
		defer stop()
		if err := end(ctx); err != nil {
			o.reportError(r, fmt.Errorf("%w: %w", ErrSettle, err))
		}
	}()
	next.ServeHTTP(s.withPowers(), r)
	if panicked = false; s.cut {
		panic(http.ErrAbortHandler) // else what the client has would pass for the whole
	}
}

// A statusWriter remembers the status of a response, and shows rules what they take
// from it behind what is sent: nothing is held up. It unwraps for
// [http.ResponseController], and has the powers of the writer in it.
type statusWriter struct {
	http.ResponseWriter
	pending *policy.Pending // nil if no rule goes by the response
	status  int             // 0 until it is known
	failed  bool            // the client has gone

	cuts bool            // a rule may cut the body
	ctx  context.Context // for what that asks
	used bool            // one cuts what follows
	cut  bool            // and something did
}

// ErrCut is what writing a response returns from where a rule cuts it.
var ErrCut = errors.New("httplimit: the response has used up its budget")

// refunded reports whether the response gives back what its request took. After a
// panic both 500 and the status that the client has seen must.
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
		s.know(status)
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (s *statusWriter) Write(b []byte) (int, error) {
	s.ok()
	if s.used && len(b) > 0 {
		if !s.cut {
			_ = s.FlushError() // what has been charged
		}
		s.cut, s.failed = true, true
		return 0, ErrCut
	}
	n, err := s.ResponseWriter.Write(b)
	if s.pending != nil {
		_, _ = s.pending.Write(b[:n])
		s.failed = s.failed || err != nil
		s.used = s.cuts && s.pending.Cut(s.ctx)
	}
	return n, err
}

// WriteString implements [io.StringWriter].
func (s *statusWriter) WriteString(text string) (int, error) {
	if s.pending != nil {
		return s.Write([]byte(text))
	}
	s.ok()
	return io.WriteString(s.ResponseWriter, text)
}

// ReadFrom implements [io.ReaderFrom], so that files are still sent by the
// system where they can be.
func (s *statusWriter) ReadFrom(from io.Reader) (int64, error) {
	if s.pending != nil && (s.cuts || s.pending.Reads()) {
		return io.Copy(struct{ io.Writer }{s}, from)
	}
	s.ok()
	n, err := io.Copy(s.ResponseWriter, from)
	if s.pending != nil {
		s.pending.Passed(n)
		s.failed = s.failed || err != nil
	}
	return n, err
}

// FlushError is for [http.ResponseController]: handlers of streams learn by its
// error that their client has gone.
func (s *statusWriter) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // else nothing is sent yet
		s.ok()
		s.failed = s.failed || err != nil
	}
	return err
}

// Unwrap is for [http.ResponseController].
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) ok() {
	if s.status == 0 {
		s.know(http.StatusOK)
	}
}

// Failed is for adapters of routers whose handlers return errors that are answered outside
// of the guard: it notes the status of the answer that follows.
func (s *statusWriter) Failed(status int) {
	if s.status == 0 {
		s.know(status)
	}
}

// okUnless is ok for a handler that has returned, and not panicked.
func (s *statusWriter) okUnless(panicked bool) {
	if !panicked {
		s.ok()
	}
}

// know notes the status, behind which the header does not change.
func (s *statusWriter) know(status int) {
	s.status = status
	if s.pending != nil {
		s.pending.Header(status, s.ResponseWriter.Header())
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
	conn, rw, err := h.s.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil && h.s.pending != nil {
		h.s.pending.Unseen()
	}
	return conn, rw, err
}
