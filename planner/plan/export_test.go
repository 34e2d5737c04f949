package plan

import (
	"context"
	"io"
)

// LeastBursts returns, for each rate, the least burst that denies nothing.
func LeastBursts(ctx context.Context, o Options) (names []string, bursts []int64, err error) {
	r, err := readAll(ctx, &o, nil)
	if err != nil {
		return nil, nil, err
	}
	var c curve
	err = r.replay(ctx, r.ignored, &c)
	c.settle(func(int) int { return 1 })
	for i, rate := range rates {
		names, bursts = append(names, rate.String()), append(bursts, need(c.ranked(i)[0]))
	}
	return names, bursts, err
}

// SetMostEvents sets how many events are kept, and returns what puts it back.
func SetMostEvents(n int) (restore func()) {
	before := mostEvents
	mostEvents = n
	return func() { mostEvents = before }
}

// SetOpenPipe sets what opens pipes by their names, and returns what puts it back.
func SetOpenPipe(open func(string) (io.ReadCloser, error)) (restore func()) {
	before := openPipe
	openPipe = open
	return func() { openPipe = before }
}
