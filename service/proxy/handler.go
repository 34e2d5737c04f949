// Package proxy is a reverse proxy that holds its clients to the rules of a
// rules file: the engine of stint in front of any HTTP or gRPC server.
//
// A [Handler] decides and forwards; [Serve] runs it on a listener until its context
// ends, and then lets the requests in flight finish.
//
// # Guarantees
//
// A denied request never reaches the upstream, and a request that passes was charged
// before it did. The upstream learns about a client what this connection knows and
// trusted proxies said, never what the client claims. A request that servers
// read in different ways is refused, or sent on in the one form that the rules
// decided by. Clients learn nothing about the upstream except that it did not
// answer, and no key or address of a client is in the log.
package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// Options say what a Handler does. Upstream, Source, Observer and
// Log must be given.
type Options struct {
	// Upstream is the server behind, http or https; its path is put before
	// that of each request. With the scheme unix, its path is a Unix socket, on which
	// the server speaks http.
	Upstream *url.URL
	// UpstreamHost sends the upstream its own name as Host. The default value
	// keeps the Host that the client asked for.
	UpstreamHost bool
	// Source has the rules.
	Source *rules.Source
	// Upgrades are the protocols that a client may change to. The default value
	// is websocket alone.
	Upgrades []string
	// Underscores lets headers pass whose names have an underscore. The default
	// is that they are dropped: many servers take them for the ones with
	// hyphens.
	Underscores bool
	// BodyStall is how long a client may send nothing of a body, and BodyRate
	// the least rate of bodies, in bytes a second. The default values are 20 s
	// and 500; a negative rate is no bound.
	BodyStall time.Duration
	BodyRate  int64
	// MaxInFlight is how many requests may wait for the upstream to begin its
	// answer; further ones are answered 503, undecided unless many come at one moment. While one
	// waits for its own client to send its body, it counts of its address alone. The default
	// value is 1000; a negative one is no bound.
	MaxInFlight int
	// MaxInFlightPerAddress is how many of these requests one client's address, or one /64 of IPv6,
	// may have. A trusted proxy that names no client may have all. The default is a quarter of what
	// is free.
	MaxInFlightPerAddress int
	// MaxWaiting is how many requests may wait for their turn under the rules, or for a
	// decision, and how many calls of gRPC may be open; further ones are answered 503.
	// Also, how many requests may hold a place in flight after they have been cancelled; those
	// beyond hold none. One address may have a quarter of what is free. The default value is
	// 10,000.
	MaxWaiting int
	// MaxLag is how long a request may have been unread. Beyond it, its client has likely given up,
	// and the answer is 503. The default value is 1 s; a negative one is no bound.
	MaxLag time.Duration
	// Requests bounds the requests that hold a connection to the upstream, and the
	// connections; further ones are answered 503. The default is no bound.
	Requests *server.Requests
	// Client says which proxies in front are trusted, and in which header they name their clients.
	// The default value trusts no proxy.
	Client httplimit.ClientIP
	// Claims verifies tokens for rules by jwt.NAME. The default is that no request has
	// claims.
	Claims *claims.Source
	// Observer counts and logs decisions.
	Observer *observe.Observer
	// Log receives failures, without keys or addresses of clients.
	Log *slog.Logger
	// Transport reaches the upstream. The default goes straight to it,
	// whatever HTTP_PROXY says, and speaks HTTP/2 to it for gRPC calls.
	Transport http.RoundTripper
}

// A Handler limits requests and passes the rest on. It may be used from many
// goroutines at once.
type Handler struct {
	o     Options
	log   *log.Logger // leaves addresses out
	guard http.Handler
	holds atomic.Pointer[holding]
	own   *transport // nil if Options had one

	target *url.URL // where requests go

	hop     []string    // the name of this proxy in Cdn-Loop
	pending server.Load // requests that the upstream has not begun to answer
	waiting server.Load // requests that are not decided, or wait for their turn
	calls   server.Load // calls of gRPC that are open
	held    server.Load // requests that have been cancelled and hold their places
	bodies  server.Load // bytes of bodies that are held until the decision
	sampled *slog.Logger

	reserved server.Load // reservations that requests have open

	unlisted unlisted

	passed, denied, refused atomic.Int64
}

func (o *Options) fill() {
	o.BodyStall = cmp.Or(o.BodyStall, defaultStall)
	o.BodyRate = cmp.Or(o.BodyRate, defaultRate)
	if o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultInFlight); o.MaxInFlight < 0 {
		o.MaxInFlight = math.MaxInt
	}
	o.MaxWaiting = cmp.Or(o.MaxWaiting, defaultWaiting)
	o.MaxLag = cmp.Or(o.MaxLag, defaultLag)
	if o.Upgrades == nil {
		o.Upgrades = []string{"websocket"}
	}
}

// flushAfter is how long a piece of an answer may wait for the next one, so that the answer of a slow
// upstream begins when the upstream does. Answers of unknown length do not wait.
const flushAfter = 100 * time.Millisecond

// entrypoint is the name under which decisions are counted.
const entrypoint = "proxy"

// NewHandler returns a Handler. Close releases its connections. The error
// says what is missing.
func NewHandler(o Options) (*Handler, error) {
	h := &Handler{o: o, hop: []string{"stint-" + strings.ToLower(rand.Text())}, log: server.ErrorLog(o.Log), sampled: server.SampleLog(o.Log)}
	h.o.fill()
	h.bound()
	h.o.Observer.WatchWaiting(h.waiting.Count)
	h.target = o.Upstream
	socket := ""
	if o.Upstream.Scheme == "unix" {
		h.target, socket = &url.URL{Scheme: "http", Host: "localhost"}, o.Upstream.Path
	}
	if o.Transport == nil {
		h.own = newTransport(o.Requests, socket)
		h.o.Transport = h.own
	}
	behind := &httputil.ReverseProxy{
		Transport:    asking{h.o.Transport, h.pending},
		Rewrite:      h.rewrite,
		ErrorHandler: h.badGateway,
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode < 100 { // net/http panics at it
				return fmt.Errorf("the status %d", r.StatusCode)
			}
			if r.StatusCode == http.StatusSwitchingProtocols {
				visitOf(r.Request).switches(r.Header)
			}
			return nil
		},
		FlushInterval: flushAfter,
		ErrorLog:      h.log,
		BufferPool:    &buffers{},
	}
	guard, err := httplimit.NewPolicyFunc(o.Source.Policy, o.Client, httplimit.Options{
		OnDecision:   h.decided,
		OnSettlement: func(_ *http.Request, r *policy.Result) { h.o.Observer.Settled(entrypoint, r) },
		OnError:      h.failed,
		Answered:     func(r *http.Request) bool { return visitOf(r).finish.answered },
		Reserves:     func(r *http.Request, open int) error { return visitOf(r).reserves(open) },
		Claim:        func(r *http.Request, name string) (string, bool, bool) { return visitOf(r).claims.Claim(name) },
	})
	if err != nil {
		return nil, err
	}
	h.guard = guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := visitOf(r)
		v.decided()
		leave, why := h.enter(r)
		if why != "" {
			h.shed(w, r, why)
			return
		}
		h.passed.Add(1)
		if v.asks && v.hides != nil {
			r = v.askUsage(r)
		}
		r, end := v.goOn(r)
		out := relay(fullDuplex(w, r))
		v.fields = w.Header()
		defer func() {
			out.flushCut()
			leave() // what end waits for takes no connection
			end(out)
		}()
		behind.ServeHTTP(out, r)
		if out.ended = true; v.finish.lost {
			panic(http.ErrAbortHandler) // or the client would take what it got for the whole
		}
	}))
	return h, nil
}

// bound makes the bounds of what requests take.
func (h *Handler) bound() {
	trusted := h.o.Client.Trusted
	h.pending = server.NewLoad(h.o.MaxInFlight, h.o.MaxInFlightPerAddress, trusted)
	h.waiting = server.NewShares(h.o.MaxWaiting, waitingParts, trusted,
		"as many requests wait for their turn as may", "as many requests of its address wait for their turn as may")
	h.calls = server.NewShares(h.o.MaxWaiting, waitingParts, trusted,
		"as many calls of gRPC are open as may be", "as many calls of gRPC of its address are open as may be")
	h.held = server.NewShares(h.o.MaxWaiting, waitingParts, trusted, "full", "full") // nobody is told
	h.bodies = server.NewShares(mostBodies, bodiesParts, trusted, string(errRoom), string(errOwnRoom))
	h.reserved = server.NewShares(memstore.DefaultReservations, reservedParts, trusted,
		"as many reservations are open as may be", "as many reservations of its address are open as may be")
}

// Close closes idle connections to the upstream.
func (h *Handler) Close() {
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
}

// ServeHTTP passes the request on if the rules let it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer answered(r.Context())
	r, v := h.visit(w, r)
	defer v.end()
	if why := h.overloaded(r); why != "" {
		h.shed(w, r, why)
		return
	}
	p := h.o.Source.Policy()
	plain, err := h.clean(p.Rules(), r)
	if err == nil {
		plain, err = h.hold(p, plain)
	}
	if h.holding(p).goOn {
		v.finish.client, w = r.Context(), leftWriter{w, v}
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if !h.holding(p).asks {
		h.guard.ServeHTTP(w, plain)
		return
	}
	v.hides = &hidingWriter{ResponseWriter: w}
	defer v.hides.end() // where the response is cut, too: what has come passes
	h.guard.ServeHTTP(v.hides, plain)
}

// refuse answers a request that has no clean form, or whose body did not come.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadRequest
	if f, ok := errors.AsType[fault](err); ok {
		status = f.HTTPStatus()
	}
	if status == http.StatusServiceUnavailable {
		h.shed(w, r, err.Error())
		return
	}
	if errors.Is(err, errLoop) {
		h.sampled.Warn("a request came around: the server behind leads back to this proxy", "upstream", h.o.Upstream.Redacted())
	}
	h.failed(r, err)
	answer(w, r, status, err.Error())
}

func (h *Handler) decided(r *http.Request, o httplimit.Outcome) {
	if !o.Decision.Allowed {
		h.denied.Add(1)
	} else if v := visitOf(r); v.finish.client != nil { // nil also if rules changed since ServeHTTP looked
		v.finish.within = o.Rules.Finish()
		if v.finish.counts = o.Rules.Counts(); v.finish.within == 0 && v.finish.counts {
			v.finish.within, v.finish.status = statusWithin, true
		}
	}
	visitOf(r).asks = o.Decision.Allowed && o.Rules.AsksUsage()
	h.o.Observer.Decided(entrypoint, o.Rules, observe.Request{Took: o.Took, Waited: o.Waited, Header: r.Header})
}

func (h *Handler) failed(_ *http.Request, err error) {
	if errors.Is(err, httplimit.ErrSettle) {
		h.sampled.Warn("a response did not change what its request was charged", "error", server.Redact(err.Error()))
		return
	}
	if f, ok := errors.AsType[fault](err); errors.Is(err, stint.ErrFull) || ok && f.HTTPStatus() == http.StatusServiceUnavailable {
		h.noteShed(err.Error())
		return
	}
	h.o.Observer.Failed(entrypoint, err)
}

// badGateway answers in place of an upstream that did not.
func (h *Handler) badGateway(w http.ResponseWriter, r *http.Request, err error) {
	if f, ok := bodyFault(r); ok {
		h.refuse(w, r, f)
		return
	}
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		answer(w, r, http.StatusServiceUnavailable, "the request was given up")
		return
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		answer(w, r, http.StatusRequestEntityTooLarge, "the request is too large")
		return
	}
	if b, ok := errors.AsType[busy](err); ok {
		h.shed(w, r, b.Error())
		return
	}
	h.sampled.Warn("the server behind did not answer", "upstream", h.o.Upstream.Redacted(), "error", server.Redact(err.Error()))
	answer(w, r, http.StatusBadGateway, "the server behind did not answer")
}

// answer answers in place of the upstream: a gRPC call with headers alone, since
// its clients read no other status.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if isGRPC(r.Header) {
		code := "14" // UNAVAILABLE
		switch v := visitOf(r); {
		case status < http.StatusInternalServerError:
			code = "3" // INVALID_ARGUMENT
		case r.Context().Err() != nil:
			code = "1" // CANCELLED
		case v != nil && time.Since(v.began) >= request.CallTimeout(r.Header):
			code = "4" // DEADLINE_EXCEEDED: servers end a call at about the deadline of its client
		}
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", code)
		h.Set("Grpc-Message", "stint: "+text)
		w.WriteHeader(http.StatusOK)
		return
	}
	text = "stint: " + text + "\n"
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that has gone has no use for it
}

// isGRPC reports whether a request is a gRPC call. gRPC-Web is not.
func isGRPC(h http.Header) bool {
	lines := h["Content-Type"]
	return len(lines) > 0 && request.IsGRPC(lines[0])
}

// Counts returns how many requests were passed on and how many denied.
func (h *Handler) Counts() (passed, denied int64) { return h.passed.Load(), h.denied.Load() }

// Shed returns how many requests were refused since too much was going on: at once, undecided, or else
// when the upstream was to be asked, and these passed, too.
func (h *Handler) Shed() int64 { return h.refused.Load() }
