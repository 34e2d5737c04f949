package plan

import (
	"context"
	"errors"
)

// Requests gives every request of the logs, in order of time, with the values of
// attributes, nil for one that a line has not. The values are valid during the call.
// What the options say of keys, limits and choices is not looked at.
func Requests(ctx context.Context, o Options, attributes []string, each func(at int64, values [][]byte) error) error {
	from := o.sources(ctx)
	defer closeAll(from)
	q, err := newExtraction(&o, attributes)
	if err != nil {
		return err
	}
	r, err := newReading(ctx, &o, q, from)
	if err != nil {
		return err
	}
	if err := errors.Join(r.run(ctx), r.judge()); err != nil {
		return err
	}
	values := make([][]byte, len(attributes))
	for _, e := range r.events {
		for i, part := range q.parts(r.clients.key(e.id)) {
			if values[i] = nil; part != "" {
				values[i] = []byte(part)
			}
		}
		if err := each(e.at, values); err != nil {
			return err
		}
	}
	return nil
}
