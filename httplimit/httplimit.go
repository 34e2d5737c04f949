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
	// MissingShared counts all these requests under one key of their own.
	MissingShared Missing = iota
	// MissingDeny answers these requests with 403.
	MissingDeny
	// MissingSkip lets these requests pass, uncounted.
	MissingSkip

	missings = iota
)

// NoRoute says what becomes of requests that [RouteKey] finds no route for.
type NoRoute uint8

const (
	// NoRouteFail answers these requests with 500 and calls OnError with [ErrNoRoute].
	NoRouteFail NoRoute = iota
	// NoRouteSkip lets these requests pass, uncounted.
	NoRouteSkip

	noRoutes = iota
)

// ErrNoRoute says that a guard by [RouteKey] stands where no route is known: in
// front of the mux, or under a router that is not net/http's.
var ErrNoRoute = errors.New("httplimit: RouteKey finds no route: put the guard around the handlers, inside of http.ServeMux, or set Options.NoRoute")

// Options say how a guard behaves. The zero value suits most programs. The
// functions are called from many goroutines at once.
type Options struct {
	// Cost returns how many units a request takes. A cost of 0 passes without being counted,
	// a cost above the limit never passes, and a cost below 0 is answered with 400. Mind that
	// ContentLength is -1 for a body of unknown length. The default is 1.
	Cost func(*http.Request) int64
	// Costs returns what a request costs under some rules of a policy, by their names, in
	// place of Cost: places under a limit in flight, tokens under a budget. A name that no
	// rule has is answered with 400. The default names no rules.
	Costs func(*http.Request) policy.Costs
	// Limits returns limits that a request's key is held to in place of the limiter's own,
	// such as those of a customer's plan; if it returns none, the limiter's own apply. They
	// count under the limiter's name: a key keeps what it has used, and a ban, under limits of
	// the same algorithm and period; others start unused. If
	// the limits cannot be held, or a memstore already has 4,096 of this name that still
	// count, OnError gets the error, and the limiter's own decide. A list that was returned
	// before costs some ten nanoseconds, a new one a few microseconds in memory. Rules have
	// tiers instead. The default returns none.
	Limits func(*http.Request) []stint.Limit
	// Skip reports whether a request passes undecided and uncounted. By default none does.
	Skip func(*http.Request) bool
	// Attribute returns further attributes that a policy's rules use and
	// declare, such as jwt.sub. The default returns none.
	Attribute func(r *http.Request, name string) (value string, ok bool)
	// Claim returns, for attributes jwt.NAME, a claim of the request's token, which your
	// program has verified as the policy's file says under jwt. If known is false, the claim
	// cannot be known at the moment, and a rule that needs it goes by its on_store_failure.
	// Without Claim, rules declare claims like other attributes.
	Claim func(r *http.Request, name string) (value string, ok, known bool)
	// Missing is for requests without a key. The default value is
	// MissingShared.
	Missing Missing
	// NoRoute is for requests that [RouteKey] finds no route for. The default
	// value is NoRouteFail.
	NoRoute NoRoute
	// Shadow decides, counts and reports, but lets every request pass and sends clients no
	// fields. The default value is false.
	Shadow bool
	// FailOpen lets requests pass that could not be decided because the store failed. The
	// default value is false: they are answered with 503, since a broken store would
	// otherwise open the guard. A store with a fallback returns no error while the fallback
	// decides.
	FailOpen bool
	// OnError is called with the error of a request that could not be decided, and with an
	// [ErrSettle] if its response was not settled. If a policy's rules decide without their
	// store, the store's error is in the Outcome; OnError gets it only if there is no
	// OnDecision. Optional.
	OnError func(*http.Request, error)
	// OnDecision is called with each decision, before the answer is written.
	// Optional.
	OnDecision func(*http.Request, Outcome)
	// OnSettlement is called for each rule under which the cost of a response is settled: see
	// [policy.Pending]. Optional.
	OnSettlement func(*http.Request, *policy.Result)
	// Reserves is told how many reservations a request has open under a policy, whenever that
	// changes, and before one more is made: see [policy.Result]. None is left when the request
	// has ended. If it returns an error, the request is answered with 503, or its response cut.
	// By default the store alone bounds reservations.
	Reserves func(r *http.Request, open int) error
	// Answered reports, for a proxy, whether the status that is written is that of the server
	// behind. It counts then, though the client has left. By default a client that has left
	// makes a 5xx or 499 one that says nothing.
	Answered func(r *http.Request) bool
	// Denied answers a denied request in place of the usual 429; rate-limit fields and
	// Retry-After are set already. The default answer is of the kind that the request
	// accepts: application/problem+json, application/json or text/plain.
	Denied func(http.ResponseWriter, *http.Request, Outcome)
	// Dialect says which header fields to send. The default value is Draft11.
	Dialect Dialect
	// MaxWait is how long a request may wait for its start; a request that would wait longer
	// is denied at once. With the default value, 0, it waits as long as a leaky_queue holds
	// it and rules say by wait, else not at all. With a negative value no request waits, and
	// a leaky_queue lets requests that it has room for pass without spacing them.
	MaxWait time.Duration
	// Settle returns what a request has cost, by the status and the header of its response,
	// in units. cost is what it took: return cost to let that stand, 0 to give it back, for
	// example so that only failures count, more to charge the difference too, room or not,
	// and [Forget] to reset the key; another value below 0 lets the cost stand. Settle is
	// called once, when the handler writes the header, which waits for the settlement and says
	// what then remains; what the handler does later changes nothing. A handler that panics before counts as 500,
	// with a nil header; a connection that it takes over counts as 101. If the client has left and the
	// handler answers nothing, 499 or a 5xx, Settle is not called, and the cost stands. The handler's
	// ResponseWriter is wrapped. The cost is a reservation: units that have recovered in the
	// meantime are not given back. Settle is not called for a request of cost 0. Under a
	// policy, 0 and Forget give back what all rules took, and any other value leaves the cost
	// to the rules. Settle cannot be combined with waiting. The default lets the cost stand.
	Settle func(status int, header http.Header, cost int64) int64
}

// Forget is what [Options.Settle] returns to reset the key, for example when a login succeeds
// after failures: the key is then as if never seen, and requests of it that are still in
// progress count no more. Return it for what only a success answers, not for all but a failure:
// a GET or a panic would reset the key too. Under a key by address, whoever has an account can
// reset the key by it.
const Forget int64 = -1

// An Outcome is what was decided about one request.
type Outcome struct {
	// Decision is the limiter's answer.
	Decision stint.Decision
	// Key is the key that the request was counted under; with [NewAll], all its keys, with a
	// NUL between them. It is what a client sent, or its address: keep it out of logs and
	// metric labels.
	Key string
	// Violated is the names of the limits that denied the request, or would have in shadow;
	// under a policy, their labels.
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
	g := &keyed{key: key, o: o, mark: newMark()}
	if err := g.o.check(); err != nil {
		return nil, err
	}
	if o.Costs != nil {
		return nil, errors.New("httplimit: Costs are of a policy's rules, and there is a limiter alone: use NewPolicy, or Cost")
	}
	if o.Settle != nil {
		if guard.New(l, most).Waits() {
			return nil, errors.New("httplimit: Settle does not go with waiting: set MaxWait to -1, or to 0 with a limit that is no leaky_queue")
		}
		most = -1 // no request waits, even if the limits become leaky_queues
	}
	make := func(l *stint.Limiter) (*held, error) {
		h := &held{Guard: guard.New(l, most), dialect: o.Dialect}
		h.encoder()
		return h, h.Check(o.Settle != nil)
	}
	var err error
	if g.own, err = make(l); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if o.Limits != nil {
		g.byRequest = guard.NewByRequest(g.own, l, make)
	}
	return func(next http.Handler) http.Handler { return &guarded{g, next} }, nil
}

// check returns what is wrong with the options.
func (o *Options) check() error {
	switch {
	case o.Dialect >= dialects:
		return fmt.Errorf("httplimit: unknown dialect %d", o.Dialect)
	case o.NoRoute >= noRoutes:
		return fmt.Errorf("httplimit: unknown word %d for requests without a route", o.NoRoute)
	case o.Missing >= missings:
		return fmt.Errorf("httplimit: unknown word %d for requests without a key", o.Missing)
	}
	return nil
}

// keyed is what all handlers of one middleware with a limiter share.
type keyed struct {
	own       *held
	byRequest *guard.ByRequest[*held] // of Options.Limits; nil without them
	key       Key
	o         Options
	mark      mark
	twice     once
}

type held struct {
	*guard.Guard
	dialect Dialect
	fields  atomic.Pointer[termFields]
}

// termFields are the header fields of limits with certain terms.
type termFields struct {
	of *guard.Terms
	*encoder
}

// encoder returns the encoder of the limits as they are now.
func (h *held) encoder() *encoder {
	t, f := h.Terms(), h.fields.Load()
	if f == nil || f.of != t {
		f = &termFields{t, newEncoder(h.dialect, t.Fields)}
		h.fields.Store(f)
	}
	return f.encoder
}

// under returns the limiter for the limits that Options.Limits gives to a request.
func (g *keyed) under(r *http.Request) *held {
	h, err := g.byRequest.Of(g.o.Limits(r))
	if err != nil {
		g.o.reportError(r, fmt.Errorf("httplimit: %w", err))
	}
	return h
}

type guarded struct {
	*keyed
	next http.Handler
}

// ServeHTTP decides, then passes the request on or answers it.
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
	if field := g.o.Dialect.standing(); field != "" && g.mark.in(w.Header()[field]) {
		g.twice.warn(r)
	}
	cost := int64(1)
	if g.o.Cost != nil {
		cost = g.o.Cost(r)
	}
	by := g.own
	if g.byRequest != nil {
		by = g.under(r)
	}
	switch {
	case by.InFlight():
		d, release, waited, err := by.Acquire(r.Context(), key, cost)
		w, returned := holdPlaces(w, release)
		defer returned()
		if g.respond(w, r, by.encoder(), key, waited, &d, err) {
			g.next.ServeHTTP(w, r)
		}
	case by.Waits():
		d, waited, err := by.TakeQueued(r.Context(), key, cost)
		g.serveQueued(w, r, by.encoder(), key, waited, &d, err)
	case g.o.Settle != nil:
		g.serveRefundable(w, r, by.encoder(), key, 1, cost, &single{by, key, cost})
	default:
		d, err := by.Take(r.Context(), key, cost)
		if g.respond(w, r, by.encoder(), key, 0, &d, err) {
			g.next.ServeHTTP(w, r)
		}
	}
}

// refundLasts is how long a charge can be refunded: longer than any handler takes to begin
// its answer. If this process is killed, open charges stand.
const refundLasts = 24 * time.Hour

// A reserver decides about a request, as [stint.Request] does, and resets its keys.
type reserver interface {
	Reserve(ctx context.Context, ttl time.Duration) (stint.Decision, *stint.Reservation, error)
	forget(ctx context.Context) error
	peek(ctx context.Context) (stint.Decision, error)
}

type single struct {
	by   *held
	key  string
	cost int64
}

func (s *single) Reserve(ctx context.Context, ttl time.Duration) (stint.Decision, *stint.Reservation, error) {
	return s.by.Reserve(ctx, s.key, s.cost, ttl)
}
func (s *single) forget(ctx context.Context) error { return s.by.Reset(ctx, s.key) }
func (s *single) peek(ctx context.Context) (stint.Decision, error) {
	return s.by.Peek(ctx, s.key, 0)
}

// serveRefundable is ServeHTTP for requests whose charge, of cost in each of some parts,
// Options.Settle may change.
func (g *guarded) serveRefundable(w http.ResponseWriter, r *http.Request, fields *encoder, key string, parts int, cost int64, by reserver) {
	d, reservation, err := by.Reserve(r.Context(), refundLasts)
	if !g.respond(w, r, fields, key, 0, &d, err) {
		return
	}
	if reservation == nil || cost == 0 {
		g.next.ServeHTTP(w, r)
		return
	}
	g.o.serveCounting(w, r, g.next, cost, &refundable{reservation, by, parts, fields}, nil, g.mark)
}

// respond reports a decision to the hooks and the client. It returns whether the request may
// go on; if not, respond has answered it.
func (g *keyed) respond(w http.ResponseWriter, r *http.Request, fields *encoder, key string, waited time.Duration, d *stint.Decision, err error) bool {
	if err != nil {
		return g.o.failed(w, r, err)
	}
	if g.o.OnDecision != nil {
		g.o.OnDecision(r, g.outcome(fields, key, waited, d))
	}
	if g.o.Shadow {
		return true
	}
	fields.set(w.Header(), d, g.mark)
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

// failed reports an error, and returns whether the request may go on; if not, failed has
// answered it.
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
	case errors.Is(err, policy.ErrNotReady):
		f.detail = "there are no rules yet"
	case errors.Is(err, stint.ErrFull):
		f.setWait(stint.Wait(time.Second))
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

// serveQueued is ServeHTTP for requests that may have waited.
func (g *guarded) serveQueued(w http.ResponseWriter, r *http.Request, fields *encoder, key string, waited time.Duration, d *stint.Decision, err error) {
	var passed *guard.AfterWait
	if errors.As(err, &passed) {
		g.o.reportError(r, passed.Err) // the request passed; only its header fields cannot be made
		g.next.ServeHTTP(w, r)
		return
	}
	if g.respond(w, r, fields, key, waited, d, err) {
		g.next.ServeHTTP(w, r)
	}
}

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
