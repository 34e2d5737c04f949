package lab

import (
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// A player holds traffic to one limit. Memory never fails, and costs are not below 0, so its
// methods have no errors.
type player struct {
	*simulate.Runner
	t        *traffic
	inFlight bool
}

func newPlayer(l stint.Limit, t *traffic) (*player, error) {
	r, err := simulate.InMemory([]string{l.String()}, math.MaxInt64)
	return &player{r, t, l.InFlight()}, err
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// request returns a request as it is played.
func (p *player) request(s send) simulate.Request {
	return simulate.Request{At: s.at, Key: p.t.key(s.who), Cost: s.cost, Lasts: time.Duration(p.t.lasts)}
}

// peek says how the key of a request stands to it.
func (p *player) peek(s send) stint.Decision { return sure(p.Peek(p.request(s))) }

// take decides one request; before is how its key stood.
func (p *player) take(s send) (q simulate.Request, before, d stint.Decision) {
	q, before = p.request(s), p.peek(s)
	d = sure(p.Take(q))
	if p.inFlight && s.cost == 0 { // it is not counted, so the answer has no numbers
		d.Limit, d.Remaining = before.Limit, before.Remaining
	}
	return q, before, d
}
