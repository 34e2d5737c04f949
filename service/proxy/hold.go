package proxy

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/server"
)

// maxHeld bounds the body of a request that is read before it queues, in
// bytes.
const maxHeld = 64 << 10

// Bounds of the bodies that are read for rules, in bytes. HTTP/2 has many requests on a
// connection, of which each may send a body that never ends.
const (
	mostRead    = 1 << 20 // what is read of one
	mostBodies  = 256 << 20
	bodiesOfOne = mostBodies / 4
)

// holding is what requests may wait for under a policy.
type holding struct {
	policy *policy.Policy
	queues bool
	bodies bool // rules look into bodies
}

// take counts a body that rules may read, until they have decided, when give is called. It
// reports false where there is no room for another. What passes on is bounded by how many
// requests wait for the upstream.
func (h *Handler) take(p *policy.Policy, r *http.Request, body *pacedBody) (give func(), ok bool) {
	if body == nil || !h.holding(p).bodies {
		return func() {}, true
	}
	n := int64(mostRead)
	if r.ContentLength >= 0 {
		n = min(r.ContentLength, n)
	}
	give, ok = h.bodies.Take(server.AddressOf(r.RemoteAddr), int(n))
	body.decided = give
	return give, ok
}

// hold returns the request, with its body read where it may have to wait and
// the body is short: net/http notices that a client has gone only once it has
// read the body to its end. A client with a longer body keeps its place until
// its turn. HTTP/2 needs none of this.
func (h *Handler) hold(p *policy.Policy, r *http.Request) (*http.Request, error) {
	if r.ProtoMajor > 1 || r.ContentLength < 1 || r.ContentLength > maxHeld || !h.holding(p).queues || r.Header["Expect"] != nil {
		return r, nil
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

// holding looks through the rules once for each policy. They queue if a leaky_queue is among
// the limits that they enforce.
func (h *Handler) holding(p *policy.Policy) *holding {
	known := h.holds.Load()
	if known == nil || known.policy != p {
		known = &holding{policy: p}
		known.bodies = slices.ContainsFunc(p.Rules().Attributes(), func(name string) bool { return strings.HasPrefix(name, "body.") })
		for _, name := range p.Rules().Names() {
			for _, l := range p.Rules().Limits(name) {
				known.queues = known.queues || !l.Shadow && l.Action == "" && l.Limit.Algorithm() == meter.LeakyQueue
			}
		}
		h.holds.Store(known)
	}
	return known
}
