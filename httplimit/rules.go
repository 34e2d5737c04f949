package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// NewPolicy returns middleware that holds requests to the rules of a policy,
// which say whom each counts for. The client's address is what client says, the
// path is that of the request's URL where the guard stands, and of headers,
// cookies and query parameters the first of a name counts. Further attributes
// come from Options.Attribute.
//
// A block, and a missing key that a rule denies, is answered with 403; a path
// that servers read in different ways with 400; what a rule denies because its
// store fails with 503. Options.Missing has no meaning here, and requests wait
// under a leaky_queue only.
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
	if o.Missing != MissingShared {
		return nil, errors.New("httplimit: Missing has no meaning under a policy: its rules have on_missing")
	}
	g := &ruled{current: current, client: client, o: o}
	g.calls.New = func() any { return &call{guard: g} }
	g.names.Store(new(map[string]string))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// ruled is what all handlers of one middleware with a policy share.
type ruled struct {
	current func() *policy.Policy
	client  ClientIP
	o       Options
	calls   sync.Pool                         // of *call
	names   atomic.Pointer[map[string]string] // of attributes, to the header names in them
	known   atomic.Pointer[knownLayers]
}

// serve decides, then hands the request on or answers it.
func (g *ruled) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if g.o.Skip != nil && g.o.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if g.o.Cost != nil {
		cost = g.o.Cost(r)
	}
	p := g.current()
	c := g.calls.Get().(*call)
	c.request = r
	var token stint.Token
	var err error
	if g.o.Refund == nil {
		err = p.Decide(r.Context(), c, cost, &c.result)
	} else if token, err = p.Reserve(r.Context(), c, cost, g.o.RefundWithin, &c.result); errors.Is(err, stint.ErrFull) {
		g.o.tell(r, fmt.Errorf("httplimit: no refund: %w", err))
		err = p.Decide(r.Context(), c, cost, &c.result)
	}
	waited, err := g.await(p, c, token, err)
	pass := g.admit(w, p, c, waited, err)
	c.release()
	switch {
	case !pass:
	case token == "":
		next.ServeHTTP(w, r)
	default:
		g.o.serveCounting(w, r, next, func(ctx context.Context) error {
			_, err := p.Cancel(ctx, token)
			return err
		})
	}
}

// await waits for as long as a leaky_queue says. What would wait too long, or
// gives up, gives back what it took.
func (g *ruled) await(p *policy.Policy, c *call, token stint.Token, err error) (time.Duration, error) {
	d := &c.result.Decision
	if err != nil || !d.Allowed || d.Delay <= 0 || g.o.Shadow || g.o.MaxWait < 0 {
		return 0, err
	}
	r := c.request
	began := time.Now()
	deadline, bounded := r.Context().Deadline()
	late := bounded && deadline.Sub(began) < d.Delay
	if late || g.o.MaxWait > 0 && d.Delay > g.o.MaxWait {
		g.giveBack(p, c, token)
		most := g.o.MaxWait
		if late && (most <= 0 || deadline.Sub(began) < most) {
			most = max(deadline.Sub(began), 0)
		}
		*d = tooLong(*d, most)
		if at := c.result.Tightest; at >= 0 {
			c.result.Rules[at].Denied = true
		}
		return 0, nil
	}
	timer := time.NewTimer(d.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		g.giveBack(p, c, token)
		err = r.Context().Err()
	}
	return time.Since(began), err
}

func (g *ruled) giveBack(p *policy.Policy, c *call, token stint.Token) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.request.Context()), settleWithin)
	defer stop()
	var err error
	if token != "" {
		_, err = p.Cancel(ctx, token)
	} else {
		err = p.GiveBack(ctx, &c.result)
	}
	if err != nil {
		g.o.tell(c.request, err)
	}
}

// admit reports a decision to whom it concerns. It says whether the request
// may go on; if not, it has been answered.
func (g *ruled) admit(w http.ResponseWriter, p *policy.Policy, c *call, waited time.Duration, err error) bool {
	r, d := c.request, &c.result.Decision
	if err != nil {
		if errors.Is(err, policy.ErrRequest) && !g.o.Shadow {
			g.o.tell(r, err)
			refuseRequest.write(w, r)
			return false
		}
		return g.o.failed(w, r, err)
	}
	if c.result.StoreError != nil {
		g.o.tell(r, c.result.StoreError)
	}
	if g.o.OnDecision != nil {
		g.o.OnDecision(r, c.outcome(waited))
	}
	if g.o.Shadow {
		return true
	}
	g.setFields(w.Header(), p, c)
	if d.Allowed {
		return true
	}
	f := c.refuse()
	if g.o.Denied == nil {
		f.write(w, r)
		return false
	}
	f.setRetry(w.Header())
	g.o.Denied(w, r, c.outcome(waited))
	return false
}

// setFields writes the fields of a decision: of all limits that the request
// was held to, and where it stands with the tightest.
func (g *ruled) setFields(h http.Header, p *policy.Policy, c *call) {
	at := c.result.Tightest
	if g.o.Dialect == NoFields || at < 0 || c.result.Rules[at].Action != "" {
		return
	}
	known := g.layersOf(p)
	held, tightest := 0, (*layer)(nil)
	var policies []string
	for i := range c.result.Rules {
		one := &c.result.Rules[i]
		if one.Shadow || one.Action != "" {
			continue
		}
		y := known.of(g.o.Dialect, one.Layer)
		if held++; held == 1 {
			policies = y.policy
		} else if g.o.Dialect != XRateLimit {
			policies = []string{policies[0] + ", " + y.policy[0]}
		}
		if i == at {
			tightest = y
		}
	}
	if tightest != nil {
		tightest.set(h, g.o.Dialect, policies, &c.result.Decision, held == 1)
	}
}

// refuse returns the answer to a denial.
func (c *call) refuse() refusal {
	f := refuseQuota
	for i := range c.result.Rules {
		switch one := &c.result.Rules[i]; {
		case one.Shadow || !one.Denied:
			continue
		case one.Action != "":
			f = refuseMissing
		case one.Failed == policy.FailClosed && f.status != http.StatusForbidden:
			f = refuseError
		}
	}
	for _, name := range c.violated() {
		f.violated = append(f.violated, quote(name))
	}
	if retry := c.result.Decision.RetryAfter; retry != stint.Never {
		f.retry = max(retry.Seconds(), 1)
	}
	return f
}

// violated returns the labels of what denied.
func (c *call) violated() (names []string) {
	for i := range c.result.Rules {
		if one := &c.result.Rules[i]; one.Denied && !one.Shadow {
			names = append(names, printable(one.Label))
		}
	}
	return names
}

func (c *call) outcome(waited time.Duration) Outcome {
	o := Outcome{
		Decision: c.result.Decision, Shadow: c.guard.o.Shadow, Waited: waited,
		Violated: c.violated(), Rules: &c.result,
	}
	if at := c.result.Tightest; at >= 0 {
		o.Key = c.result.Key(at)
	}
	return o
}

// knownLayers remembers how fields tell of a policy's layers.
type knownLayers struct {
	policy *policy.Policy
	layers sync.Map // *policy.Layer to *layer
	count  atomic.Int64
}

// mostKnown bounds what is remembered, at some hundred bytes each; layers
// beyond it, as a file with very many overrides may have, are told of anew
// each time.
const mostKnown = 10_000

func (g *ruled) layersOf(p *policy.Policy) *knownLayers {
	known := g.known.Load()
	if known == nil || known.policy != p {
		known = &knownLayers{policy: p}
		g.known.Store(known)
	}
	return known
}

func (k *knownLayers) of(dialect Dialect, l *policy.Layer) *layer {
	if y, ok := k.layers.Load(l); ok {
		return y.(*layer)
	}
	y := newLayer(dialect, l.Label, l.Limit)
	if k.count.Add(1) <= mostKnown {
		k.layers.Store(l, &y)
	}
	return &y
}

// A call is one request on its way through a policy: its attributes, and the
// answer. Calls are used again.
type call struct {
	guard   *ruled
	request *http.Request
	result  policy.Result
	ip      string
	hasIP   bool
	ipKnown bool
	query   url.Values
}

func (c *call) release() {
	c.request, c.ip, c.ipKnown, c.query = nil, "", false, nil
	c.guard.calls.Put(c)
}

// Attribute implements [policy.Attributes].
func (c *call) Attribute(name string) (string, bool) {
	r := c.request
	switch name {
	case "method":
		return r.Method, true
	case "host", "header.host":
		return r.Host, r.Host != ""
	case "path":
		return r.URL.EscapedPath(), true
	case "ip":
		return c.address()
	}
	kind, rest, _ := strings.Cut(name, ".")
	switch kind {
	case "header":
		lines := r.Header[c.guard.header(name, rest)]
		if len(lines) == 0 {
			return "", false
		}
		return lines[0], true
	case "query":
		if c.query == nil {
			c.query = r.URL.Query()
		}
		values := c.query[rest]
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	case "cookie":
		cookie, err := r.Cookie(rest)
		if err != nil {
			return "", false
		}
		return cookie.Value, true
	}
	if c.guard.o.Attribute != nil {
		return c.guard.o.Attribute(r, name)
	}
	return "", false
}

// address returns the text of the client's address.
func (c *call) address() (string, bool) {
	if !c.ipKnown {
		c.ipKnown = true
		addr, ok := c.guard.client.Addr(c.request)
		if c.hasIP = ok; ok {
			if c.ip, ok = peerText(c.request.RemoteAddr, addr); !ok {
				c.ip = addr.String()
			}
		}
	}
	return c.ip, c.hasIP
}

// header returns the name of a header as [http.Header] keeps it. Names come
// from rules, so they are few.
func (g *ruled) header(attribute, name string) string {
	names := g.names.Load()
	if known, ok := (*names)[attribute]; ok {
		return known
	}
	canonical := http.CanonicalHeaderKey(name)
	if more := make(map[string]string, len(*names)+1); len(*names) < mostKnown {
		for k, v := range *names {
			more[k] = v
		}
		more[attribute] = canonical
		g.names.CompareAndSwap(names, &more)
	}
	return canonical
}
