// Package proxy is a reverse proxy that holds its clients to limits: the
// engine of stint in front of any HTTP server.
//
// A [Handler] decides; [Serve] runs it on a listener until told to stop, and
// then lets the requests in flight finish.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// Options say what a Handler does.
type Options struct {
	// Upstream is the server behind, http or https; its path is put before
	// that of each request.
	Upstream *url.URL
	// UpstreamHost sends the upstream its own name as Host. The default keeps
	// the Host that the client asked for.
	UpstreamHost bool
	// Limiter decides, one unit a request. Requests wait for their turn under
	// a leaky_queue, and are denied at once under any other kind.
	Limiter *stint.Limiter
	// Key names the client of a request.
	Key KeyFunc
	// Log takes what goes wrong; never a client's key or address.
	Log *slog.Logger
	// Transport reaches the upstream. The default goes straight to it,
	// whatever HTTP_PROXY says.
	Transport http.RoundTripper
}

// A Handler limits requests and passes the rest on. It may be used from many
// goroutines at once.
type Handler struct {
	gate  *gate
	key   KeyFunc
	log   *slog.Logger
	proxy *httputil.ReverseProxy
	own   *http.Transport // when Options had none

	passed, denied, gone atomic.Int64
}

// NewHandler returns a Handler. Close lets go of its connections.
func NewHandler(o Options) *Handler {
	h := &Handler{gate: newGate(o.Limiter), key: o.Key, log: o.Log}
	if o.Transport == nil {
		h.own = newTransport()
		o.Transport = h.own
	}
	h.proxy = &httputil.ReverseProxy{
		Transport:    o.Transport,
		Rewrite:      func(pr *httputil.ProxyRequest) { rewrite(pr, o.Upstream, o.UpstreamHost) },
		ErrorHandler: h.badGateway,
		ErrorLog:     quietLog(o.Log),
	}
	return h
}

// newTransport returns the side towards the upstream, with answers passed on
// as they are encoded, and no limit on how long an answer takes, since it may
// be a long poll.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DisableCompression = true
	t.MaxIdleConns = 512
	t.MaxIdleConnsPerHost = 256 // there is one host
	return t
}

// rewrite aims a request at the upstream. X-Forwarded-For, -Host and -Proto
// are those of this connection: what the client claimed was dropped before.
func rewrite(pr *httputil.ProxyRequest, upstream *url.URL, upstreamHost bool) {
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // nothing is decided by the query: pass it on as it is
	pr.SetURL(upstream)
	if !upstreamHost {
		pr.Out.Host = pr.In.Host
	}
	pr.SetXForwarded()
}

// Close closes idle connections to the upstream.
func (h *Handler) Close() {
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
}

// ServeHTTP passes the request on if its client has room.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, d, err := h.gate.pass(r, h.key(r))
	switch {
	case errors.Is(err, errBody):
		h.gone.Add(1)
		plain(w, http.StatusBadRequest, errBody.Error())
	case err != nil && r.Context().Err() != nil:
		h.gone.Add(1)
		plain(w, http.StatusServiceUnavailable, "the request was given up before its turn")
	case err != nil:
		h.log.Error("could not decide", "error", err)
		plain(w, http.StatusServiceUnavailable, "no decision could be made about this request")
	case !d.Allowed:
		h.denied.Add(1)
		h.deny(w, d)
	default:
		h.passed.Add(1)
		h.proxy.ServeHTTP(w, r)
	}
}

// A problem is the body of a denial, by RFC 9457 and
// draft-ietf-httpapi-ratelimit-headers.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Policies []string `json:"violated-policies"`
}

// deny answers 429, with the wait in whole seconds rounded up, so that who
// waits as long passes; without one when no wait would help.
func (h *Handler) deny(w http.ResponseWriter, d stint.Decision) {
	p := problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Quota Exceeded",
		Status:   http.StatusTooManyRequests,
		Policies: []string{},
	}
	limits := h.gate.limits
	for i := range d.Denied.Layers() {
		if i < len(limits) {
			p.Policies = append(p.Policies, limits[i].Name())
		}
	}
	body, err := json.Marshal(p)
	if err != nil {
		h.log.Error("could not write a denial", "error", err)
	}
	if s := d.RetryAfter.Seconds(); s >= 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(max(s, 1), 10))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone has no use for it
}

// badGateway answers for an upstream that did not.
func (h *Handler) badGateway(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		plain(w, http.StatusServiceUnavailable, "the request was given up")
		return
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		plain(w, http.StatusRequestEntityTooLarge, "the request is too large")
		return
	}
	h.log.Error("upstream", "error", redact(err.Error()))
	plain(w, http.StatusBadGateway, "the server behind did not answer")
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("stint: " + text + "\n")) // a client that has gone has no use for it
}

// Counts returns how many requests were passed on, denied, and given up by
// their clients while they waited.
func (h *Handler) Counts() (passed, denied, gone int64) {
	return h.passed.Load(), h.denied.Load(), h.gone.Load()
}
