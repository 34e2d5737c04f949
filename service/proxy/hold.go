package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/server"
)

// Bounds of the requests that wait for a decision or for their turn. Bounds of connections are not
// enough, since an HTTP/2 connection has many requests. One address may have a part of what is free:
// a quarter, and of the bytes of bodies and of the reservations a sixteenth.
const (
	// defaultWaiting is the most such requests, and the most open gRPC calls.
	defaultWaiting = 10_000
	waitingParts   = 4
	// mostBodies is the most bytes of their bodies.
	mostBodies  = 256 << 20
	bodiesParts = 16
	// reservedParts is for the reservations, of which the store has room for
	// [memstore.DefaultReservations].
	reservedParts = 16
	// maxHeld bounds the body that hold reads, in bytes.
	maxHeld = 64 << 10
)

// A visit is a request from when it comes until its answer has ended.
type visit struct {
	h      *Handler
	began  time.Time
	from   server.Address // whom it counts for: the client, also behind a trusted proxy
	body   *pacedBody     // nil if the request has no body
	claims claims.Reader
	counts bool // it counts among the requests that wait
	finish finish
	tried  bool // it has been given to a connection, without a body

	reserved int // how many reservations it has open

	fields http.Header // of the answer

	hides *hidingWriter // nil if no rule may ask for usage
	asks  bool          // a rule asks for usage
	freed func()        // takes what is held to ask out of the count; may be nil

	hungUp func() (bool, bool) // whether the client has hung up; nil if watch does not run
	turn   chan struct{}       // ends watch when it is closed
	cancel context.CancelFunc
}

type visitKey struct{}

// visit begins a visit, and returns the request with the visit in its context.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request) (*http.Request, *visit) {
	v := &visit{h: h, began: time.Now(), body: h.paced(w, r), claims: claims.Reader{Source: h.o.Claims, Header: r.Header}}
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

func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// switches moves the fields of a 101 to the answer before the connection is taken over: rules settle what
// they say then, and write their own beside them.
func (v *visit) switches(from http.Header) {
	for name, values := range from {
		if name != "Connection" && name != "Upgrade" { // which httputil.ReverseProxy still reads
			v.fields[name] = append(v.fields[name], values...)
			delete(from, name)
		}
	}
}

// decided frees what a request holds until it may go on, or is refused.
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

// reserves notes that the request has so many reservations open, or returns why it may not have more.
func (v *visit) reserves(open int) error {
	more := open - v.reserved
	if more <= 0 {
		v.h.reserved.Add(v.from, more)
	} else if why := v.h.reserved.Take(v.from, more); why != "" {
		return fmt.Errorf("%w: %s", stint.ErrFull, why)
	}
	v.reserved = open
	return nil
}

func (v *visit) end() {
	v.decided()
	_ = v.reserves(0)
	v.body.release()
	if v.freed != nil { // nobody may have read it
		v.freed()
	}
	if v.cancel != nil {
		v.cancel()
	}
}

// holding is what rules of a policy may do with a request.
type holding struct {
	policy *policy.Policy
	waits  bool // let it wait
	asks   bool // ask for usage
	goOn   bool // let it go on after its client has left
	bodies bool // read its body; rules in shadow do not count, since they read only small bodies
}

// holding looks through the rules once for each policy. Rules let requests wait if they enforce a
// leaky_queue, or wait for room in flight.
func (h *Handler) holding(p *policy.Policy) *holding {
	known := h.holds.Load()
	if known == nil || known.policy != p {
		known = &holding{policy: p}
		known.bodies = slices.ContainsFunc(p.Rules().Enforced(), func(name string) bool { return request.Of(name).Kind == request.Body })
		for _, rule := range p.Rules().File().Rules() {
			known.waits, known.goOn = known.waits || rule.Wait > 0, known.goOn || rule.Finish > 0 || rule.Response != nil && rule.Response.Count != nil
			known.asks = known.asks || !rule.Shadow && rule.Response != nil && rule.Response.AskUsage
			for _, l := range p.Rules().Limits(rule.Name) {
				known.waits = known.waits || !l.Shadow && l.Action == "" && l.Limit.Algorithm().Queues()
			}
		}
		h.holds.Store(known)
	}
	return known
}

// hold returns a request whose context ends if its client leaves while the request waits. net/http
// notices that only after it has read the body to its end, so hold reads a short body, and watches the
// connection of any other. HTTP/2 needs neither. What is read before the decision counts in h.bodies.
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
	r = r.WithContext(r.Context()) // a copy: a handler must not change its request
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, nil
}

// watchEvery is how often watch asks whether the client has hung up.
const watchEvery = 250 * time.Millisecond

// watch returns the request with a context that ends when its client hangs up while it waits. A client
// hangs up by closing its own side of the connection, as net/http has it elsewhere. A hang-up is not
// noticed while more of the body is unread than the socket has room for.
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
