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
	defer func() {
		for _, s := range from {
			s.close()
		}
	}()
	t, err := trace(ctx, &o, from, client, most, nil)
	if errors.Is(err, errAstray) {
		t, err = trace(ctx, &o, from, client, most, &sorter{})
	}
	return t, err
}

func trace(ctx context.Context, o *Options, from []*source, client string, most int, by *sorter) (*Trace, error) {
	q, err := newExtraction(o, nil)
	if err != nil {
		return nil, err
	}
	t := &tracer{client: client, most: most}
	r, err := newReading(ctx, o, q, from, []sink{t})
	if err != nil {
		return nil, err
	}
	t.reading, r.inline, r.sorter = r, true, by // it asks for names
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if err := r.judge(); err != nil {
		return nil, err
	}
	if q.cost < 0 {
		t.found.Costs = nil
	}
	return &t.found, nil
}

// A tracer is a sink that keeps the requests of a client.
type tracer struct {
	reading *reading
	client  string // "" for all
	most    int
	wanted  []bool // by client
	found   Trace
}

func (t *tracer) add(events []event) {
	for i := range events {
		e := &events[i]
		if t.client != "" && !t.wants(e.id) {
			continue
		}
		t.found.Requests++
		if len(t.found.Times) < t.most {
			t.found.Times = append(t.found.Times, e.at)
			t.found.Costs = append(t.found.Costs, e.cost)
		}
	}
}

func (t *tracer) wants(id uint32) bool {
	for int(id) >= len(t.wanted) {
		t.wanted = append(t.wanted, t.reading.name(uint32(len(t.wanted))) == t.client)
	}
	return t.wanted[id]
}
