package server

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/observe"
)

// maxDelay is how long rules may delay a request, well below ServeOptions.WriteTimeout.
// A request that would wait longer is denied.
const maxDelay = 5 * time.Second

// mostWaiting is how many requests of /auth may be undecided or wait. One client's address may have a
// quarter of what is free, whatever their keys.
const (
	mostWaiting  = 10_000
	waitingParts = 4
)

// auth answers a proxy that asks whether it may let a request pass. A denial has
// the status deny, unless that is 0.
func (h *Handler) auth(w http.ResponseWriter, r *http.Request, deny int) {
	o, refused := h.original(r)
	if refused != nil {
		h.o.Observer.Failed(authDoor, refused)
		h.sampled.Warn("a proxy's question was refused: it is not set up as docs/SERVE.md says", "why", refused.detail)
		refused.write(w)
		return
	}
	addr, _, _ := o.Client()
	from := AddressAt(addr)
	if why := h.waiting.Take(from, 1); why != "" {
		h.o.Observer.Overloaded(authDoor)
		h.sampled.Warn("a request was refused at once", "why", why)
		w.Header().Set("Retry-After", "1")
		(&problem{status: http.StatusServiceUnavailable, detail: why}).deny(w, deny)
		return
	}
	defer h.waiting.Add(from, -1)
	c := h.calls.Get().(*call)
	defer h.release(c)
	c.policy = h.o.Source.Policy()
	began := time.Now()
	var waited time.Duration
	err := h.plain.Check(c.policy.Rules(), o.Request())
	if err == nil {
		err = h.plain.CheckPath(c.policy.Rules(), o.target.Opaque)
	}
	if err == nil {
		ctx, stop := context.WithTimeout(r.Context(), maxDelay)
		waited, err = c.policy.Wait(ctx, o, 1, 0, &c.result)
		stop()
	}
	took := time.Since(began) - waited
	head := w.Header()
	head["Cache-Control"] = noStore
	if err != nil {
		h.fail(authDoor, r, err).deny(w, deny)
		return
	}
	h.o.Observer.Decided(authDoor, &c.result, observe.Request{Took: took, Waited: waited, Header: r.Header})
	if c.result.Decision.Allowed {
		h.o.Dialect.Set(head, &c.result)
		head["Content-Length"] = zero
		return
	}
	denial := h.o.Dialect.Deny(head, &c.result, r.Header.Get("Origin"))
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set(statusField, strconv.Itoa(denial.Cause))
	w.WriteHeader(cmp.Or(deny, denial.Status))
	_, _ = w.Write(denial.Body) // a proxy that has gone needs no answer
}

// statusField has the status of the problem, whatever status the proxy wants to see.
const statusField = "X-RateLimit-Status"

var (
	noStore = []string{"no-store"}
	zero    = []string{"0"}
)

// deny writes the problem with the status that the proxy wants, and its own status in
// X-RateLimit-Status.
func (p *problem) deny(w http.ResponseWriter, status int) {
	w.Header().Set(statusField, strconv.Itoa(p.status))
	status = cmp.Or(status, p.status)
	p.writeAs(w, status)
}

// authPaths are the paths that proxies ask, with the status of a denial; 0 is the
// status of the decision itself. The path decides this, since clients can set the query.
var authPaths = map[string]int{"/auth": 0, "/auth/401": 401, "/auth/403": 403, "/auth/429": 429}

// An original is the request that a proxy asks about. It implements
// policy.Attributes.
type original struct {
	request.HTTP
	claims claims.Reader
	target url.URL // the path is in Opaque: as it was sent
}

var _ policy.Attributes = (*original)(nil)

// The headers in which proxies name the original request. Only one of the two sets
// may be there: a proxy passes on the headers that it does not set, and those are
// whatever the client sent.
var originalHeaders = [2][3]string{
	{"X-Original-Method", "X-Original-Uri", "X-Original-Host"},    // by docs/SERVE.md's snippet for nginx
	{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"}, // by Traefik and Caddy
}

// original reads what a trusted proxy says of the request that it asks about.
func (h *Handler) original(r *http.Request) (*original, *problem) {
	if !h.trusts(r.RemoteAddr) {
		return nil, &problem{status: http.StatusForbidden, detail: "/auth is for proxies that trusted_proxies of the rules file lists, and the peer of this connection is not listed"}
	}
	first, second := originalHeaders[0], originalHeaders[1]
	names := first
	if len(r.Header[first[0]])+len(r.Header[first[1]]) == 0 {
		names = second
	} else if len(r.Header[second[0]])+len(r.Header[second[1]]) > 0 {
		return nil, bad("", "both %s and %s are there: the proxy must set one of them and take the other away", first[1], second[1])
	}
	o, uri := new(original), ""
	for i, to := range []*string{&o.Method, &uri, &o.Host} {
		lines := r.Header[names[i]]
		if len(lines) != 1 || lines[0] == "" {
			return nil, bad("", "want one header %s with what the client asked for", names[i])
		}
		*to = lines[0]
	}
	o.target.Opaque, o.RawQuery, _ = strings.Cut(uri, "?")
	o.URL, o.Header, o.By = &o.target, r.Header, request.Auth
	o.claims = claims.Reader{Source: h.o.Claims, Header: r.Header}
	o.Claim = o.claims.Claim
	o.Client = func() (netip.Addr, string, bool) {
		addr, ok := h.o.Client.Addr(r)
		if !ok || h.o.Client.Trusts(addr) {
			h.sampled.Warn("a proxy named no client at /auth: all its clients share a key", "why", "no address in "+cmp.Or(h.o.Client.Header, "X-Forwarded-For")+" that is not in trusted_proxies")
		}
		return addr, addr.String(), ok
	}
	return o, nil
}

// trusts reports whether the peer of a connection is a trusted proxy.
func (h *Handler) trusts(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return h.o.Client.TrustUnix
	}
	return h.o.Client.Trusts(at.Addr().Unmap().WithZone(""))
}
