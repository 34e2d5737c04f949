package plan

import (
	"context"
	"io"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// A place is a block of a log: where it ends, it begins where the one before it
// does, and of when its requests are.
type place struct{ end, first, last int64 }

// Moments are when some clients sent something, by parts of the log's time: a
// sink.
type moments struct {
	first, width int64
	sent         [slots + 1]uint32 // by part, then in all parts before
}

// slots is how many parts the time of a log is divided into: there are fewer blocks in 16 GB.
const slots = 1 << 16

// worthwhile is how many requests for each block of the logs are few enough that
// many blocks have none. It is not a constant, so that a test need not write logs
// of many blocks.
var worthwhile = 4

// when returns when clients sent something, nil if that is not kept or if it is
// nearly always.
func (w *run) when(ctx context.Context, ids []uint32) *moments {
	if w.options.Choose == nil || len(ids) == 0 {
		return nil
	}
	skip := make([]bool, w.clients.len())
	for i := range skip {
		skip[i] = true
	}
	blocks, requests := 0, 0
	for _, in := range w.inputs {
		blocks += len(in.places)
	}
	for _, id := range ids {
		if skip[id] {
			skip[id] = false
			requests += int(w.sent[id])
		}
	}
	if requests > worthwhile*blocks {
		return nil
	}
	m := &moments{first: w.first, width: (w.last-w.first)/slots + 1}
	if w.spool.replay(ctx, skip, m) != nil {
		return nil
	}
	sum := uint32(0)
	for i, n := range m.sent {
		m.sent[i] = sum
		sum += n
	}
	return m
}

func (m *moments) add(events []event) {
	for i := range events {
		m.sent[m.part(events[i].at)]++
	}
}

// part returns the part of the time that a moment is in, the nearest if it is in
// none: what was read last need not have been counted.
func (m *moments) part(at int64) int64 { return min(max((at-m.first)/m.width, 0), slots-1) }

// any reports whether something was sent in a stretch of time.
func (m *moments) any(first, last int64) bool {
	return first <= last && m.sent[m.part(last)+1] > m.sent[m.part(first)]
}

// blocks returns what reads those blocks of a log in which something was sent.
func (m *moments) blocks(file *accesslog.File, places []place) func(buf []byte) ([]byte, error) {
	return readPlaces(file, places, m.any)
}

// readPlaces returns what reads those blocks of a log whose first and last moment
// are such as one wants.
func readPlaces(file *accesslog.File, places []place, want func(first, last int64) bool) func(buf []byte) ([]byte, error) {
	start := int64(0)
	return func(buf []byte) ([]byte, error) {
		for len(places) > 0 {
			from, here := start, places[0]
			start, places = here.end, places[1:]
			if want(here.first, here.last) {
				return file.Again(buf, from, here.end)
			}
		}
		return nil, io.EOF
	}
}
