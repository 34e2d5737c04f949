package model

import "math/big"

// history is every charge and refund on one key, from a state on that is
// settled for good. A settlement changes what a charge of it was, and the state
// is what comes of doing all of it again.
type history struct {
	acts []act
	term int // counts the states that were settled for good
}

// act is one charge or refund.
type act struct {
	at      *big.Int
	units   int64 // charged; below zero, refunded
	told    bool  // a request, which has got its start
	promise int64 // leaky_queue: units of it that will start
}

// charging is how a charge is made.
type charging struct {
	told bool // by a request, not as debt
	open bool // the key has open reservations
}

// charged notes a charge and says where to find it.
func (h *history) charged(t *big.Int, c int64, how charging) receipt {
	h.acts = append(h.acts, act{t, c, how.told, c})
	return receipt{at: t, act: len(h.acts) - 1, term: h.term}
}

func (h *history) refunded(t *big.Int, c int64) {
	h.acts = append(h.acts, act{at: t, units: -c})
}

// rewrite lowers a charge by g, and reports whether that is still possible.
func (h *history) rewrite(r receipt, g int64) bool {
	if r.term != h.term {
		return false
	}
	h.acts[r.act].units -= g
	return true
}

// kept takes g units off what a charge will start, and reports whether a later
// request that will start has got its start.
func (h *history) kept(r receipt, g int64) bool {
	if r.term != h.term {
		return true
	}
	h.acts[r.act].promise -= g
	for _, a := range h.acts[r.act+1:] {
		if a.told && a.promise > 0 {
			return true
		}
	}
	return false
}
