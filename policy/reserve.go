package policy

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
)

// Reserve is Decide with a token, when allowed, that settles the charge at its
// true cost within ttl. The token is empty when nothing was charged.
func (p *Policy) Reserve(ctx context.Context, attrs Attributes, cost int64, ttl time.Duration, r *Result) (stint.Token, error) {
	if ttl <= 0 {
		return "", errors.New("policy: a reservation needs a time to live above zero")
	}
	if err := p.match(attrs, cost, r); err != nil {
		return "", err
	}
	if err := p.decide(ctx, act{stint.OpTake, ttl}, r); err != nil {
		return "", err
	}
	if len(r.parts) == 0 || !r.Decision.Allowed {
		return "", nil
	}
	return p.seal(r.parts), nil
}

// Settle replaces a reservation's cost by the true one, once, in every rule by
// what the rule said it costs. The token may come from a policy before a
// reload. A token that is not ours is [stint.ErrReservation].
func (p *Policy) Settle(ctx context.Context, token stint.Token, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	parts, ok := p.open(token)
	if !ok {
		return stint.Decision{}, stint.ErrReservation
	}
	var d stint.Decision
	var failed error
	answered := false
	for _, part := range parts {
		store := p.main.store
		if part.local {
			store = p.local.store
		}
		if store == nil {
			failed = errors.Join(failed, stint.ErrReservation)
			continue
		}
		one, err := store.Settle(ctx, part.token, times(part.weight, cost))
		switch {
		case part.shadow:
			if len(parts) == 1 {
				one.Allowed = true
				return one, err
			}
		case err != nil:
			failed = errors.Join(failed, err)
		case !answered:
			d, answered = one, true
		default:
			d.Join(&one)
		}
	}
	return d, failed
}

// Cancel settles a reservation at 0.
func (p *Policy) Cancel(ctx context.Context, token stint.Token) (stint.Decision, error) {
	return p.Settle(ctx, token, 0)
}

// A tokenPart is one reservation of a store within a token.
type tokenPart struct {
	token  stint.Token
	weight int64
	local  bool
	shadow bool
}

// The flags of a part, and how much of the seal is kept: 128 bits.
const (
	flagLocal  = 1
	flagShadow = 2
	sealBytes  = 16
)

// seal makes a token of parts: flags, weight, length and token of each, and a
// seal, or a client could settle by a weight of its own.
func (p *Policy) seal(parts []tokenPart) stint.Token {
	var b []byte
	for _, part := range parts {
		flags := byte(0)
		if part.local {
			flags |= flagLocal
		}
		if part.shadow {
			flags |= flagShadow
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(part.weight))
		b = binary.AppendUvarint(b, uint64(len(part.token)))
		b = append(b, part.token...)
	}
	b = append(b, mac(p.secret(), "token", string(b))[:sealBytes]...)
	return stint.Token(base64.RawURLEncoding.EncodeToString(b))
}

// open returns the parts of a token that we have sealed.
func (p *Policy) open(token stint.Token) (parts []tokenPart, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(token))
	if err != nil || len(b) <= sealBytes {
		return nil, false
	}
	b, seal := b[:len(b)-sealBytes], b[len(b)-sealBytes:]
	if !hmac.Equal(seal, mac(p.secret(), "token", string(b))[:sealBytes]) {
		return nil, false
	}
	for len(b) > 0 {
		part := tokenPart{local: b[0]&flagLocal != 0, shadow: b[0]&flagShadow != 0}
		weight, n := binary.Uvarint(b[1:])
		if n <= 0 {
			return nil, false
		}
		b = b[1+n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, false
		}
		part.weight, part.token = int64(weight), stint.Token(b[n:n+int(size)])
		b = b[n+int(size):]
		parts = append(parts, part)
	}
	return parts, true
}

// Refund gives cost, times what each rule says it costs, back to the keys of a
// request: an operator's act. Rules in shadow are given back to as well. The
// decision in r is that of the rules which are not.
func (p *Policy) Refund(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	r.Decision.Allowed = true
	answered := false
	for i := range r.hits {
		h := &r.hits[i]
		if !h.limited() {
			continue
		}
		d, err := p.main.store.Refund(ctx, []stint.Layer{p.main.layer(h)}, h.cost)
		if err != nil {
			return err
		}
		for k := range h.plan.layers {
			r.Rules[h.first+k].set(d, false, len(h.plan.layers) == 1)
		}
		switch {
		case h.rule.shadow:
		case !answered:
			r.Decision, answered = d, true
		default:
			r.Decision.Join(&d)
		}
	}
	r.seekTightest()
	return nil
}

// GiveBack refunds what the decision in r has charged, for a request that turns
// out not to count. The rules are not matched again, and a second call does
// nothing; the answer in r stays as it is. Time may have forgiven part of the
// charge by then, and a refund does not know: where that matters, Reserve and
// Cancel. What Reserve has charged is not given back here.
func (p *Policy) GiveBack(ctx context.Context, r *Result) error {
	if r.policy == nil {
		return nil
	}
	var failed error
	for i := range r.hits {
		h := &r.hits[i]
		if !h.took || h.cost == 0 {
			continue
		}
		h.took = false
		s := &r.policy.main // the policy that charged, whatever was reloaded since
		if h.onLocal {
			s = &r.policy.local
		}
		if _, err := s.store.Refund(ctx, []stint.Layer{s.layer(h)}, h.cost); err != nil {
			failed = errors.Join(failed, fmt.Errorf("rule %q: %w", h.rule.name, err))
		}
	}
	return failed
}

// Reset forgets the keys of a request, here and in the local store.
func (p *Policy) Reset(ctx context.Context, attrs Attributes, r *Result) error {
	if err := p.match(attrs, 0, r); err != nil {
		return err
	}
	r.Decision.Allowed = true
	for i := range r.hits {
		h := &r.hits[i]
		if !h.limited() {
			continue
		}
		if err := p.main.store.Reset(ctx, []stint.Layer{p.main.layer(h)}); err != nil {
			return err
		}
		if p.local.store != nil {
			if err := p.local.store.Reset(ctx, []stint.Layer{p.local.layer(h)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inspect asks for what each layer in r has left, and when those that denied
// would pass, which a decision of several layers does not say: a peek for each,
// at moments after the decision. Tightest is set by what it finds.
func (p *Policy) Inspect(ctx context.Context, r *Result) error {
	if r.policy == nil {
		return nil
	}
	best := -1
	for i := range r.hits {
		h := &r.hits[i]
		if !h.limited() {
			continue
		}
		s := &r.policy.main
		if h.onLocal {
			s = &r.policy.local
		}
		for k := range h.plan.layers {
			e := &r.Rules[h.first+k]
			cost := int64(0)
			if e.Denied {
				cost = h.cost
			}
			d, err := s.plans[h.plan.id].one(k).Decide(ctx, stint.OpPeek, h.key, cost)
			if err != nil {
				return err
			}
			e.Remaining, e.ResetAfter = d.Remaining, d.ResetAfter
			if e.Denied && !d.Allowed {
				e.RetryAfter = d.RetryAfter
			}
			if !e.Shadow && (best < 0 || e.tighter(&r.Rules[best])) {
				best = h.first + k
			}
		}
	}
	if best >= 0 && r.blocked < 0 {
		r.Tightest = best
	}
	return nil
}

// tighter reports whether e holds the request more than o does: the longest
// denial, else the least remaining.
func (e *RuleResult) tighter(o *RuleResult) bool {
	switch {
	case e.Denied != o.Denied:
		return e.Denied
	case e.Denied && e.RetryAfter != o.RetryAfter:
		return e.RetryAfter == stint.Never || o.RetryAfter != stint.Never && e.RetryAfter > o.RetryAfter
	}
	return e.Remaining < o.Remaining
}
