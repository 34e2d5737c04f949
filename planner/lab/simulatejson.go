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

// SimulateJSON answers the body of POST /v1/simulate. The error says in words what is wrong with
// it, or that it takes too long.
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

// Choices are what there is to choose from: what GET /v1/lab says.
type Choices struct {
	Kinds  []Kind  `json:"kinds"`
	Shapes []Shape `json:"shapes"`
	Plan   bool    `json:"plan"`
	MaxLog int64   `json:"max_log"` // bytes; 0 without Plan
}
