package resp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/strictjson"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
)

// entrypoint is the value of the label "interface" for this server.
const entrypoint = "resp"

// askWithin bounds the wait for a store that does not answer.
const askWithin = 5 * time.Second

// maxTTL is how long a reservation may last.
const maxTTL = 24 * time.Hour

// A question is the arguments of a STINT command.
type question struct {
	attributes policy.Map
	cost       int64
	costs      policy.Costs // by rule; nil if no rule is named
	ttl        time.Duration
}

// read reads attribute value … [COST n] [COST.rule n] [TTL seconds]. After a wrong argument it
// answers with the error and returns false.
func (c *conn) read(args [][]byte, reserves bool) (q question, ok bool) {
	q = question{attributes: policy.Map{}, cost: 1, ttl: time.Minute}
	if len(args)%2 == 0 {
		c.out.fail("ERR", "attributes come as pairs of name and value")
		return q, false
	}
	for i := 1; i < len(args); i += 2 {
		name, value := request.Name(string(args[i])), args[i+1]
		switch {
		case strings.EqualFold(name, "cost"):
			if q.cost, ok = c.cost("COST", value); !ok {
				return q, false
			}
		case isCostOf(args[i]):
			if !c.costOf(&q.costs, args[i], value) {
				return q, false
			}
		case strings.EqualFold(name, "ttl") && reserves:
			n, ok := wholeNumber(value)
			if !ok || n < 1 || n > int64(maxTTL/time.Second) {
				c.out.fail("ERR", "TTL must be from 1 to 86400 seconds")
				return q, false
			}
			q.ttl = time.Duration(n) * time.Second
		case name == "":
			c.out.fail("ERR", "an attribute without a name")
			return q, false
		default:
			if _, twice := q.attributes[name]; twice {
				c.out.fail("ERR", "an attribute twice")
				return q, false
			}
			q.attributes[name] = string(value)
		}
	}
	return q, true
}

// costPrefix precedes the name of a rule in an argument for its cost.
const costPrefix = "cost."

func isCostOf(name []byte) bool {
	return len(name) > len(costPrefix) && strings.EqualFold(string(name[:len(costPrefix)]), costPrefix)
}

// cost reads a cost. If it is wrong, cost answers with the error and returns false.
func (c *conn) cost(name string, value []byte) (n int64, ok bool) {
	if n, ok = wholeNumber(value); !ok || n < 0 || n > strictjson.MaxExact {
		c.out.fail("ERR", name+" must be a whole number from 0 to 2^53 - 1")
		return 0, false
	}
	return n, true
}

// costOf adds the cost of a rule to costs. If it is wrong, costOf answers with the error and
// returns false.
func (c *conn) costOf(costs *policy.Costs, name, value []byte) bool {
	rule := string(name[len(costPrefix):])
	n, ok := c.cost("COST.rule", value)
	_, twice := (*costs)[rule]
	switch {
	case !ok:
	case twice:
		c.out.fail("ERR", "the cost of a rule twice")
	case len(*costs) == policy.MaxCosts:
		c.out.fail("ERR", fmt.Sprintf("the costs of more than %d rules", policy.MaxCosts))
	default:
		if *costs == nil {
			*costs = make(policy.Costs)
		}
		(*costs)[rule] = n
		return true
	}
	return false
}

func (c *conn) check(args [][]byte) {
	if q, ok := c.read(args, false); ok {
		c.decideAndReply(func(ctx context.Context, p *policy.Policy) (stint.ReservationID, error) {
			c.result.Costs = q.costs
			return "", p.Decide(ctx, q.attributes, q.cost, &c.result)
		}, c.answer)
	}
}

func (c *conn) peek(args [][]byte) {
	if q, ok := c.read(args, false); ok {
		c.decideAndReply(func(ctx context.Context, p *policy.Policy) (stint.ReservationID, error) {
			c.result.Costs = q.costs
			return "", p.Peek(ctx, q.attributes, q.cost, &c.result)
		}, c.answer)
	}
}

func (c *conn) reserve(args [][]byte) {
	if q, ok := c.read(args, true); ok {
		c.decideAndReply(func(ctx context.Context, p *policy.Policy) (stint.ReservationID, error) {
			c.result.Costs = q.costs
			return p.Reserve(ctx, q.attributes, q.cost, q.ttl, &c.result)
		}, c.answer)
	}
}

// mapped answers CL.THROTTLE by the rules.
func (c *conn) mapped(key string, quantity int64) {
	q := question{attributes: policy.Map{"key": key}, cost: quantity}
	c.result.Costs = nil
	c.decideAndReply(func(ctx context.Context, p *policy.Policy) (stint.ReservationID, error) {
		if quantity == 0 {
			return "", p.Peek(ctx, q.attributes, 0, &c.result)
		}
		return "", p.Decide(ctx, q.attributes, q.cost, &c.result)
	}, func(stint.ReservationID) { c.cell(&c.result.Decision) })
}

// decideAndReply decides by the rules, reports to the observer, and answers.
func (c *conn) decideAndReply(decide func(context.Context, *policy.Policy) (stint.ReservationID, error), answer func(stint.ReservationID)) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	begun := time.Now()
	id, err := decide(ctx, c.server.o.Source.Policy())
	if err != nil {
		c.failed(err)
		return
	}
	c.server.o.Observer.Decided(entrypoint, &c.result, observe.Request{Took: time.Since(begun)})
	answer(id)
}

// settle is STINT.SETTLE reservation [cost] [COST.rule n]…
func (c *conn) settle(args [][]byte) {
	token, rest, cost := args[1], args[2:], int64(policy.Keep)
	if !isCostOf(rest[0]) {
		var ok bool
		if cost, ok = c.cost("the cost", rest[0]); !ok {
			return
		}
		rest = rest[1:]
	}
	var costs policy.Costs
	for ; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 || !isCostOf(rest[0]) {
			c.out.fail("ERR", "behind the cost come pairs of COST.rule and its cost")
			return
		}
		if !c.costOf(&costs, rest[0], rest[1]) {
			return
		}
	}
	if len(token) == 0 {
		c.failed(stint.ErrReservation)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	p, id := c.server.o.Source.Policy(), stint.ReservationID(token)
	d, counted, err := p.SettleCosts(ctx, id, cost, costs)
	if err != nil {
		c.failed(err)
		return
	}
	if p.Charged(ctx, id, cost, costs, &c.result) {
		c.server.o.Observer.Settled(entrypoint, &c.result)
	}
	if costs == nil {
		c.out.fields(3)
		c.state(&d)
		return
	}
	c.out.fields(4)
	c.state(&d)
	c.counted(counted)
}

// counted writes the names of the rules, among those named, that were counted.
func (c *conn) counted(names []string) {
	c.out.text("counted")
	c.out.array(len(names))
	for _, name := range names {
		c.out.text(name)
	}
}

// answer writes the decision as names and values. Times are in milliseconds, rounded up;
// retry_after_ms is −1 if the request can never pass.
func (c *conn) answer(id stint.ReservationID) {
	r := &c.result
	n := 5
	if id != "" {
		n++
	}
	if !r.Decision.Allowed {
		n++
	}
	if r.Decision.Delay > 0 {
		n++
	}
	if r.Costs != nil {
		n++
	}
	c.out.fields(n)
	c.out.text("allowed")
	c.out.flag(r.Decision.Allowed)
	c.out.text("rule")
	if r.Tightest >= 0 {
		c.out.text(r.Rules[r.Tightest].Rule)
	} else {
		c.out.null()
	}
	c.state(&r.Decision)
	if r.Decision.Delay > 0 {
		c.out.text("delay_ms")
		c.out.integer(milliseconds(stint.Wait(r.Decision.Delay)))
	}
	if r.Costs != nil {
		c.counted(r.Counted())
	}
	if id != "" {
		c.out.text("reservation")
		c.out.text(string(id))
	}
	if !r.Decision.Allowed {
		c.out.text("retry_after_ms")
		c.out.integer(milliseconds(r.Decision.RetryAfter))
	}
}

func (c *conn) state(d *stint.Decision) {
	c.out.text("limit")
	c.out.integer(d.Limit)
	c.out.text("remaining")
	c.out.integer(d.Remaining)
	c.out.text("reset_after_ms")
	c.out.integer(milliseconds(stint.Wait(d.ResetAfter)))
}

// milliseconds rounds up, so that waiting for the result is enough.
func milliseconds(w stint.Wait) int64 {
	d, ok := w.Duration()
	if !ok {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}

// failed answers that no decision could be made. The store's error goes to the log only, since it
// may name servers.
func (c *conn) failed(err error) {
	c.server.o.Observer.Failed(entrypoint, err)
	switch {
	case errors.Is(err, policy.ErrRequest):
		c.out.fail("ERR", err.Error())
	case errors.Is(err, stint.ErrInFlight):
		c.out.fail("ERR", "a rule limits what is in flight, and this does not learn when the request ends: send STINT.RESERVE, and STINT.SETTLE when it has ended")
	case errors.Is(err, stint.ErrReservation):
		c.out.fail("NORESERVATION", "no such reservation: unknown, expired or forgotten")
	case errors.Is(err, stint.ErrFull):
		c.out.fail("BUSY", "no room for another reservation")
	case errors.Is(err, policy.ErrNotReady):
		c.out.fail("UNAVAILABLE", "there are no rules yet")
	default:
		c.out.fail("UNAVAILABLE", "the store could not decide")
	}
}
