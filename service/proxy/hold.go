package proxy

import (
	"bytes"
	"io"
	"net/http"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// maxHeld bounds the body of a request that is read before it queues, in
// bytes.
const maxHeld = 64 << 10

// holding is whether requests may have to wait under a policy.
type holding struct {
	policy *policy.Policy
	queues bool
}

// hold returns the request, with its body read where it may have to wait and
// the body is short: net/http notices that a client has gone only once it has
// read the body to its end. A client with a longer body keeps its place until
// its turn. HTTP/2 needs none of this.
func (h *Handler) hold(p *policy.Policy, r *http.Request) (*http.Request, error) {
	if r.ProtoMajor > 1 || r.ContentLength < 1 || r.ContentLength > maxHeld || !h.queues(p) || r.Header["Expect"] != nil {
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

// queues reports whether a leaky_queue is among the limits that rules enforce.
// It looks through the rules once for each policy.
func (h *Handler) queues(p *policy.Policy) bool {
	known := h.holds.Load()
	if known == nil || known.policy != p {
		known = &holding{policy: p}
		for _, name := range p.Rules().Names() {
			for _, l := range p.Rules().Limits(name) {
				known.queues = known.queues || !l.Shadow && l.Action == "" && l.Limit.Algorithm() == meter.LeakyQueue
			}
		}
		h.holds.Store(known)
	}
	return known.queues
}
