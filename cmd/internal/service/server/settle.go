package server

import (
	"net/http"
	"strconv"

	"github.com/stint-dev/stint"
)

// settle replaces a reservation's cost by the true one.
func (h *Handler) settle(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	return h.settled(r, c, a.reservation, a.cost)
}

// cancel settles at 0.
func (h *Handler) cancel(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	return h.settled(r, c, a.reservation, 0)
}

func (h *Handler) settled(r *http.Request, c *call, token string, cost int64) (int, *problem) {
	d, err := c.policy.Settle(r.Context(), stint.ReservationID(token), cost)
	if err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	c.out = strconv.AppendBool(append(c.out, `"allowed":`...), d.Allowed)
	if d.Limit > 0 {
		c.out = appendState(c.out, &d)
	}
	return http.StatusOK, nil
}
