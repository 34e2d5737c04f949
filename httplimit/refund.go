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
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// settleWithin is how long a settlement may take, since the header of the response waits for
// it.
const settleWithin = time.Second

// statusLeft is how nginx and Caddy call it that the client has left.
const statusLeft = 499

// ErrSettle says that the response of a request could not be settled or refunded: the request
// stands as charged.
var ErrSettle = errors.New("httplimit: the response was not settled")

// refundable is the charge of a guard with limiters.
type refundable struct {
	*stint.Reservation
	by     reserver
	parts  int
	fields *encoder
}

// settle charges each part a cost, or resets its key, and returns what remains; Tightest is -1
// if that is not known. If the key was reset meanwhile, there is no charge to settle, and no
// error.
func (r *refundable) settle(ctx context.Context, cost int64) (d stint.Decision, err error) {
	if cost == Forget {
		err = r.by.forget(ctx)
	} else if d, err = r.Settle(ctx, slices.Repeat([]int64{cost}, r.parts)...); errors.Is(err, stint.ErrReservation) {
		cost, err = Forget, nil
	}
	if err != nil || cost != Forget && (r.parts == 1 || d.Tightest < 0) {
		return d, err
	}
	if d, err = r.by.peek(ctx); err != nil { // the settlement has not failed
		d.Tightest = -1
	}
	return d, nil
}

// serveCounting runs the handler, and settles the charge by the response, in the same
// goroutine: by its header before that is sent, by its body after the handler, even when the
// client has gone.
func (o *Options) serveCounting(w http.ResponseWriter, r *http.Request, next http.Handler, cost int64, own *refundable, pending *policy.Pending, m mark) {
	s := &statusWriter{ResponseWriter: w, o: o, r: r, cost: cost, own: own, pending: pending, mark: m, said: o.Dialect.says(w.Header())}
	body, plain := r.Body != nil && r.Body != http.NoBody, s.pending != nil && s.pending.Reads() && r.Header["Accept-Encoding"] != nil
	if body || plain {
		r = r.WithContext(r.Context()) // a copy: a handler must not change its request
	}
	if body {
		r.Body = &heardBody{r.Body, &s.broken}
	}
	if plain {
		r.Header = r.Header.Clone()
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
	if len(r.Header["Grpc-Timeout"]) > 0 {
		s.began = time.Now()
	}
	s.cuts = s.pending != nil && s.pending.Cuts()
	if s.pending != nil && o.OnSettlement != nil {
		s.pending.Settled = func(settled *policy.Result) { o.OnSettlement(r, settled) }
	}
	if s.pending != nil && o.Reserves != nil {
		s.pending.Reserves = func(open int) error { return o.Reserves(r, open) }
	}
	returned := false
	defer func() { s.end(returned) }()
	next.ServeHTTP(s.withPowers(), r)
	if returned = true; s.cut {
		panic(http.ErrAbortHandler) // else the client would take what it got for the whole
	}
}

// A heardBody notes that the body breaks off.
type heardBody struct {
	io.ReadCloser
	broken *atomic.Bool
}

// Read implements [io.Reader].
func (b *heardBody) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.broken.Store(true)
	}
	return n, err
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
	mark    mark
	said    [3]string   // the fields before the settlement
	status  int         // 0 until known
	broken  atomic.Bool // the request's body did not come
	began   time.Time   // zero for one without a deadline of gRPC
	failed  bool        // the client has gone
	empty   bool        // no body is sent, whatever the handler writes
	rest    int64       // what is still to be sent of the body; below 0 if that is not known

	cuts bool // a rule may cut the body
	cut  bool // a rule has cut it
}

// know settles by the status and the header, which does not change after it. What the handler answers
// because the client has left, or has not sent its whole body, says nothing of the request: its charge
// stands, or who does so before a failure would fail for free.
func (s *statusWriter) know(status int, h http.Header) {
	s.status = status
	failed := len(h["Grpc-Status"]) > 0 && h["Grpc-Status"][0] != "0"
	gone := s.broken.Load() && (failed || status >= http.StatusBadRequest) ||
		s.r.Context().Err() != nil && (failed || status >= http.StatusInternalServerError || status == statusLeft) ||
		status >= http.StatusInternalServerError && s.late()
	gone = gone && (s.o.Answered == nil || !s.o.Answered(s.r))
	s.empty = s.r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if length, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); s.empty {
		s.rest, s.cuts = 0, false
	} else if s.rest = length; err != nil {
		s.rest = -1
	}
	actual := s.cost
	if s.o.Settle != nil && s.cost != 0 && !gone {
		actual = s.o.Settle(status, h, s.cost)
	}
	pending := s.pending
	switch {
	case s.own != nil:
		s.settle(func(ctx context.Context) error { return s.settleOwn(ctx, actual) })
	case actual != s.cost && (actual == 0 || actual == Forget):
		s.pending, s.cuts = nil, false
		s.settle(func(ctx context.Context) error { return s.again(ctx, pending, pending.Cancel(ctx)) })
	case gone:
		s.settle(func(ctx context.Context) error { return pending.Header(ctx, 0, nil) })
	default:
		s.settle(func(ctx context.Context) error { return s.again(ctx, pending, pending.Header(ctx, status, h)) })
	}
}

// late reports whether servers have ended a gRPC call for the deadline that its client has set, though the
// client is still there.
func (s *statusWriter) late() bool {
	return !s.began.IsZero() && time.Since(s.began) >= request.CallTimeout(s.r.Header)
}

// settleOwn settles the charge of limiters, and writes the fields anew.
func (s *statusWriter) settleOwn(ctx context.Context, actual int64) error {
	d, err := s.own.settle(ctx, actual)
	if l := s.own.fields.tightest(&d); l != nil && err == nil {
		d.ResetAfter = l.Reset(&d, len(s.own.fields.limits))
		d.Allowed = true // as the request was
		s.o.Dialect.again(s.Header(), s.said, l, &d, s.mark)
	}
	return err
}

// again writes the fields anew after rules have settled their charge. It returns err, why they
// could not.
func (s *statusWriter) again(ctx context.Context, pending *policy.Pending, err error) error {
	r := new(policy.Result)
	if err != nil || s.said[0] == "" || !pending.Remains(ctx, r) {
		return err
	}
	if l, _, d := s.o.Dialect.describe(r); l != nil {
		s.o.Dialect.again(s.Header(), s.said, l, &d, s.mark)
	}
	return nil
}

// end settles by the body. A handler that panics without having written a header counts as
// 500.
func (s *statusWriter) end(returned bool) {
	if s.status == 0 && (!returned || s.r.Context().Err() != nil) {
		s.know(http.StatusInternalServerError, nil)
	}
	s.ok()
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
	known := status
	if status < 100 || status > 999 { // net/http panics, for a router like gin's outside of the guard
		known = http.StatusInternalServerError
	}
	if s.status == 0 && (known >= 200 || known == http.StatusSwitchingProtocols) {
		s.know(known, s.ResponseWriter.Header())
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

// Unseen is told by adapters that the body does not come through Write.
func (s *statusWriter) Unseen() {
	if s.pending != nil {
		s.pending.Unseen()
	}
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
