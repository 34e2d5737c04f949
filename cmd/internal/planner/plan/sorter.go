package plan

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
)

// A sorter puts any number of events in order of time, those of one moment in
// the order in which they came. It sorts as many as fit into sortEvents at a
// time, keeps these runs in a file without a name, and merges them at the end.
type sorter struct {
	events, other []event
	runs          []stretch
	file          *os.File
	size          int64
}

// A stretch is where a run stands in the file.
type stretch struct{ start, end int64 }

// sortEvents is how many events are sorted at a time, 24 bytes each and as much
// again while they are. It is not a constant, so that a test need not fill it.
var sortEvents = 2 << 20

func (s *sorter) add(e event) error {
	if s.events == nil {
		s.events = make([]event, 0, min(sortEvents, 64<<10))
	}
	s.events = append(s.events, e)
	if len(s.events) >= sortEvents {
		return s.spill()
	}
	return nil
}

// spill sorts what is at hand and puts it into the file.
func (s *sorter) spill() error {
	if s.file == nil {
		f, err := unnamed()
		if err != nil {
			return err
		}
		s.file = f
	}
	w := &writerAt{file: s.file, at: s.size}
	out := bufio.NewWriterSize(w, spoolChunk)
	var one encoder
	for _, e := range s.sorted() {
		if _, err := out.Write(one.encode(&e)); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	s.runs = append(s.runs, stretch{s.size, w.at})
	s.size, s.events = w.at, s.events[:0]
	return nil
}

// A writerAt writes on from a place in a file.
type writerAt struct {
	file *os.File
	at   int64
}

// Write implements [io.Writer].
func (w *writerAt) Write(p []byte) (int, error) {
	n, err := w.file.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}

// sorted sorts the events at hand: it merges what is in order already, so that
// a log of newest first or of several servers in a row takes few passes.
func (s *sorter) sorted() []event {
	runs := rising(s.events)
	if len(runs) > 2 && len(s.other) < len(s.events) {
		s.other = make([]event, cap(s.events))
	}
	from, to := s.events, s.other
	for len(runs) > 2 { // runs has the end as well
		kept := runs[:1]
		for i := 0; i+1 < len(runs); i += 2 {
			a, b, end := runs[i], runs[i+1], runs[min(i+2, len(runs)-1)]
			mergeRuns(to[a:end], from[a:b], from[b:end])
			kept = append(kept, end)
		}
		if kept[len(kept)-1] == kept[max(len(kept)-2, 0)] {
			kept = kept[:len(kept)-1]
		}
		runs, from, to = kept, to[:len(from)], from
	}
	if len(from) > 0 && &from[0] != &s.events[0] {
		s.events, s.other = from, to[:cap(to)]
	}
	return s.events
}

// rising returns where the runs begin that do not fall, and the end. What falls
// or stays is turned around first, each moment by itself left as it was.
func rising(events []event) []int {
	runs := []int{0}
	for start := 0; start < len(events); {
		end := start + 1
		for end < len(events) && events[end].at <= events[end-1].at {
			end++
		}
		if events[end-1].at < events[start].at {
			reverse(events[start:end])
		}
		for end < len(events) && events[end].at >= events[end-1].at {
			end++
		}
		runs = append(runs, end)
		start = end
	}
	return runs
}

// reverse puts events into the opposite order, those of one moment excepted among themselves.
func reverse(events []event) {
	reverse := func(e []event) {
		for i, j := 0, len(e)-1; i < j; i, j = i+1, j-1 {
			e[i], e[j] = e[j], e[i]
		}
	}
	reverse(events)
	for start := 0; start < len(events); {
		end := start + 1
		for end < len(events) && events[end].at == events[start].at {
			end++
		}
		reverse(events[start:end])
		start = end
	}
}

// mergeRuns merges two runs, of which a came first.
func mergeRuns(to, a, b []event) {
	for i := range to {
		if len(b) == 0 || len(a) > 0 && a[0].at <= b[0].at {
			to[i], a = a[0], a[1:]
		} else {
			to[i], b = b[0], b[1:]
		}
	}
}

// each gives all events out in order, some at a time; they are valid during the
// call.
func (s *sorter) each(ctx context.Context, give func([]event)) error {
	if s.file == nil {
		for events := s.sorted(); len(events) > 0; {
			n := min(batch, len(events))
			give(events[:n])
			events = events[n:]
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.events, s.other = nil, nil
	return s.merge(ctx, give)
}

// A cursor is the next event of a run.
type cursor struct {
	event
	run int
	in  *bufio.Reader
}

func (c *cursor) before(d *cursor) bool { return c.at < d.at || c.at == d.at && c.run < d.run }

// merge merges the runs of the file, with a heap of their next events.
func (s *sorter) merge(ctx context.Context, give func([]event)) error {
	var heap []cursor
	for i, r := range s.runs {
		in := bufio.NewReaderSize(io.NewSectionReader(s.file, r.start, r.end-r.start), 64<<10)
		e, err := next(in, 0)
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return err
		}
		heap = append(heap, cursor{e, i, in})
		for k := len(heap) - 1; k > 0 && heap[k].before(&heap[(k-1)/2]); k = (k - 1) / 2 {
			heap[k], heap[(k-1)/2] = heap[(k-1)/2], heap[k]
		}
	}
	events := make([]event, 0, batch)
	for len(heap) > 0 {
		top := &heap[0]
		if events = append(events, top.event); len(events) == batch {
			give(events)
			events = events[:0]
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		e, err := next(top.in, top.at)
		switch {
		case err == nil:
			top.event = e
		case errors.Is(err, io.EOF):
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		default:
			return err
		}
		sift(heap)
	}
	if len(events) > 0 {
		give(events)
	}
	return nil
}

// sift brings the first of a heap to its place.
func sift(heap []cursor) {
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(heap); k++ {
			if heap[k].before(&heap[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
}
