package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/server"
)

// Bounds of what waits for a decision, or for its turn under one. HTTP/2 has many requests
// on a connection. Of each bound, one address may have a part of what is free.
const (
	// defaultWaiting is how many requests there may be, and calls of gRPC that are open.
	defaultWaiting = 10_000
	waitingParts   = 4
	// mostBodies is how much there may be of their bodies, in bytes.
	mostBodies  = 256 << 20
	bodiesParts = 16
	// maxHeld bounds the body of a request that is read so that its client is noticed when
	// it goes, in bytes.
	maxHeld = 64 << 10
)

// A visit is a request on its way, until its answer has ended.
type visit struct {
	h      *Handler
	from   server.Address // whom it counts for: the client, also behind a trusted proxy
	body   *pacedBody     // nil if it has none
	claims claims.Reader
	counts bool // among those that wait
	finish finish

	hides *hidingWriter // nil where no rule may ask for usage
	asks  bool          // one does

	hungUp func() (bool, bool) // whether the client has; nil where that need not be asked
	turn   chan struct{}       // closed when it need not be asked any more
	cancel context.CancelFunc
}

type visitKey struct{}

// visit begins one, and returns the request with it.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request) (*http.Request, *visit) {
	v := &visit{h: h, body: h.paced(w, r), claims: claims.Reader{Source: h.o.Claims, Header: r.Header}}
	if addr, ok := h.o.Client.Addr(r); ok {
		v.from = server.AddressAt(addr)
		if len(r.Header[forwardedFor]) > 0 {
			h.unlisted.note(&h.o, addr, v.from == server.AddressOf(r.RemoteAddr))
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if v.body != nil {
		v.body.from = v.from
		r.Body = v.body
	}
	return r, v
}

// visitOf returns the visit of a request; nil if it has none.
func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// decided ends what holds until a request may go on, or cannot.
func (v *visit) decided() {
	v.body.decided()
	if v.counts {
		v.counts = false
		v.h.waiting.Add(v.from, -1)
	}
	if v.turn != nil {
		close(v.turn)
		v.turn = nil
		if gone, ok := v.hungUp(); ok && gone {
			v.cancel()
		}
	}
}

// end is called when the answer has ended.
func (v *visit) end() {
	v.decided()
	v.body.release()
	if v.cancel != nil {
		v.cancel()
	}
}

// holding is what requests may wait for under a policy.
type holding struct {
	policy *policy.Policy
	waits  bool // rules may let requests wait
	asks   bool // rules may ask for usage
	goOn   bool // rules may let requests go on behind their clients
	bodies bool // rules look into bodies, but for those in shadow, which look into small ones
}

// holding looks through the rules once for each policy. They let requests wait if they
// enforce a leaky_queue, or wait for room in flight.
func (h *Handler) holding(p *policy.Policy) *holding {
	known := h.holds.Load()
	if known == nil || known.policy != p {
		known = &holding{policy: p}
		known.bodies = slices.ContainsFunc(p.Rules().Enforced(), func(name string) bool { return request.Of(name).Kind == request.Body })
		for _, rule := range p.Rules().File().Rules() {
			known.waits, known.goOn = known.waits || rule.Wait > 0, known.goOn || rule.Finish > 0
			known.asks = known.asks || !rule.Shadow && rule.Response != nil && rule.Response.AskUsage
			for _, l := range p.Rules().Limits(rule.Name) {
				known.waits = known.waits || !l.Shadow && l.Action == "" && l.Limit.Algorithm().Queues()
			}
		}
		h.holds.Store(known)
	}
	return known
}

// hold returns a request that may have to wait so that its client is noticed when it goes:
// net/http does so once it has read the body to its end, so a short one is read, and for
// the others the system is asked. HTTP/2 needs none of this. What is read of a body before
// the decision counts.
func (h *Handler) hold(p *policy.Policy, r *http.Request) (*http.Request, error) {
	v, may := visitOf(r), h.holding(p)
	if v.body == nil || !may.bodies && !may.waits {
		return r, nil
	}
	v.body.room = &h.bodies
	if !may.waits || r.ProtoMajor > 1 {
		return r, nil
	}
	if r.ContentLength < 0 || r.ContentLength > maxHeld || r.Header["Expect"] != nil {
		return v.watch(r), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		if failed, ok := bodyFault(r); ok {
			return r, failed
		}
		return r, errBroken
	}
	r = r.WithContext(r.Context()) // a copy: a handler leaves its request as it is
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, nil
}

// watchEvery is how often a client is looked after while its request waits.
const watchEvery = 250 * time.Millisecond

// watch returns the request with a context that ends when its client has hung up while it
// waits. The client's own end of the connection counts, as net/http has it elsewhere.
func (v *visit) watch(r *http.Request) *http.Request {
	c, ok := r.Context().Value(clientConnKey{}).(*clientConn)
	if !ok || c.hungUp == nil {
		return r
	}
	ctx, cancel := context.WithCancel(r.Context())
	turn := make(chan struct{})
	v.hungUp, v.turn, v.cancel = c.hungUp, turn, cancel
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-turn:
				return
			case <-tick.C:
			}
			if gone, ok := c.hungUp(); ok && gone {
				cancel()
				return
			}
		}
	}()
	return r.WithContext(ctx)
}
