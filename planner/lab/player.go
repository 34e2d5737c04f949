package lab

import (
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// A player plays traffic to one limit. Its methods return no errors, since a store in memory never
// fails and costs are never below 0.
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

// request returns the request of a send.
func (p *player) request(s send) simulate.Request {
	return simulate.Request{At: s.at, Key: p.t.key(s.who), Cost: s.cost, Lasts: time.Duration(p.t.lasts)}
}

// peek returns the state of a request's key.
func (p *player) peek(s send) stint.Decision { return sure(p.Peek(p.request(s))) }

// take decides one request. The result before is the state of its key before the decision.
func (p *player) take(s send) (q simulate.Request, before, d stint.Decision) {
	q, before = p.request(s), p.peek(s)
	d = sure(p.Take(q))
	if p.inFlight && s.cost == 0 { // cost 0 is not counted in flight, so the answer has no remaining
		d.Limit, d.Remaining = before.Limit, before.Remaining
	}
	return q, before, d
}
