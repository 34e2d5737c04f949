package lab

import (
	"context"
	"errors"
	"time"
)

// patience is how long a simulation may take, including the wait for its turn. 100,000 arrivals
// take a fraction of a second. Only large costs on long logs come near the bound.
var patience = 5 * time.Second // tests that share the machine set it higher

var errLong = errors.New("this takes longer than " + patience.String() + ": take fewer arrivals or smaller costs")

// SimulateJSON answers the body of POST /v1/simulate. The error says what is wrong with the body,
// or that the simulation takes too long.
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

// Choices are what GET /v1/lab answers: the values that the page offers.
type Choices struct {
	Kinds  []Kind  `json:"kinds"`
	Shapes []Shape `json:"shapes"`
	Plan   bool    `json:"plan"`
	MaxLog int64   `json:"max_log"` // bytes; 0 without Plan
}
