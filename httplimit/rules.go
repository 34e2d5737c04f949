package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// NewPolicy returns middleware that holds requests to the rules of a policy, which say the
// key of each request. client finds the client's address; the path is that of the request's
// URL at the guard. Options.Attribute gives the further attributes that the rules declare.
// NewPolicy refuses rules that look at others. If such rules come by a reload, a request that
// one of them may hold is answered with 500 ([policy.NotGivenError]).
//
// A block, and a missing key under on_missing: deny, are answered with 403. A path, or
// anything that [Ambiguous] finds, that rules look at and servers read in different ways is
// answered with 400, a denial because a rule's store fails with 503. If a rule looks into a
// body that cannot be read, the status is that of the error's method HTTPStatus() int, if it
// has one, else 400. Options.Missing has no meaning here. Requests wait under a leaky_queue,
// and as long as the wait of a rule says; see Options.MaxWait.
func NewPolicy(p *policy.Policy, client ClientIP, o Options) (func(http.Handler) http.Handler, error) {
	if p == nil {
		return nil, errors.New("httplimit: no policy: policy.New makes one")
	}
	return NewPolicyFunc(func() *policy.Policy { return p }, client, o)
}

// NewPolicyFunc is [NewPolicy] for rules that are reloaded: current returns the
// policy to use, such as the Load method of an [atomic.Pointer]. It is called
// for each request and may not return nil.
func NewPolicyFunc(current func() *policy.Policy, client ClientIP, o Options) (func(http.Handler) http.Handler, error) {
	if current == nil || current() == nil {
		return nil, errors.New("httplimit: no policy: policy.New makes one")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Limits != nil {
		return nil, errors.New("httplimit: Limits has no meaning under a policy: its rules have tiers")
	}
	if o.Missing != MissingShared {
		return nil, errors.New("httplimit: Missing has no meaning under a policy: its rules have on_missing")
	}
	g := &policyGuard{current: current, client: client, o: o, by: request.Middleware, mark: newMark()}
	if o.Attribute != nil {
		g.by = request.Program
	}
	if o.Claim != nil {
		g.by |= request.Proxy
	}
	if refused := current().Rules().File().Refused(g.by); len(refused) > 0 {
		return nil, fmt.Errorf("httplimit: %w", refused)
	}
	g.calls.New = func() any { return g.newCall() }
	return func(next http.Handler) http.Handler {
		_, redirects := next.(*http.ServeMux) // a mux redirects to the clean path
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next, redirects) })
	}, nil
}

// policyGuard is what all handlers of one middleware with a policy share.
type policyGuard struct {
	current func() *policy.Policy
	client  ClientIP
	o       Options
	by      request.Interfaces
	calls   sync.Pool // of *call
	mark    mark
	twice   once
	plain   Ambiguous
}

// serve decides, then passes the request on or answers it.
func (g *policyGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler, redirects bool) {
	if g.o.Skip != nil && g.o.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	if g.mark.in(w.Header()[g.o.Dialect.standing()]) {
		g.twice.warn(r)
	}
	cost := int64(1)
	if g.o.Cost != nil {
		cost = g.o.Cost(r)
	}
	p := g.current()
	c := g.calls.Get().(*call)
	if g.o.Costs != nil {
		c.result.Costs = g.o.Costs(r)
	}
	c.request, c.redirects = r, redirects && r.Method != http.MethodConnect
	c.Reset(r.Method, r.Host, r.URL, r.URL.RawQuery, r.Header)
	pending, waited, err := g.decide(p, c, cost)
	if release := c.result.Release(); release != nil {
		var returned func()
		w, returned = holdPlaces(w, release)
		defer returned()
	}
	pass := g.respond(w, p, c, waited, err)
	r = c.request // a copy, if rules have read the body
	c.release()
	switch {
	case !pass:
	case pending == nil:
		next.ServeHTTP(w, r)
	default:
		g.o.serveCounting(w, r, next, cost, nil, pending, g.mark)
	}
}

// decide asks the policy, and returns when the request may start. pending settles what the
// charge still owes to the response.
func (g *policyGuard) decide(p *policy.Policy, c *call, cost int64) (pending *policy.Pending, waited time.Duration, err error) {
	l := g.plain.of(p.Rules())
	c.looked = l
	if err := l.check(c.request); err != nil {
		return nil, 0, err
	}
	if !isToken(c.request.Method, "") {
		return nil, 0, &policy.RequestError{Attribute: "method", Reason: "no word of letters, digits and hyphens"}
	}
	if err := l.readPath(c); err != nil {
		return nil, 0, err
	}
	var began time.Time
	if g.o.OnDecision != nil {
		began = time.Now()
	}
	ctx, most := c.request.Context(), g.o.MaxWait
	if g.o.Shadow {
		most = -1
	}
	pending, waited, err = p.Begin(ctx, c, cost, g.o.Settle != nil, most, &c.result)
	if g.o.OnDecision != nil {
		c.took = time.Since(began) - waited
	}
	return pending, waited, err
}

// readPath reads the path of a request as it was sent. The error is for a path that servers
// read in different ways.
func (l *looked) readPath(c *call) error {
	u := c.request.URL
	if u.RawPath == "" && u.Opaque == "" { // it was sent in its usual encoding, without a blank
		if !l.path {
			return nil
		}
		if c.plain = match.PlainPath(u.Path); c.plain {
			return nil
		}
	}
	switch path := request.SentPath(u); {
	case !c.redirects:
		return l.checkPath(path)
	case hasBlank(path):
		return &policy.RequestError{Attribute: "path", Reason: blankReason}
	}
	return nil
}

// respond reports a decision to the hooks and the client. It returns whether the request may
// go on; if not, respond has answered it.
func (g *policyGuard) respond(w http.ResponseWriter, p *policy.Policy, c *call, waited time.Duration, err error) bool {
	r, d := c.request, &c.result.Decision
	if err != nil {
		return g.o.failed(w, r, err)
	}
	if c.result.StoreError != nil && g.o.OnDecision == nil { // with OnDecision, the Outcome has it
		g.o.reportError(r, c.result.StoreError)
	}
	if g.o.OnDecision != nil {
		g.o.OnDecision(r, c.outcome(waited))
	}
	if g.o.Shadow {
		return true
	}
	g.o.Dialect.encode(w.Header(), &c.result, g.mark)
	if d.Allowed {
		return true
	}
	f := refuseResult(&c.result)
	if g.o.Denied == nil {
		f.write(w, r)
		return false
	}
	f.setRetry(w.Header())
	f.setReply(w.Header(), r.Header.Get("Origin"))
	g.o.Denied(w, r, c.outcome(waited))
	return false
}

func (c *call) outcome(waited time.Duration) Outcome {
	o := Outcome{
		Decision: c.result.Decision, Shadow: c.guard.o.Shadow, Waited: waited,
		Rules: &c.result, Took: c.took,
	}
	for i := range c.result.Rules {
		if one := &c.result.Rules[i]; one.Denied && !one.Shadow {
			o.Violated = append(o.Violated, ratefields.Printable(one.Label))
		}
	}
	if at := c.result.Tightest; at >= 0 {
		o.Key = c.result.Key(at)
	}
	return o
}

// A call is one request on its way through a policy: its attributes, and the answer. Calls
// are pooled.
type call struct {
	request.HTTP
	guard     *policyGuard
	request   *http.Request
	redirects bool // the handler redirects if the path is not clean
	result    policy.Result
	took      time.Duration
	plain     bool         // the path is clean as it was sent
	looked    *looked      // what the rules look at
	read      *requestBody // nil until rules look into it
}

func (g *policyGuard) newCall() *call {
	c := &call{guard: g, result: policy.Result{WillRelease: true}}
	c.By, c.Client, c.Pointer = g.by, c.Addr, c.bodyAttribute
	if g.o.Attribute != nil {
		c.More = func(name string) (string, bool) { return g.o.Attribute(c.request, name) }
	}
	if g.o.Claim != nil {
		c.Claim = func(name string) (string, bool, bool) { return g.o.Claim(c.request, name) }
	}
	if g.o.Reserves != nil {
		c.result.Reserves = func(open int) error { return g.o.Reserves(c.request, open) }
	}
	return c
}

func (c *call) release() {
	c.request, c.plain, c.looked, c.read = nil, false, nil, nil
	c.Reset("", "", nil, "", nil)
	c.guard.calls.Put(c)
}

// HasBody reports whether the request has a body, which a preflight does not.
func (c *call) HasBody() bool { return c.request.ContentLength != 0 }

// BodyUnread reports whether the request has a body that rules have not looked into: an observer that
// asks for its fields would wait for it.
func (c *call) BodyUnread() bool { return c.read == nil && c.HasBody() }

// BodyLength returns how many bytes the request's body has; -1 if that is not known.
func (c *call) BodyLength() int64 {
	if c.read != nil && c.read.data != nil {
		return int64(len(c.read.data))
	}
	return c.request.ContentLength
}

func (c *call) Addr() (addr netip.Addr, text string, ok bool) {
	if addr, ok = c.guard.client.find(c.request, nil); !ok {
		return netip.Addr{}, "", false
	}
	if text, ok = peerText(c.request.RemoteAddr, addr); !ok {
		text = addr.String()
	}
	return addr, text, true
}

// PlainPath returns the path, and whether it was sent clean.
func (c *call) PlainPath() (path string, plain bool) { return c.request.URL.Path, c.plain }
