package plan

import (
	"context"
	"errors"
)

// A Trace is when one client sent its requests, or when all did.
type Trace struct {
	// Times are in nanoseconds since the Unix epoch, in order.
	Times []int64
	// Costs has one for each time; nil where each costs 1.
	Costs []int64
	// Requests is how many there were, those included that are not in Times.
	Requests int64
}

// TraceOf reads the logs for the requests of a client, by the name that a
// [Report] has for it, or of all where client is "". It keeps the first most.
// What the options say of limits is not looked at, and IgnoreTop neither. When
// the context ends, it returns the context's error.
func TraceOf(ctx context.Context, o Options, client string, most int) (*Trace, error) {
	if len(o.Key) == 0 {
		o.Key = []string{"ip"}
	}
	from := o.sources(ctx)
	defer closeAll(from)
	q, err := newExtraction(&o, nil)
	if err != nil {
		return nil, err
	}
	r, err := newReading(ctx, &o, q, from)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.run(ctx), r.judge()); err != nil {
		return nil, err
	}
	t, wanted := &Trace{}, make([]bool, r.clients.len())
	for id := range wanted {
		wanted[id] = !r.ignored[id] && (client == "" || r.name(uint32(id)) == client)
	}
	for _, e := range r.events {
		if !wanted[e.id] {
			continue
		}
		if t.Requests++; len(t.Times) < most {
			t.Times = append(t.Times, e.at)
			if q.cost >= 0 {
				t.Costs = append(t.Costs, e.cost)
			}
		}
	}
	return t, nil
}
