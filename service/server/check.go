package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
)

// The names of the entrypoints in metrics.
const (
	entrypoint = "http"
	authDoor   = "auth"
)

// check decides and charges.
func (h *Handler) check(w http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	began := time.Now()
	c.result.Costs = a.costs
	err := c.policy.Decide(r.Context(), &a.attributes, a.cost, &c.result)
	h.strange(c, a)
	return h.decided(w, r, c, time.Since(began), err)
}

// peek answers as check would, and charges nothing. It is not counted as a decision.
func (h *Handler) peek(w http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	c.result.Costs = a.costs
	if err := c.policy.Peek(r.Context(), &a.attributes, a.cost, &c.result); err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	return h.writeAnswer(w, c), nil
}

// reserve is check with a reservation that settles the cost later.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	began := time.Now()
	var err error
	c.result.Costs = a.costs
	c.id, err = c.policy.Reserve(r.Context(), &a.attributes, a.cost, a.ttl, &c.result)
	h.strange(c, a)
	status, failed := h.decided(w, r, c, time.Since(began), err)
	if failed == nil && c.id != "" {
		c.out = appendText(append(c.out, `,"reservation":`...), string(c.id))
	}
	return status, failed
}

// strange warns of an attribute that no rule looks at, such as Path, if no rule holds for the request.
func (h *Handler) strange(c *call, a *checkRequest) {
	if len(c.result.Rules) > 0 {
		return
	}
	for _, one := range a.attributes {
		if unknown := c.policy.Rules().File().Unknown(one.name); unknown != nil {
			h.sampled.Warn("no rule holds for a request, and none looks at one of its attributes", "why", unknown.Error())
			return
		}
	}
}

// decided counts a decision and answers with it.
func (h *Handler) decided(w http.ResponseWriter, r *http.Request, c *call, took time.Duration, err error) (int, *problem) {
	if err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	h.o.Observer.Decided(entrypoint, &c.result, observe.Request{Took: took, Header: r.Header})
	return h.writeAnswer(w, c), nil
}

// writeAnswer writes the answer, and the header fields unless it is one of a batch, for
// which w is nil.
func (h *Handler) writeAnswer(w http.ResponseWriter, c *call) (status int) {
	c.out = appendResult(c.out, &c.result)
	if w == nil {
		return http.StatusOK
	}
	return h.o.Dialect.Set(w.Header(), &c.result)
}

// settle replaces the costs of a reservation by the true ones: the cost for all rules,
// the costs by rule, or both.
func (h *Handler) settle(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	if a.has&(fieldCost|fieldCosts) == 0 {
		return 0, bad("cost", "missing, and so are costs by rule")
	}
	cost := a.cost
	if a.has&fieldCost == 0 {
		cost = policy.Keep
	}
	return h.settled(r, c, a, cost, func(id stint.ReservationID) (stint.Decision, []string, error) {
		return c.policy.SettleCosts(r.Context(), id, cost, a.costs)
	})
}

// cancel settles a reservation at a cost of 0.
func (h *Handler) cancel(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	return h.settled(r, c, a, 0, func(id stint.ReservationID) (d stint.Decision, counted []string, err error) {
		d, err = c.policy.Cancel(r.Context(), id)
		return d, nil, err
	})
}

// settled calls settle for the reservation of a request, at a plain cost and costs by rule,
// counts it, and writes the answer.
func (h *Handler) settled(r *http.Request, c *call, a *checkRequest, cost int64, settle func(stint.ReservationID) (stint.Decision, []string, error)) (int, *problem) {
	if a.reservation == "" {
		return 0, h.fail(entrypoint, r, stint.ErrReservation)
	}
	id := stint.ReservationID(a.reservation)
	d, counted, err := settle(id)
	if err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	if c.policy.Charged(r.Context(), id, cost, a.costs, &c.result) {
		h.o.Observer.Settled(entrypoint, &c.result)
	}
	c.out = strconv.AppendBool(append(c.out, `"allowed":`...), d.Allowed)
	if d.Limit > 0 {
		c.out = appendState(c.out, &d)
	}
	if a.costs != nil {
		c.out = appendTexts(append(c.out, `,"counted":`...), counted)
	}
	return http.StatusOK, nil
}

// fail returns the answer to an error of a policy, and counts it.
func (h *Handler) fail(entrypoint string, r *http.Request, err error) *problem {
	p := &problem{status: http.StatusServiceUnavailable}
	var request *policy.RequestError
	var lacks *policy.NotGivenError
	var costs *policy.CostsError
	switch {
	case errors.As(err, &costs):
		p = problemOf(in("costs", bad(costs.Rule, "%s", costs.Reason)))
	case errors.As(err, &lacks):
		p.status, p.detail = http.StatusInternalServerError, lacks.Error()
	case errors.As(err, &request):
		p = bad("attributes."+request.Attribute, "%s", request.Reason)
	case errors.Is(err, stint.ErrCost):
		p = bad("cost", "below zero")
	case errors.Is(err, stint.ErrReservation):
		p = &problem{status: http.StatusNotFound, field: "reservation", detail: "no such reservation: it was never given, or its time is long over"}
	case errors.Is(err, stint.ErrFull):
		p.detail = "no room for another reservation: settle or cancel some, or wait until their time is over"
	case errors.Is(err, stint.ErrInFlight):
		p.detail = "a rule limits what is in flight, and this does not learn when the request ends: ask /v1/reserve, and /v1/settle when it has ended"
	case errors.Is(err, policy.ErrNotReady):
		p.detail = "there are no rules yet"
	case r.Context().Err() != nil:
		p.detail, err = "given up by who asked", r.Context().Err()
	default:
		p.detail = "the store could not decide"
	}
	h.o.Observer.Failed(entrypoint, err)
	return p
}
