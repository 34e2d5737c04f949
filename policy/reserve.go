package policy

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

var errCosts = &CostsError{"", "only of a request by itself, and not to give back: name the plain cost"}

var errTTL = errors.New("policy: a reservation needs a time to live above zero")

// Reserve is Decide with a reservation: if the request is allowed, [Policy.Settle] replaces
// the charge by the true cost within ttl. The ID is empty when the request is denied, or no
// limit charges it.
//
// Under a limit in flight the request holds its places until the reservation is settled, at
// whatever cost, or ttl is over; in a shared store also if this process is killed. A process
// keeps at most a million such holds, each of one request under one limit; beyond that the
// error is [stint.ErrFull].
func (p *Policy) Reserve(ctx context.Context, attrs Attributes, cost int64, ttl time.Duration, r *Result) (stint.ReservationID, error) {
	if ttl <= 0 {
		return "", errTTL
	}
	if err := p.match(attrs, cost, r); err != nil {
		return "", err
	}
	if err := p.decide(ctx, &operation{op: meter.OpTake, ttl: ttl, lease: ttl, excuses: ttl}, r); err != nil {
		return "", err
	}
	p.report(attrs, cost, r)
	if !r.Decision.Allowed {
		return "", nil
	}
	return p.sealAll(r), nil
}

func (p *Policy) sealAll(r *Result) stint.ReservationID {
	if r.lease(); len(r.parts) == 0 {
		return ""
	}
	r.charges()
	r.unmatched()
	return p.seal(r.parts)
}

// Settle replaces a reservation's cost by the true one, once, in every rule that took the
// plain cost; each rule multiplies it as it did before. Rules that [Result.Costs] named keep
// what they took unless [Policy.SettleCosts] settles them. The answer is in units of the
// request: that of the rules which are not in shadow, if any of these was charged.
//
// The ID may come from a policy before a reload. An empty ID, of a request that was denied or
// that no limit charged, settles nothing; an ID that no policy with this secret made is
// [stint.ErrReservation]. While the store fails, the reservation is settled later; see
// [fallback.Failover.Settle].
func (p *Policy) Settle(ctx context.Context, id stint.ReservationID, cost int64) (d stint.Decision, err error) {
	if cost < 0 {
		return d, stint.ErrCost
	}
	d, _, err = p.SettleCosts(ctx, id, cost, nil)
	return d, err
}

// parts returns the parts of a reservation; an empty ID has none.
func (p *Policy) parts(id stint.ReservationID) ([]reservedPart, error) {
	if id == "" {
		return nil, nil
	}
	parts, ok := p.open(id)
	if !ok {
		return nil, stint.ErrReservation
	}
	return parts, nil
}

func (p *Policy) settle(ctx context.Context, part reservedPart, cost int64) (stint.Decision, error) {
	switch {
	case part.inFlight:
		return p.endLease(part)
	case part.local:
		return p.failover.SettleLocal(ctx, part.id, cost)
	}
	return p.failover.Settle(ctx, part.id, cost)
}

// Cancel settles a reservation at 0, in every rule that is not settled yet, whether it was named
// or took the plain cost. A rule that is settled keeps that.
func (p *Policy) Cancel(ctx context.Context, id stint.ReservationID) (stint.Decision, error) {
	parts, err := p.parts(id)
	if err != nil {
		return stint.Decision{}, err
	}
	return p.settleParts(ctx, parts, func(*reservedPart) (int64, bool) { return 0, true })
}

// A reservedPart is one reservation of a store within that of a policy.
type reservedPart struct {
	id       stint.ReservationID
	cost     int64 // that the caller gave; 0 if the part was opened from an ID
	local    bool
	shadow   bool
	inFlight bool   // these are places, which id lists
	match    int    // 1 + the index of the only rule it is for, if that goes by the response; else 0
	name     string // of the only rule it is for, if the request's costs named that rule
	of       []charged
}

// The flags of a part in an ID, and how many bytes of the MAC the ID has.
const (
	flagLocal    = 1
	flagShadow   = 2
	flagInFlight = 4
	flagNamed    = 8
	flagCharged  = 16
	sealBytes    = 16
)

// seal makes an ID of parts: flags, length and ID of each, which keys it charges, and a MAC,
// so that clients cannot take parts out or combine parts of several IDs.
func (p *Policy) seal(parts []reservedPart) stint.ReservationID {
	var b []byte
	for _, part := range parts {
		flags := byte(0)
		if part.local {
			flags |= flagLocal
		}
		if part.shadow {
			flags |= flagShadow
		}
		if part.inFlight {
			flags |= flagInFlight
		}
		if part.name != "" {
			flags |= flagNamed
		}
		if part.of != nil {
			flags |= flagCharged
		}
		b = appendText(append(b, flags), string(part.id))
		if part.name != "" {
			b = appendText(b, part.name)
		}
		if part.of != nil {
			b = appendCharged(b, part.of)
		}
	}
	b = append(b, mac(p.secret(), "token", string(b))[:sealBytes]...)
	return stint.ReservationID(base64.RawURLEncoding.EncodeToString(b))
}

// open returns the parts of an ID that seal made.
func (p *Policy) open(id stint.ReservationID) (parts []reservedPart, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(id))
	if err != nil || len(b) <= sealBytes {
		return nil, false
	}
	b, seal := b[:len(b)-sealBytes], b[len(b)-sealBytes:]
	if !hmac.Equal(seal, mac(p.secret(), "token", string(b))[:sealBytes]) {
		return nil, false
	}
	for len(b) > 0 {
		part := reservedPart{local: b[0]&flagLocal != 0, shadow: b[0]&flagShadow != 0, inFlight: b[0]&flagInFlight != 0}
		named, charges := b[0]&flagNamed != 0, b[0]&flagCharged != 0
		var id string
		if id, b, ok = cutText(b[1:]); !ok {
			return nil, false
		}
		if named {
			if part.name, b, ok = cutText(b); !ok {
				return nil, false
			}
		}
		if charges {
			if part.of, b, ok = cutCharged(b); !ok {
				return nil, false
			}
		}
		part.id = stint.ReservationID(id)
		parts = append(parts, part)
	}
	return parts, true
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cutText returns the text at the beginning of b, and the rest of it.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	return string(b[n : n+int(size)]), b[n+int(size):], true
}

// Refund gives units back to the keys of a request: cost times what each rule says it costs.
// It is an operator's act, and includes rules in shadow; the decision in r is that of the
// other rules.
func (p *Policy) Refund(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if len(r.Costs) > 0 {
		return errCosts
	}
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	r.Decision.Allowed = true
	refund := &operation{refund: true}
	if err := p.run(ctx, refund, r); err != nil {
		return err
	}
	p.shadows(ctx, refund, r)
	for i := range r.matches {
		if h := &r.matches[i]; h.local() {
			p.pairOf(h.plan).Refund(h.key, h.cost)
		}
	}
	return r.StoreError
}

// Reset forgets what the keys of a request have used, in the store and the local one.
func (p *Policy) Reset(ctx context.Context, attrs Attributes, r *Result) error {
	if err := p.match(attrs, 0, r); err != nil {
		return err
	}
	r.Decision.Allowed = true
	for i := range r.matches {
		if h := &r.matches[i]; h.limited() {
			if err := p.reset(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}
