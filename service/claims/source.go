package claims

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// Options are the options of a Source.
type Options struct {
	// State is a file that keeps the last keys of a URL across restarts. The default, "", keeps
	// them only in memory.
	State string
	// Transport fetches keys. The default is that of net/http.
	Transport http.RoundTripper
	// Log receives failures, without tokens. The default discards them.
	Log *slog.Logger
}

// A Source verifies the tokens of requests as the rules in force say. Make one with [New]. It may
// be used from many goroutines at once.
type Source struct {
	o      Options
	now    atomic.Pointer[verifier] // nil if the rules do not mention tokens
	counts [outcomes]atomic.Uint64

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when now changes
}

// New returns a Source for rules that do not mention tokens.
func New(o Options) *Source {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Source{o: o, changed: make(chan struct{})}
}

// Use makes the source verify tokens as rules say; nil turns that off. If these rules are in force
// already, their keys stay. Otherwise, the keys of a file are read before Use returns. For a URL,
// the last keys in the state file are used until [Source.Run] has fetched new ones.
func (s *Source) Use(jwt *rulesfile.JWT) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.now.Load()
	if was == nil && jwt == nil || was != nil && reflect.DeepEqual(was.jwt, jwt) {
		return
	}
	var v *verifier
	if jwt != nil {
		v = newVerifier(jwt)
		s.firstKeys(v)
	}
	if v != nil {
		s.o.Log.Info("tokens are verified", "jwks", v.shown(), "issuer", jwt.Issuer, "audience", jwt.Audience, "keys", v.keys.Load() != nil)
	}
	s.now.Store(v)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run keeps the keys of the rules in force up to date, until ctx ends.
func (s *Source) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		v, changed := s.now.Load(), s.changed
		s.mu.Unlock()
		within, stop := context.WithCancel(ctx)
		var beside sync.WaitGroup
		if v != nil {
			beside.Go(func() { s.keep(within, v) })
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
		stop()
		beside.Wait()
	}
}

// Of returns the claims of a request with these headers, and counts the outcome. There are no
// claims without a token, or if it does not verify. known is false if no keys have been read yet.
func (s *Source) Of(h http.Header, now time.Time) (c Claims, known bool) {
	v := s.now.Load()
	if v == nil {
		return nil, true
	}
	token := v.token(h)
	if token == "" {
		return nil, true
	}
	c, o := v.verify(token, now)
	s.counts[o].Add(1)
	return c, o != noKeys
}

// Counts yields how many tokens have had each outcome, by its name. It yields nothing while the
// rules do not mention tokens.
func (s *Source) Counts(yield func(outcome string, n uint64) bool) {
	if s.now.Load() == nil {
		return
	}
	for o, name := range outcomeNames {
		if !yield(name, s.counts[o].Load()) {
			return
		}
	}
}
