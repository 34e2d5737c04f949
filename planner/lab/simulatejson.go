package lab

import (
	"context"
	"errors"
	"time"
)

// patience is how long a simulation may take, the wait for its turn included.
// 100,000 arrivals take a fraction of a second; only large costs on long logs come
// near this.
var patience = 5 * time.Second // tests that share the machine take more

var errLong = errors.New("this takes longer than " + patience.String() + ": take fewer arrivals or smaller costs")

// SimulateJSON answers the body of POST /v1/simulate. The error says in words what is wrong
// with it, or that it takes too long.
func SimulateJSON(ctx context.Context, body []byte) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := Decode(body)
	if err != nil {
		return nil, err
	}
	answer, err := Simulate(ctx, request)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errLong
	}
	return answer, err
}

// over returns why a simulation must end, if it must. It looks at the time itself:
// in a browser there is one thread, and no timer ends ctx while that computes.
func over(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Choices are what there is to choose from: what GET /v1/lab says.
type Choices struct {
	Kinds            []Kind   `json:"kinds"`
	Shapes           []Shape  `json:"shapes"`
	MaxArrivals      int      `json:"max_arrivals"`
	Modes            []string `json:"modes"` // of several processes; none where there are none
	MaxNodesArrivals int      `json:"max_nodes_arrivals"`
	MaxLimits        int      `json:"max_limits"`
	Plan             bool     `json:"plan"`
	MaxLog           int64    `json:"max_log"` // bytes; 0 without Plan
}

// Choose returns the choices of a lab of one process that reads no log.
func Choose() Choices {
	return Choices{Kinds: Kinds(), Shapes: Shapes(), MaxArrivals: MaxArrivals, Modes: []string{}, MaxNodesArrivals: MaxNodesArrivals, MaxLimits: MaxLimits}
}
