package httplimit

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
)

// A Transport makes HTTP requests at the pace that Limiter sets and servers ask for. Put it
// into an [http.Client]; the zero value keeps to what servers say.
//
// Each request waits under Limiter. When a server says that nothing remains until a time, or
// to retry after one, requests of the same key wait until then, so that no 429 comes;
// requests without an answer yet are subtracted from what the server says remains. A 429, or
// a 503 with Retry-After, is retried if the request can be repeated: its method is idempotent
// or it has an Idempotency-Key, and its body can be read again (GetBody).
//
// All waits end with the request's context. If a wait would last beyond its deadline, the
// request fails at once with a [*LimitedError], and is not sent.
//
// A Transport does not change requests, and closes the bodies of answers that it retries. It
// may be used from many goroutines at once, and must not be copied. It keeps some hundred
// bytes for each key that it knows something about.
type Transport struct {
	// Base makes the requests. The default is [http.DefaultTransport].
	Base http.RoundTripper
	// Limiter has the limits of this program. By default there are none.
	Limiter *stint.Limiter
	// Key says which requests share a limit, both Limiter's and the server's. The default,
	// also for requests without a key, is the host with its port.
	Key Key
	// Cost returns how many units of Limiter a request takes. The default is
	// 1.
	Cost func(*http.Request) int64
	// MaxRetries is how often a request is repeated at most. The default value is 2; a
	// negative value means never.
	MaxRetries int
	// MaxPause is the longest pause that a server can ask for. After so long, a request is
	// tried even if the server asked for more. The default value is 1 hour.
	MaxPause time.Duration

	mu      sync.Mutex
	peers   map[string]*peer
	sweepAt int    // how many peers there may be before the next sweep
	events  uint64 // counts answers, to tell which came before a request was sent
}

// A LimitedError says that a request was not sent, because it would have had to wait beyond
// its context's deadline, or for ever.
type LimitedError struct {
	// Key is the key whose requests share the limit.
	Key string
	// RetryAfter is how long the wait would have been, or [stint.Never].
	RetryAfter stint.Wait
	// Server reports whether the server asked for the wait; else Limiter did.
	Server bool
	// Err is a [*stint.WaitError] if Limiter asked for the wait, else
	// context.DeadlineExceeded.
	Err error
}

// Error names the limits that hold the request, its key and the wait.
func (e *LimitedError) Error() string {
	return guard.NotSent("httplimit", "requests", e.Key, e.RetryAfter, e.Server)
}

// Unwrap returns Err, which matches context.DeadlineExceeded unless the cost can
// never pass.
func (e *LimitedError) Unwrap() error { return e.Err }

// Timeout reports whether more time would have helped, as [net.Error] has it.
func (e *LimitedError) Timeout() bool { return e.RetryAfter != stint.Never }

const (
	defaultRetries = 2
	defaultPause   = time.Hour
	firstBackoff   = time.Second // the pause after a 429 that asks for none
	fewPeers       = 1024
	mostDrained    = 4 << 10 // bytes of a body that are read so that the connection can be used again
)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, retries := t.key(req), t.MaxRetries
	if retries == 0 {
		retries = defaultRetries
	}
	attempt := req
	for try := 0; ; try++ {
		sent, err := t.waitToSend(req, key)
		if err != nil {
			if try == 0 && req.Body != nil {
				_ = req.Body.Close() // as RoundTrippers must; it was not read
			}
			return nil, err
		}
		if try > 0 {
			if attempt, err = again(req); err != nil {
				t.leave(key, sent, nil, try)
				return nil, err
			}
		}
		resp, err := t.base().RoundTrip(attempt)
		pause := t.leave(key, sent, resp, try)
		if err != nil || pause == 0 || try >= retries || !replayable(req) {
			return resp, err
		}
		if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) < pause {
			return resp, nil
		}
		discard(resp)
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) key(req *http.Request) string {
	if t.Key != nil {
		if key, ok := t.Key(req); ok {
			return key
		}
	}
	return strings.ToLower(req.URL.Host)
}

func replayable(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
	default:
		if req.Header.Get("Idempotency-Key") == "" && req.Header.Get("X-Idempotency-Key") == "" {
			return false
		}
	}
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

func again(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// discard closes the body of an answer that nobody will read. It reads a short body first, so
// that the connection can be used again.
func discard(resp *http.Response) {
	if resp.ContentLength >= 0 && resp.ContentLength <= mostDrained {
		_, _ = io.CopyN(io.Discard, resp.Body, mostDrained) // else the connection ends
	}
	_ = resp.Body.Close() // an error does not matter
}

// waitToSend returns when the request may be sent, and counts it as sent. It waits for the
// server first and for Limiter after that: a request that waits for the server is not charged
// meanwhile, so that the end of a pause brings no burst.
func (t *Transport) waitToSend(req *http.Request, key string) (sent uint64, err error) {
	ctx := req.Context()
	cost := int64(1)
	if t.Cost != nil {
		cost = t.Cost(req)
	}
	for {
		if err := t.pause(ctx, key); err != nil {
			return 0, err
		}
		if t.Limiter != nil {
			if err := t.Limiter.Wait(ctx, key, cost); err != nil {
				var early *stint.WaitError
				if errors.As(err, &early) {
					d := early.Decision
					wait := d.RetryAfter
					if wait != stint.Never {
						wait = max(wait, stint.Wait(d.Delay))
					}
					err = &LimitedError{Key: key, RetryAfter: wait, Err: err}
				}
				return 0, err
			}
		}
		if sent, ok := t.enter(key); ok {
			return sent, nil
		}
		if t.Limiter != nil { // the server has asked for a pause meanwhile
			if _, err := t.Limiter.Refund(ctx, key, cost); err != nil {
				return 0, err
			}
		}
	}
}

// A peer is what is known about the server of a key.
type peer struct {
	pause   time.Time     // no request may be sent before
	low     int64         // what the latest answer said to remain
	until   time.Time     // until when low must last; zero if not known
	asOf    uint64        // the number of that answer
	flying  int64         // requests without an answer
	waiting int           // goroutines that hold on to the peer
	changed chan struct{} // closed when any of this changes; nil without waiters
}

// closed returns until when no request may be sent, zero if one may now. sure says that no
// answer that is still to come can shorten that.
func (p *peer) closed(now time.Time) (until time.Time, sure bool) {
	if now.Before(p.pause) {
		until, sure = p.pause, true
	}
	if now.Before(p.until) && p.low-p.flying <= 0 && p.until.After(until) {
		until, sure = p.until, p.low <= 0
	}
	return until, sure
}

func (p *peer) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// peer returns the peer of a key. t.mu is held.
func (t *Transport) peer(key string) *peer {
	p := t.peers[key]
	if p == nil {
		if len(t.peers) >= t.sweepAt {
			t.sweep()
		}
		p = &peer{}
		t.peers[key] = p
	}
	return p
}

// sweep drops the peers about which nothing needs to be known. It is called each time their
// number has doubled. t.mu is held.
func (t *Transport) sweep() {
	if t.peers == nil {
		t.peers = make(map[string]*peer)
	}
	now := time.Now()
	for key, p := range t.peers {
		t.drop(key, p, now)
	}
	t.sweepAt = max(2*len(t.peers), fewPeers)
}

// drop forgets a peer if nothing needs to be known about it. t.mu is held.
func (t *Transport) drop(key string, p *peer, now time.Time) {
	if p.flying == 0 && p.waiting == 0 && !now.Before(p.pause) && !now.Before(p.until) {
		delete(t.peers, key)
	}
}

// pause returns when the server lets a request pass.
func (t *Transport) pause(ctx context.Context, key string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.mu.Lock()
		now := time.Now()
		p := t.peers[key]
		if p == nil {
			t.mu.Unlock()
			return nil
		}
		until, sure := p.closed(now)
		if until.IsZero() {
			t.drop(key, p, now)
			t.mu.Unlock()
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && sure && deadline.Before(until) {
			t.mu.Unlock()
			return &LimitedError{Key: key, RetryAfter: stint.Wait(until.Sub(now)), Server: true, Err: context.DeadlineExceeded}
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.waiting++
		t.mu.Unlock()
		err := sleep(ctx, until.Sub(now), changed)
		t.mu.Lock()
		p.waiting--
		t.drop(key, p, time.Now())
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// sleep returns after a while, when changed is closed, or with the context's
// error.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// enter counts a request as sent, if the server still lets it pass.
func (t *Transport) enter(key string) (sent uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(key)
	if until, _ := p.closed(time.Now()); !until.IsZero() {
		return 0, false
	}
	p.flying++
	return t.events, true
}

// leave takes note of an answer; resp is nil if there is none. It returns how long to wait
// before a retry, 0 if the answer must not be retried.
func (t *Transport) leave(key string, sent uint64, resp *http.Response, try int) (pause time.Duration) {
	now := time.Now()
	var s signal
	if resp != nil {
		s = readSignal(resp.Header, now)
		pause = pauseAfter(resp.StatusCode, &s, try)
	}
	longest := t.MaxPause
	if longest <= 0 {
		longest = defaultPause
	}
	pause = min(pause, longest)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events++
	p := t.peer(key)
	p.flying--
	if s.hasQuota && s.reset > 0 {
		until := now.Add(min(s.reset, longest))
		// An answer replaces what was known before its request was sent. Of requests that
		// were under way together, the answer with the least remaining is the latest.
		if !now.Before(p.until) || sent >= p.asOf || s.remaining <= p.low {
			p.low, p.until, p.asOf = s.remaining, until, t.events
		}
	}
	if end := now.Add(pause); pause > 0 && end.After(p.pause) {
		p.pause = end
	}
	p.wake()
	t.drop(key, p, now)
	if resp != nil && retriable(resp.StatusCode, &s) {
		return max(pause, 1)
	}
	return 0
}

// retriable reports whether the server asks to repeat the request later.
func retriable(status int, s *signal) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && s.hasRetry
}

// pauseAfter returns how long an answer asks us to send no request. Retry-After precedes what
// the quota says.
func pauseAfter(status int, s *signal, try int) time.Duration {
	switch {
	case s.hasRetry && (retriable(status, s) || status == http.StatusForbidden): // GitHub answers 403
		return s.retry
	case status != http.StatusTooManyRequests:
		return 0
	case s.hasQuota && s.reset > 0:
		return s.reset
	}
	backoff := firstBackoff << min(try, 6)
	return backoff + rand.N(backoff/2)
}
