package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// A sink receives every request, in order of time. The events are valid
// during the call.
type sink interface {
	add(events []event)
}

// A reading is one pass over the logs: files that begin later are opened
// later, files of the same time are merged, and each client gets its number.
type reading struct {
	options    *Options
	extraction *extraction
	workers    int
	jobs       chan *block     // to be read; it has room for those of all logs
	halt       chan struct{}   // closed when nothing more is wanted
	ctx        context.Context // of what reads pipes
	files      context.Context // of what reads files
	opened     []*logReader
	open       sync.Map // of what is read, by name, for the progress

	inputs     []*input // by their first time
	logReaders []*logReader
	clients    *clients
	leaves     leaves
	ignored    []bool      // by client: not counted
	exempt     []bool      // by client: of those ignored, let through by the rule
	sent       []uint32    // by client, those ignored included
	sorter     *sorter     // nil while lines are in order
	sinks      []sink      // receive the requests that count
	whole      []sink      // receive all
	rest       []event     // of a batch, those that count
	inline     bool        // the sinks look at the clients: they are called where these get their numbers
	dispatcher *dispatcher // nil if the sinks are called directly
	own        *worker     // of the goroutine that puts requests in order; nil if it does not parse

	tally              tallied
	requests, excluded int64
	missing            []int64
	reordered          int64
	overlaps           [2]string // a log that begins within another
	repeated           string    // a log that holds its own beginning again
	first, last        int64
}

// newReading looks at the logs without reading them.
func newReading(ctx context.Context, o *Options, q *extraction, from []*source, sinks []sink) (*reading, error) {
	r := &reading{
		options: o, extraction: q, workers: runtime.GOMAXPROCS(0), clients: newClients(),
		sinks: sinks, missing: make([]int64, len(q.key)), leaves: newLeaves(o),
	}
	for _, s := range from {
		in, err := inspect(ctx, s, q, o)
		if err != nil {
			return nil, err
		}
		r.inputs = append(r.inputs, in)
	}
	return r, nil
}

// backwards reports whether a log begins later than it goes on: then it need
// not be read to know that it must be sorted.
func (r *reading) backwards() bool {
	return slices.ContainsFunc(r.inputs, func(in *input) bool { return in.first-in.last > int64(r.options.reorder()) })
}

// run reads everything. When the context ends, what was read until then has
// been given to the sinks, and the error is the context's. While there are pipes,
// it ends these, and files are read on: they were waiting for the pipes. The error
// errAstray means that it must be done again with a sorter.
func (r *reading) run(ctx context.Context) error {
	var stop, stopFiles context.CancelFunc
	r.ctx, stop = context.WithCancel(ctx)
	defer stop()
	r.files, stopFiles = context.WithCancel(context.WithoutCancel(ctx))
	defer stopFiles()
	defer context.AfterFunc(ctx, func() {
		if !r.piped() {
			stopFiles()
		}
	})()
	r.jobs, r.halt = make(chan *block, r.depth()*len(r.inputs)), make(chan struct{})
	workers := r.begin()
	var err error
	if r.sorter != nil {
		err = r.sort()
	} else {
		err = r.merge()
	}
	if r.dispatcher != nil {
		r.dispatcher.finish()
	}
	stop()
	stopFiles()
	close(r.halt)
	workers.Wait()
	for _, l := range r.opened {
		l.close()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(r.inputs) > 1 {
		err = r.overlap(ctx)
	}
	if err == nil && r.sorter != nil {
		err = r.repeat(ctx)
	}
	return err
}

// begin starts the workers, one for each core. One of them is the goroutine that
// puts requests in order, which parses while it waits for a block: not where there
// are pipes, since it would wait for one that is silent.
func (r *reading) begin() *sync.WaitGroup {
	if !r.inline && r.workers > 1 {
		r.dispatcher = newDispatcher(r.whole, r.sinks)
	}
	n := r.workers
	if !slices.ContainsFunc(r.inputs, func(in *input) bool { return in.pipe != nil }) {
		r.own = newWorker(r.extraction)
		n--
	}
	var workers sync.WaitGroup
	for range n {
		workers.Go(r.work)
	}
	return &workers
}

// work parses blocks, and tells the sinks what was found.
func (r *reading) work() {
	w := newWorker(r.extraction)
	var bell chan struct{}
	if r.dispatcher != nil {
		bell = r.dispatcher.bell
	}
	for {
		select {
		case <-r.halt:
			return
		case <-bell:
			r.dispatcher.callSinks()
		case b := <-r.jobs:
			w.read(b)
		}
	}
}

// help parses a block that waits, and reports whether there was one.
func (r *reading) help() bool {
	if r.own == nil {
		return false
	}
	select {
	case b := <-r.jobs:
		r.own.read(b)
		return true
	default:
		return false
	}
}

// next returns the next block of a logReader once it has been parsed.
func (r *reading) next(l *logReader) *block {
	b := await(r, l.blocks)
	await(r, b.done)
	return b
}

// await receives what others send. Meanwhile it helps them.
func await[T any](r *reading, from <-chan T) T {
	for {
		select {
		case got := <-from:
			return got
		default:
			if !r.help() {
				return <-from
			}
		}
	}
}

// piped reports whether there are pipes that have not ended by themselves.
func (r *reading) piped() bool {
	return slices.ContainsFunc(r.inputs, func(in *input) bool { return in.pipe != nil && !in.pipe.whole.Load() })
}

// sort reads all files and gives out their events in order.
func (r *reading) sort() error {
	defer r.sorter.close()
	for _, in := range r.inputs {
		l, err := in.start(r)
		if err != nil {
			return err
		}
		for newest := int64(0); !l.over; {
			b := r.next(l)
			if b.err != nil {
				if !interrupted(b.err) && (!errors.Is(b.err, io.EOF) || errors.Is(b.err, io.ErrUnexpectedEOF)) {
					in.about.Error = b.err.Error()
				}
				break
			}
			r.take(l, b)
			for _, e := range l.raw {
				if e.at < newest {
					r.reordered++
				}
				newest = max(newest, e.at)
				if err := r.sorter.add(e); err != nil {
					return err
				}
			}
			l.raw = l.raw[:0]
			r.jobs <- b
		}
	}
	return r.sorter.each(context.WithoutCancel(r.ctx), func(events []event) {
		for i := range events {
			events[i].out = r.ignored[events[i].id]
		}
		r.give(events)
	})
}

// merge gives events out in order of time over all files.
func (r *reading) merge() error {
	waiting := slices.Clone(r.inputs)
	slices.SortStableFunc(waiting, func(a, b *input) int { return cmp.Compare(a.first, b.first) })
	for {
		for _, l := range r.logReaders {
			if err := l.fill(r); err != nil {
				return err
			}
		}
		r.retire()
		next, bound := r.choose()
		if r.files.Err() != nil { // what a pipe gave is not lost
			waiting = slices.DeleteFunc(waiting, func(in *input) bool { return in.pipe == nil })
		}
		if len(waiting) > 0 {
			begins := waiting[0].first - int64(r.options.reorder())
			if next == nil || next.head() >= begins {
				l, err := waiting[0].start(r)
				if err != nil {
					return err
				}
				r.logReaders, waiting = append(r.logReaders, l), waiting[1:]
				continue
			}
			bound = min(bound, begins-1)
		}
		if next == nil {
			return r.ctx.Err()
		}
		n := len(next.ready)
		if next.ready[n-1].at > bound {
			n = 1
			for next.ready[n].at <= bound {
				n++
			}
		}
		if r.requests+r.excluded > 0 && next.ready[0].at < r.last {
			return errAstray
		}
		r.give(next.ready[:n])
		next.ready = next.ready[n:]
	}
}

// retire forgets the logReaders that have nothing left.
func (r *reading) retire() {
	r.logReaders = slices.DeleteFunc(r.logReaders, func(l *logReader) bool {
		over := l.over && len(l.ready) == 0
		if over {
			r.reordered += l.order.reordered
		}
		return over
	})
}

// choose returns the logReader that is next, and up to when it is.
func (r *reading) choose() (next *logReader, bound int64) {
	bound = 1<<63 - 1
	for _, l := range r.logReaders {
		switch {
		case len(l.ready) == 0:
		case next == nil:
			next = l
		case l.head() < next.head():
			bound, next = next.head()-1, l
		default:
			bound = min(bound, l.head())
		}
	}
	if next != nil {
		bound = max(bound, next.head())
	}
	return next, bound
}

// take gives the requests of a block their clients.
func (r *reading) take(l *logReader, b *block) {
	r.tally.add(&b.tally)
	l.input.about.Lines += b.tally.lines
	l.input.about.Bad += b.tally.bad
	l.input.cut = b.tally.cut
	for i, n := range b.missing {
		r.missing[i] += n
	}
	keys := b.keys
	here := place{end: b.end, first: math.MaxInt64, last: math.MinInt64}
	for i := range b.found {
		f := &b.found[i]
		if l.input.folds != nil {
			f.at = l.unfold(f.at)
		}
		here.first, here.last = min(here.first, f.at), max(here.last, f.at)
		l.input.latest = max(l.input.latest, f.at)
		key := keys[:f.length]
		keys = keys[f.length:]
		id, fresh := r.clients.number(hashKey(key), key)
		if fresh {
			one := r.leaves.find(r.extraction, key)
			r.ignored = append(r.ignored, one != nil)
			r.exempt = append(r.exempt, one != nil && one.exempt)
			r.sent = append(r.sent, 0)
		}
		r.sent[id]++
		e := event{f.at, 1, id, r.ignored[id]}
		if len(b.costs) > 0 {
			e.cost = b.costs[i]
		}
		if r.sorter != nil {
			l.raw = append(l.raw, e)
		} else {
			l.order.add(e)
		}
	}
	if b.end > 0 {
		l.input.places = append(l.input.places, here)
	}
}

// give hands events to the sinks.
func (r *reading) give(events []event) {
	if r.requests+r.excluded == 0 {
		r.first = events[0].at
	}
	r.last = events[len(events)-1].at
	counted := events
	if len(r.leaves) > 0 {
		r.rest = r.rest[:0]
		for i := range events {
			if !events[i].out {
				r.rest = append(r.rest, events[i])
			}
		}
		counted = r.rest
	}
	r.requests += int64(len(counted))
	r.excluded += int64(len(events) - len(counted))
	if r.dispatcher != nil {
		r.dispatcher.send(events, counted)
		return
	}
	for _, s := range r.whole {
		s.add(events)
	}
	if len(counted) > 0 {
		for _, s := range r.sinks {
			s.add(counted)
		}
	}
}

// judge returns an error if most of what was read could not be.
func (r *reading) judge() error {
	if r.tally.bad*2 <= r.tally.lines {
		return nil
	}
	example := ""
	if len(r.tally.examples) > 0 {
		example = ", such as\n" + r.tally.examples[0]
	}
	return fmt.Errorf("%d of %d lines cannot be read%s", r.tally.bad, r.tally.lines, example)
}

// position returns how many bytes have been read of how many; of is 0 when
// that is not known.
func (r *reading) position() (read, of int64) {
	for _, in := range r.inputs {
		if in.pipe != nil {
			of = -1 << 62
		}
		of += in.size
	}
	r.open.Range(func(_, f any) bool {
		read += f.(*accesslog.File).Position()
		return true
	})
	return read, max(of, 0)
}

// watch calls the observer now and then until stop is called.
func (r *reading) watch(what string) (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				read, of := r.position()
				r.options.Progress(what, read, of)
			}
		}
	})
	return func() { close(done); watcher.Wait() }
}

// interrupted reports whether a pass ended because its context did.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
