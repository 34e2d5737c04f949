package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
)

// A Pair is a limiter, and the key that a request is counted under in it.
type Pair struct {
	Limiter *stint.Limiter
	Key     Key
}

// NewAll returns middleware that holds each request to several limiters at once, each by a
// key of its own, such as all requests, those of an address and those of a customer. As with
// [stint.All], one decision lets a request pass all of them and charges all, or charges none.
// A guard around a guard would charge the outer one for requests that the inner one denies.
//
// The options are those of [New], without Limits and Costs. Missing says what becomes of a
// request that lacks one of the keys; under MissingSkip the other limiters hold it. Fields
// say how many requests of the same cost remain. The error says what is missing or does not
// go together: the limiters must be on one store, and have no limits in flight and at most
// [stint.MaxLimits] limits together.
//
// Price: that of [New], of the further limiters, and some ten allocations.
func NewAll(o Options, pairs ...Pair) (func(http.Handler) http.Handler, error) {
	if len(pairs) == 0 {
		return nil, errors.New("httplimit: NewAll without a pair of limiter and key")
	}
	if o.Limits != nil || o.Costs != nil {
		return nil, errors.New("httplimit: Limits are in place of those of one limiter, and Costs of a policy's rules: use New, or NewPolicy")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	most := o.MaxWait
	if o.Shadow {
		most = -1
	}
	g := &together{keyed: &keyed{o: o, mark: newMark()}}
	var parts []stint.Part
	var terms []*guard.Terms
	for i, p := range pairs {
		switch {
		case p.Limiter == nil || p.Key == nil:
			return nil, fmt.Errorf("httplimit: pair %d: no limiter, or no key", i)
		case slices.ContainsFunc(pairs[:i], func(q Pair) bool { return q.Limiter == p.Limiter }):
			return nil, fmt.Errorf("httplimit: limiter %q stands in two pairs: give each a limiter of its own, or Join the keys", p.Limiter.Name())
		}
		one := guard.New(p.Limiter, most)
		g.guards, g.keys = append(g.guards, one), append(g.keys, p.Key)
		parts, terms = append(parts, p.Limiter.Key("").Cost(0)), append(terms, one.Terms())
	}
	if err := g.joint(terms).CheckTogether(o.Settle != nil); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if _, err := stint.All(parts...).Peek(context.Background()); err != nil { // a cost of 0 asks no store
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler { return &guardedTogether{guarded{g.keyed, next}, g} }, nil
}

// together is what all handlers of one middleware with several limiters share.
type together struct {
	*keyed
	guards []*guard.Guard
	keys   []Key
	last   atomic.Pointer[jointTerms]
}

// jointTerms are the terms of several limiters together, and their encoder.
type jointTerms struct {
	of []*guard.Terms
	*guard.Terms
	*encoder
}

// joint returns the terms of limiters together. It remembers those of the last request.
func (g *together) joint(of []*guard.Terms) *jointTerms {
	t := g.last.Load()
	if t == nil || !slices.Equal(t.of, of) {
		t = &jointTerms{of: slices.Clone(of), Terms: guard.Together(of)}
		t.encoder = newEncoder(g.o.Dialect, t.Fields)
		g.last.Store(t)
	}
	return t
}

type guardedTogether struct {
	guarded
	by *together
}

// ServeHTTP decides, then passes the request on or answers it.
func (g *guardedTogether) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.o.Skip != nil && g.o.Skip(r) {
		g.next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if g.o.Cost != nil {
		cost = g.o.Cost(r)
	}
	var parts []stint.Part
	var terms []*guard.Terms
	q := new(several)
	for i, keyOf := range g.by.keys {
		key, ok := keyOf(r)
		if !ok && key == noRoute {
			g.withoutRoute(w, r)
			return
		}
		if !ok {
			if g.o.Missing == MissingSkip {
				continue
			}
			if g.o.Missing == MissingDeny && !g.o.Shadow {
				refuseMissing.write(w, r)
				return
			}
			key = guard.MissingKey
		}
		one := g.by.guards[i]
		q.guards, q.keys = append(q.guards, one), append(q.keys, key)
		parts, terms = append(parts, one.Key(key).Cost(cost)), append(terms, one.Terms())
	}
	key := strings.Join(q.keys, "\x00")
	if g.mark.in(w.Header()[g.o.Dialect.standing()]) {
		g.twice.warn(r)
	}
	if len(parts) > 0 {
		q.Request = stint.All(parts...)
		g.decide(w, r, q, g.by.joint(terms), key, cost)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *guardedTogether) decide(w http.ResponseWriter, r *http.Request, q *several, t *jointTerms, key string, cost int64) {
	if g.o.Settle != nil {
		g.serveRefundable(w, r, t.encoder, key, len(q.keys), cost, q)
		return
	}
	d, waited, err := t.TakeTogether(r.Context(), q.Request, cost)
	g.serveQueued(w, r, t.encoder, key, waited, &d, err)
}

type several struct {
	*stint.Request
	guards []*guard.Guard
	keys   []string
}

func (s *several) forget(ctx context.Context) (err error) {
	for i, g := range s.guards {
		err = errors.Join(err, g.Reset(ctx, s.keys[i]))
	}
	return err
}

func (s *several) peek(ctx context.Context) (stint.Decision, error) { return s.Peek(ctx) }
