package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
	"github.com/stint-dev/stint/policy"
)

// Missing says what becomes of requests that have no key.
type Missing uint8

const (
	// MissingShared counts all of them under one key of their own.
	MissingShared Missing = iota
	// MissingDeny answers them with 403.
	MissingDeny
	// MissingSkip lets them pass, uncounted.
	MissingSkip

	missings = iota
)

// NoRoute says what becomes of requests that [RouteKey] finds no route for.
type NoRoute uint8

const (
	// NoRouteFail answers them with 500 and calls OnError with [ErrNoRoute].
	NoRouteFail NoRoute = iota
	// NoRouteSkip lets them pass, uncounted.
	NoRouteSkip

	noRoutes = iota
)

// ErrNoRoute says that a guard by [RouteKey] stands where no route is known: in
// front of the mux, or under a router that is not net/http's.
var ErrNoRoute = errors.New("httplimit: RouteKey finds no route: put the guard around the handlers, inside of http.ServeMux, or set Options.NoRoute")

// Options say how a guard behaves. The zero value suits most programs. The
// functions are called from many goroutines at once.
type Options struct {
	// Cost returns how many units a request takes. A cost of 0 passes
	// without being counted, one above the limit never passes, one below 0 is
	// answered with 400: the ContentLength of a body of unknown length is -1. The
	// default is 1.
	Cost func(*http.Request) int64
	// Skip reports whether a request passes undecided and uncounted. The default
	// skips none.
	Skip func(*http.Request) bool
	// Attribute returns further attributes that a policy's rules use and
	// declare, such as jwt.sub. The default returns none.
	Attribute func(r *http.Request, name string) (value string, ok bool)
	// Claim returns a claim of the request's token, which it has verified by what the
	// policy's file says under jwt, for attributes jwt.NAME. If known is false, it cannot
	// be known at the moment, and a rule that needs it goes by its on_store_failure. The
	// default is that rules declare claims as other attributes.
	Claim func(r *http.Request, name string) (value string, ok, known bool)
	// Missing is for requests without a key. The default value is
	// MissingShared.
	Missing Missing
	// NoRoute is for requests that [RouteKey] finds no route for. The default
	// value is NoRouteFail.
	NoRoute NoRoute
	// Shadow decides, counts and reports, but lets everything pass and sends
	// clients no fields. The default value is false.
	Shadow bool
	// FailOpen lets requests pass that could not be decided because the store
	// failed. The default value is false: they are answered with 503, since a
	// broken store would otherwise open the guard. A store that has a fallback
	// of its own returns no error while that works.
	FailOpen bool
	// OnError is called with the error of a request that could not be decided,
	// or, as ErrSettle, of one whose response was not settled. Where a policy's rules decide without their
	// store, the store's error is in the Outcome if there is OnDecision, else
	// OnError gets it. Optional.
	OnError func(*http.Request, error)
	// OnDecision is called with each decision, before the answer is written.
	// Optional.
	OnDecision func(*http.Request, Outcome)
	// Denied answers a denied request in place of the usual 429; fields and
	// Retry-After are set already. The default is an answer of the kind that
	// the request accepts: application/problem+json, application/json or
	// text/plain.
	Denied func(http.ResponseWriter, *http.Request, Outcome)
	// Dialect is the header fields to send. The default value is Draft11.
	Dialect Dialect
	// MaxWait is how long a request may wait for its start; one that would wait
	// longer is denied at once. The default value, 0, is as long as a
	// leaky_queue holds, and no time under limits of other algorithms. With a
	// negative value no request waits, and a leaky_queue lets the requests that
	// it has room for pass without spacing them.
	MaxWait time.Duration
	// Refund reports whether a response of that status gives back what its
	// request took, for example so that only failures count. A handler that
	// panics counts as 500, and gives back only if the status that it has sent
	// does too. The handler's ResponseWriter is wrapped for it, and the cost is a
	// reservation: units that have recovered by then are not given back. Refund
	// cannot be combined with waiting. The default gives nothing back.
	Refund func(status int) bool
	// RefundWithin is how long after a request its refund may come; later it
	// stands as charged. Each refundable request takes room in the store for
	// as long. The default value is 1 minute.
	RefundWithin time.Duration
}

// An Outcome is what was decided about one request.
type Outcome struct {
	// Decision is the limiter's answer.
	Decision stint.Decision
	// Key is the key that the request was counted under. It is what a client
	// sent, or its address: keep it out of logs and metric labels.
	Key string
	// Violated is the names of the limits that denied it, or would have. Under
	// a policy they are the labels of its limits.
	Violated []string
	// Rules is the policy's whole answer, valid until the function that got
	// the Outcome returns; nil without a policy.
	Rules *policy.Result
	// Shadow says that the request passes whatever Decision says.
	Shadow bool
	// Waited is how long the request waited for its start.
	Waited time.Duration
	// Took is how long the policy took to decide, without the wait; 0 without
	// a policy.
	Took time.Duration
}

// New returns middleware that holds each key to the limits of l. The error
// says what is missing or does not go together.
func New(l *stint.Limiter, key Key, o Options) (func(http.Handler) http.Handler, error) {
	if l == nil {
		return nil, errors.New("httplimit: no limiter: stint.NewLimiter makes one")
	}
	if key == nil {
		return nil, errors.New("httplimit: no key: say whom requests are counted for, such as IPKey(ClientIP{})")
	}
	most := o.MaxWait
	if o.Shadow {
		most = -1
	}
	g := &keyed{limiter: guard.New(l, most), key: key, o: o}
	if err := g.o.check(); err != nil {
		return nil, err
	}
	if err := g.limiter.Check(o.Refund != nil); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if o.Refund != nil && g.limiter.Waits() {
		return nil, errors.New("httplimit: Refund does not go with waiting: set MaxWait to -1, or use a limit that is no leaky_queue")
	}
	if o.Refund != nil {
		g.limiter = guard.New(l, -1) // whatever its limits become
	}
	g.encoder()
	return func(next http.Handler) http.Handler { return &guarded{g, next} }, nil
}

// check fills in defaults, or says what is wrong.
func (o *Options) check() error {
	switch {
	case o.Dialect >= dialects:
		return fmt.Errorf("httplimit: unknown dialect %d", o.Dialect)
	case o.NoRoute >= noRoutes:
		return fmt.Errorf("httplimit: unknown word %d for requests without a route", o.NoRoute)
	case o.Missing >= missings:
		return fmt.Errorf("httplimit: unknown word %d for requests without a key", o.Missing)
	}
	if o.RefundWithin <= 0 {
		o.RefundWithin = time.Minute
	}
	return nil
}

// keyed is what all handlers of one middleware with a limiter share.
type keyed struct {
	limiter *guard.Guard
	key     Key
	fields  atomic.Pointer[termFields]
	o       Options
}

// termFields are the fields of limits as they stood at some moment.
type termFields struct {
	of *guard.Terms
	*encoder
}

// encoder returns that of the limits as they stand now.
func (g *keyed) encoder() *encoder {
	t, f := g.limiter.Terms(), g.fields.Load()
	if f == nil || f.of != t {
		f = &termFields{t, newEncoder(g.o.Dialect, t.Fields)}
		g.fields.Store(f)
	}
	return f.encoder
}

// guarded is one handler behind a guard.
type guarded struct {
	*keyed
	next http.Handler
}

// ServeHTTP decides, then hands the request on or answers it.
func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.o.Skip != nil && g.o.Skip(r) {
		g.next.ServeHTTP(w, r)
		return
	}
	key, ok := g.key(r)
	if !ok && key == noRoute {
		g.withoutRoute(w, r)
		return
	}
	if !ok {
		switch key = guard.MissingKey; g.o.Missing {
		case MissingSkip:
			g.next.ServeHTTP(w, r)
			return
		case MissingDeny:
			if !g.o.Shadow {
				refuseMissing.write(w, r)
				return
			}
		}
	}
	cost := int64(1)
	if g.o.Cost != nil {
		cost = g.o.Cost(r)
	}
	switch {
	case g.limiter.InFlight():
		d, release, waited, err := g.limiter.Acquire(r.Context(), key, cost)
		defer releaseAfter(w, release)
		if g.respond(w, r, key, waited, &d, err) {
			g.next.ServeHTTP(w, r)
		}
	case g.limiter.Waits():
		g.serveQueued(w, r, key, cost)
	case g.o.Refund != nil:
		g.serveRefundable(w, r, key, cost)
	default:
		d, err := g.limiter.Take(r.Context(), key, cost)
		if g.respond(w, r, key, 0, &d, err) {
			g.next.ServeHTTP(w, r)
		}
	}
}

// releaseAfter releases what a request holds in flight: when the response has ended, where
// that goes on without the handler and w says when it ends, as that of fiberlimit does; else
// now, since the handler has returned.
func releaseAfter(w http.ResponseWriter, release func()) {
	if late, ok := w.(interface{ AfterResponse(call func()) bool }); !ok || !late.AfterResponse(release) {
		release()
	}
}

// serveRefundable is ServeHTTP for requests whose response may give back what
// they took.
func (g *guarded) serveRefundable(w http.ResponseWriter, r *http.Request, key string, cost int64) {
	d, reservation, err := g.limiter.Reserve(r.Context(), key, cost, g.o.RefundWithin)
	if errors.Is(err, stint.ErrFull) { // strict: it counts, whatever becomes of it
		g.o.reportError(r, fmt.Errorf("%w: %w", ErrSettle, err))
		d, err = g.limiter.Take(r.Context(), key, cost)
	}
	if !g.respond(w, r, key, 0, &d, err) {
		return
	}
	if reservation == nil || cost == 0 {
		g.next.ServeHTTP(w, r)
		return
	}
	g.o.serveCounting(w, r, g.next, nil, func(ctx context.Context) error {
		_, err := reservation.Cancel(ctx)
		return err
	})
}

// respond reports a decision to the hooks and the client. It returns whether the
// request may go on; if not, it has been answered.
func (g *keyed) respond(w http.ResponseWriter, r *http.Request, key string, waited time.Duration, d *stint.Decision, err error) bool {
	if err != nil {
		return g.o.failed(w, r, err)
	}
	fields := g.encoder()
	if g.o.OnDecision != nil {
		g.o.OnDecision(r, g.outcome(fields, key, waited, d))
	}
	if g.o.Shadow {
		return true
	}
	fields.set(w.Header(), d)
	if d.Allowed {
		return true
	}
	f := fields.refuseDenied(d)
	if g.o.Denied == nil {
		f.write(w, r)
		return false
	}
	f.setRetry(w.Header())
	g.o.Denied(w, r, g.outcome(fields, key, waited, d))
	return false
}

func (g *keyed) outcome(fields *encoder, key string, waited time.Duration, d *stint.Decision) Outcome {
	o := Outcome{Decision: *d, Key: key, Shadow: g.o.Shadow, Waited: waited}
	for i := range d.Denied.Limits() {
		if i < len(fields.limits) {
			o.Violated = append(o.Violated, fields.limits[i].Name)
		}
	}
	return o
}

// failed reports an error and says whether the request may go on; if not, it
// has been answered.
func (o *Options) failed(w http.ResponseWriter, r *http.Request, err error) bool {
	if r.Context().Err() == nil {
		o.reportError(r, err)
	}
	f := refuseError
	var lacks *policy.NotGivenError
	switch {
	case o.Shadow:
		return true
	case errors.As(err, &lacks):
		f = refuseServer
	case errors.Is(err, policy.ErrRequest) || errors.Is(err, stint.ErrCost):
		f = refuseFault(err)
	case o.FailOpen && guard.StoreFailed(r.Context(), err):
		return true
	}
	f.write(w, r)
	return false
}

func (o *Options) reportError(r *http.Request, err error) {
	if o.OnError != nil {
		o.OnError(r, err)
	}
}

// serveQueued is ServeHTTP for requests that may wait.
func (g *guarded) serveQueued(w http.ResponseWriter, r *http.Request, key string, cost int64) {
	d, waited, err := g.limiter.TakeQueued(r.Context(), key, cost)
	var passed *guard.AfterWait
	if errors.As(err, &passed) {
		g.o.reportError(r, passed.Err) // only the fields are missing
		g.next.ServeHTTP(w, r)
		return
	}
	if g.respond(w, r, key, waited, &d, err) {
		g.next.ServeHTTP(w, r)
	}
}

// withoutRoute answers a request that RouteKey finds no route for, or lets it pass.
func (g *guarded) withoutRoute(w http.ResponseWriter, r *http.Request) {
	if g.o.NoRoute == NoRouteSkip {
		g.next.ServeHTTP(w, r)
		return
	}
	g.o.reportError(r, ErrNoRoute)
	if g.o.Shadow {
		g.next.ServeHTTP(w, r)
		return
	}
	refuseServer.write(w, r)
}
