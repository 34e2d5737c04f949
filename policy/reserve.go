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

var errTTL = errors.New("policy: a reservation needs a time to live above zero")

// Reserve is Decide with a reservation, when allowed, that settles the charge at its
// true cost within ttl. The ID is empty when the request is denied, or held to
// nothing that it could be charged to.
//
// Under a limit in flight the request holds its places until it is settled, whatever the
// cost, or ttl is over: also where this process is killed, if the store is shared. Beyond
// a million such at once in a process the error is [stint.ErrFull].
func (p *Policy) Reserve(ctx context.Context, attrs Attributes, cost int64, ttl time.Duration, r *Result) (stint.ReservationID, error) {
	if ttl <= 0 {
		return "", errTTL
	}
	if err := p.match(attrs, cost, r); err != nil {
		return "", err
	}
	if err := p.decide(ctx, &operation{op: meter.OpTake, ttl: ttl, lease: ttl}, r); err != nil {
		return "", err
	}
	p.report(attrs, cost, r)
	if !r.Decision.Allowed {
		return "", nil
	}
	return p.sealAll(r), nil
}

// sealAll returns the ID of what a request that passed has reserved.
func (p *Policy) sealAll(r *Result) stint.ReservationID {
	if r.lease(); len(r.parts) == 0 {
		return ""
	}
	return p.seal(r.parts)
}

// Settle replaces a reservation's cost by the true one, once, in every rule
// times what the rule said it costs. The answer is in units of the request:
// that of the rules which are not in shadow, if any was charged. The ID may
// come from a policy before a reload. While the store fails, it is settled later; see
// [fallback.Failover.Settle]. An empty one, of a request that was denied or
// held to nothing, has nothing to settle: nothing is done. One that is not ours is
// [stint.ErrReservation].
func (p *Policy) Settle(ctx context.Context, id stint.ReservationID, cost int64) (d stint.Decision, err error) {
	if cost < 0 {
		return d, stint.ErrCost
	}
	parts, ok := p.open(id)
	switch {
	case id == "":
		return d, nil
	case !ok:
		return d, stint.ErrReservation
	}
	for i, part := range parts {
		one, failed := p.settle(ctx, part, cost)
		if i == 0 { // those in shadow come last, and do not count beside others
			d, err = one, failed
		}
	}
	return d, err
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

// Cancel settles a reservation at 0.
func (p *Policy) Cancel(ctx context.Context, id stint.ReservationID) (stint.Decision, error) {
	return p.Settle(ctx, id, 0)
}

// A reservedPart is one reservation of a store within that of a policy.
type reservedPart struct {
	id       stint.ReservationID
	local    bool
	shadow   bool
	inFlight bool // places, which id has
	match    int  // which rule's it is alone, from 1; 0 for that of several
}

// The flags of a part, and how much of the seal is kept: 128 bits.
const (
	flagLocal    = 1
	flagShadow   = 2
	flagInFlight = 4
	sealBytes    = 16
)

// seal makes an ID of parts: flags, length and ID of each, and a MAC, so that
// clients cannot take parts out or combine parts of several IDs.
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
		b = appendText(append(b, flags), string(part.id))
	}
	b = append(b, mac(p.secret(), "token", string(b))[:sealBytes]...)
	return stint.ReservationID(base64.RawURLEncoding.EncodeToString(b))
}

// open returns the parts of an ID that we have sealed.
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
		var id string
		if id, b, ok = cutText(b[1:]); !ok {
			return nil, false
		}
		part.id = stint.ReservationID(id)
		parts = append(parts, part)
	}
	return parts, true
}

// appendText appends a text with its length, as cutText reads it.
func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cutText returns the text that b begins with, and the rest.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	return string(b[n : n+int(size)]), b[n+int(size):], true
}

// Refund gives cost, times what each rule says it costs, back to the keys of a
// request: an operator's act. Rules in shadow are given back to as well. The
// decision in r is that of the rules which are not.
func (p *Policy) Refund(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	r.Decision.Allowed = true
	refund := &operation{refund: true}
	if err := p.run(ctx, refund, r); err != nil {
		return err
	}
	p.shadows(ctx, refund, r)
	return r.StoreError
}

// Reset forgets the keys of a request, here and in the local store.
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
