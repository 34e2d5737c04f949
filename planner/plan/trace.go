package plan

import (
	"context"
	"errors"

	"github.com/stint-dev/stint/internal/wording"
)

// A Trace is when one client sent its requests, or when all clients did.
type Trace struct {
	// Times are in nanoseconds since the Unix epoch, in order.
	Times []int64
	// Requests is how many requests there were, also those that are not in Times.
	Requests int64
}

// TraceOf reads the logs for the requests of a client, named as in a [Report], or of all clients if
// client is "". It keeps the times of the first most requests. It ignores the options for limits.
// When the context ends, it returns the context's error.
func TraceOf(ctx context.Context, o Options, client string, most int) (*Trace, error) {
	if len(o.Key) == 0 {
		o.Key = []string{"ip"}
	}
	r, err := readAll(ctx, &o, nil)
	if err != nil {
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
		}
	}
	return t, nil
}

// Requests passes every request of the logs to each, in order of time, with the values of
// attributes, nil for a value that a line lacks. The values are valid during the call. It ignores
// the options for keys, limits and choices. The findings are about the logs alone: where one stops
// a proposal, do not trust the requests. Unread is how many requests the lines that could not be read
// may hold, rather too many than too few, apart from the last line of a log that is cut off.
func Requests(ctx context.Context, o Options, attributes []string, each func(at int64, values [][]byte) error) (found []Finding, unread int64, err error) {
	r, err := readAll(ctx, &o, attributes)
	if err != nil {
		return nil, 0, err
	}
	values := make([][]byte, len(attributes))
	for _, e := range r.events {
		for i, value := range r.extraction.values(r.clients.key(e.id)) {
			if values[i] = nil; value != "" {
				values[i] = []byte(value)
			}
		}
		if err := each(e.at, values); err != nil {
			return nil, 0, err
		}
	}
	r.logs(adder(&found))
	if n := r.tally.aside; n > 0 {
		adder(&found)("aside", false, "%s about the server itself: left out", wording.Count(n, "line"))
	}
	unread = r.tally.lost
	for _, in := range r.inputs {
		unread -= in.cut
	}
	return found, unread, nil
}

// readAll reads logs without counting clients. If whole is given, each request has all of these
// attributes as its key.
func readAll(ctx context.Context, o *Options, whole []string) (*reading, error) {
	q, err := newExtraction(o, whole)
	if err != nil {
		return nil, err
	}
	from, _, _, err := o.sources(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(from)
	r, err := newReading(o, q, from)
	if err != nil {
		return nil, err
	}
	return r, errors.Join(r.run(ctx), r.judge())
}
