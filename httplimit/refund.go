package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// settleWithin is how long a settlement may take, since the header of the response waits for
// it.
const settleWithin = time.Second

// ErrSettle says that the response of a request could not be settled or refunded: the request
// stands as charged.
var ErrSettle = errors.New("httplimit: the response was not settled")

// refundable is the charge of a guard with limiters.
type refundable struct {
	*stint.Reservation
	parts int
	cost  int64 // of each part
	reset func(context.Context) error
}

// settle charges each part a cost, or resets its key. If the key was reset meanwhile, there
// is no charge to settle, and no error.
func (r *refundable) settle(ctx context.Context, cost int64) error {
	if cost == Forget {
		return r.reset(ctx)
	}
	_, err := r.Settle(ctx, slices.Repeat([]int64{cost}, r.parts)...)
	if errors.Is(err, stint.ErrReservation) {
		return nil
	}
	return err
}

// serveCounting runs the handler, and settles the charge by the response, in the same
// goroutine: by its header before that is sent, by its body after the handler, even when the
// client has gone.
func (o *Options) serveCounting(w http.ResponseWriter, r *http.Request, next http.Handler, cost int64, own *refundable, pending *policy.Pending) {
	s := &statusWriter{ResponseWriter: w, o: o, r: r, cost: cost, own: own, pending: pending}
	if s.pending != nil && s.pending.Reads() && r.Header["Accept-Encoding"] != nil {
		r = r.WithContext(r.Context())
		r.Header = r.Header.Clone()
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
	s.cuts = s.pending != nil && s.pending.Cuts()
	if s.pending != nil && o.OnSettlement != nil {
		s.pending.Settled = func(settled *policy.Result) { o.OnSettlement(r, settled) }
	}
	returned := false
	defer func() { s.end(returned) }()
	next.ServeHTTP(s.withPowers(), r)
	if returned = true; s.cut {
		panic(http.ErrAbortHandler) // else the client would take what it got for the whole
	}
}

// A statusWriter settles the charge of a request by its response. It shows rules the body
// after sending it, so that nothing is held up. It unwraps for [http.ResponseController]; see
// withPowers.
type statusWriter struct {
	http.ResponseWriter
	o       *Options
	r       *http.Request
	cost    int64
	own     *refundable     // nil if a policy has charged the request
	pending *policy.Pending // nil if no rule goes by the response
	status  int             // 0 until known
	failed  bool            // the client has gone
	empty   bool            // no body is sent, whatever the handler writes
	rest    int64           // what is still to be sent of the body; below 0 if that is not known

	cuts bool // a rule may cut the body
	cut  bool // a rule has cut it
}

// know settles by the status and the header, which does not change after it.
func (s *statusWriter) know(status int, h http.Header) {
	s.status = status
	s.empty = s.r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if length, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); s.empty {
		s.rest, s.cuts = 0, false
	} else if s.rest = length; err != nil {
		s.rest = -1
	}
	actual := s.cost
	if s.o.Settle != nil && s.cost != 0 {
		actual = s.o.Settle(status, h, s.cost)
	}
	pending := s.pending
	switch {
	case s.own != nil:
		s.settle(func(ctx context.Context) error { return s.own.settle(ctx, actual) })
	case actual != s.cost && (actual == 0 || actual == Forget):
		s.pending, s.cuts = nil, false
		s.settle(pending.Cancel)
	default:
		s.settle(func(ctx context.Context) error { return pending.Header(ctx, status, h) })
	}
}

// end settles by the body. A handler that panics without having written a header counts as
// 500.
func (s *statusWriter) end(returned bool) {
	if returned {
		s.ok()
	} else if s.status == 0 {
		s.know(http.StatusInternalServerError, nil)
	}
	if s.pending == nil {
		return
	}
	trailer := make(map[string][]string)
	for name, values := range s.ResponseWriter.Header() {
		trailer[strings.TrimPrefix(name, http.TrailerPrefix)] = values
	}
	s.pending.Trailer(trailer)
	// A client that has got all that the header announced may leave before the handler returns.
	whole := !s.failed && (s.rest == 0 || s.rest < 0 && returned && s.r.Context().Err() == nil)
	s.settle(func(ctx context.Context) error { return s.pending.End(ctx, whole) })
}

func (s *statusWriter) settle(do func(context.Context) error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(s.r.Context()), settleWithin)
	defer stop()
	if err := do(ctx); err != nil {
		s.o.reportError(s.r, fmt.Errorf("%w: %w", ErrSettle, err))
	}
}

// ErrCut is the error of writes to a response that a rule has cut.
var ErrCut = errors.New("httplimit: the response has used up its budget")

// WriteHeader implements [http.ResponseWriter].
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.know(status, s.ResponseWriter.Header())
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (s *statusWriter) Write(b []byte) (int, error) {
	s.ok()
	if s.cuts && len(b) > 0 && (s.cut || s.pending.Cut(s.r.Context(), b)) {
		if !s.cut {
			_ = s.FlushError() // the client must get what was charged
		}
		s.cut, s.failed = true, true
		return 0, ErrCut
	}
	n, err := s.ResponseWriter.Write(b)
	if s.pending != nil && !s.empty {
		if !s.cuts {
			_, _ = s.pending.Write(b[:n])
		}
		s.sent(int64(n), err)
	}
	return n, err
}

// sent notes what was sent of the body. What the handler writes beyond its end fails for no
// fault of the client.
func (s *statusWriter) sent(n int64, err error) {
	s.rest -= n
	s.failed = s.failed || err != nil && s.rest != 0
}

// WriteString implements [io.StringWriter].
func (s *statusWriter) WriteString(text string) (int, error) {
	if s.pending != nil {
		return s.Write([]byte(text))
	}
	s.ok()
	return io.WriteString(s.ResponseWriter, text)
}

// ReadFrom implements [io.ReaderFrom], so that the kernel can send files where no rule reads
// or cuts the body.
func (s *statusWriter) ReadFrom(from io.Reader) (int64, error) {
	if s.pending != nil && (s.cuts || s.pending.Reads()) {
		return io.Copy(struct{ io.Writer }{s}, from)
	}
	s.ok()
	n, err := io.Copy(s.ResponseWriter, from)
	if s.pending != nil && !s.empty {
		s.pending.Passed(n)
		s.sent(n, err)
	}
	return n, err
}

// FlushError is called by [http.ResponseController]: handlers of streams learn by its error
// that their client has gone.
func (s *statusWriter) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // without support, nothing is sent yet
		s.ok()
		s.failed = s.failed || err != nil
	}
	return err
}

// Unwrap is called by [http.ResponseController].
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) ok() {
	if s.status == 0 {
		s.know(http.StatusOK, s.ResponseWriter.Header())
	}
}

// Failed notes the status of an answer that is written outside of the guard. Adapters call it
// for routers whose handlers return errors.
func (s *statusWriter) Failed(status int) {
	if s.status == 0 {
		s.know(status, s.ResponseWriter.Header())
	}
}

// withPowers returns s as a writer that is an [http.Flusher] if the writer in it is, for handlers
// that ask for that and not for an http.ResponseController, and an [http.Hijacker] if the
// connection can be taken over: that must not pass s by.
func (s *statusWriter) withPowers() http.ResponseWriter {
	_, flush := s.ResponseWriter.(http.Flusher)
	hijack := hijacks(s.ResponseWriter)
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
	conn, rw, err := http.NewResponseController(h.s.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	if h.s.status == 0 { // whatever the handler then sends on the connection
		h.s.know(http.StatusSwitchingProtocols, h.s.ResponseWriter.Header())
	}
	if h.s.pending != nil {
		h.s.pending.Unseen()
	}
	return conn, rw, nil
}
