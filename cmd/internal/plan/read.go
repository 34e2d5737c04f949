package plan

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/accesslog"
)

// A sink is told of every request, in order of time. The events are valid
// during the call.
type sink interface {
	add(events []event)
}

// A reading is one pass over the logs: files that begin later are opened
// later, files of the same time are merged, and each client gets its number.
type reading struct {
	options  *Options
	question *question
	workers  int
	jobs     chan *block
	files    sync.WaitGroup
	open     sync.Map // of what is read, by name, for the progress

	inputs  []*input // by their first time
	lanes   []*lane
	clients *clients
	ignored []bool // by client
	sinks   []sink
	tell    func([]event)
	inline  bool // the sinks look at the clients

	tally              tallied
	requests, excluded int64
	missing            []int64
	reordered, moved   int64
	stuck              bool // in reading standard input
	first, last        int64
}

// newReading looks at the logs without reading them.
func newReading(o *Options, q *question, sinks []sink) (*reading, error) {
	r := &reading{
		options: o, question: q, workers: runtime.GOMAXPROCS(0), clients: newClients(),
		sinks: sinks, missing: make([]int64, len(q.key)),
	}
	for _, name := range o.Files {
		in, err := inspect(name, o.Stdin, q, o)
		if err != nil {
			r.close()
			return nil, err
		}
		r.inputs = append(r.inputs, in)
	}
	return r, nil
}

func (r *reading) close() {
	for _, in := range r.inputs {
		if in.file != nil {
			in.file.Close()
		}
	}
}

// run reads everything. When the context ends, what was read until then has
// been given to the sinks, and the error is the context's.
func (r *reading) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	r.jobs = make(chan *block, r.workers)
	var workers sync.WaitGroup
	for range r.workers {
		workers.Go(func() { work(ctx, r.question, r.jobs) })
	}
	told := r.telling()
	err := r.merge(ctx)
	told()
	stop()
	r.finish(&workers)
	return err
}

// finish waits for those who read and parse. One that waits for standard input
// cannot be woken; nobody waits for it either.
func (r *reading) finish(workers *sync.WaitGroup) {
	workers.Wait()
	if !r.stuck {
		r.files.Wait()
	}
}

// merge gives events out in order of time over all files.
func (r *reading) merge(ctx context.Context) error {
	waiting := slices.Clone(r.inputs)
	slices.SortStableFunc(waiting, func(a, b *input) int { return int(min(max(a.first-b.first, -1), 1)) })
	for {
		for _, l := range r.lanes {
			l.fill(ctx, r)
		}
		r.retire()
		next, bound := r.choose()
		if len(waiting) > 0 && ctx.Err() == nil {
			begins := waiting[0].first - int64(r.options.reorder())
			if next == nil || next.head() >= begins {
				l, err := waiting[0].start(ctx, r)
				if err != nil {
					return err
				}
				r.lanes, waiting = append(r.lanes, l), waiting[1:]
				continue
			}
			bound = min(bound, begins-1)
		}
		if next == nil {
			return ctx.Err()
		}
		n := len(next.ready)
		if next.ready[n-1].at > bound {
			n = 1
			for next.ready[n].at <= bound {
				n++
			}
		}
		r.give(next.ready[:n])
		next.ready = next.ready[n:]
	}
}

// retire forgets the lanes that have nothing left.
func (r *reading) retire() {
	r.lanes = slices.DeleteFunc(r.lanes, func(l *lane) bool {
		over := l.over && len(l.ready) == 0
		if over {
			r.reordered += l.order.reordered
			r.moved += l.order.moved
			r.stuck = r.stuck || l.stopped && l.input.name == "-"
		}
		return over
	})
}

// choose returns the lane that is next, and up to when it is.
func (r *reading) choose() (next *lane, bound int64) {
	bound = 1<<63 - 1
	for _, l := range r.lanes {
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
func (r *reading) take(l *lane, b *block) {
	r.tally.add(&b.tally)
	l.input.about.Lines += b.tally.lines
	l.input.about.Bad += b.tally.bad
	for i, n := range b.missing {
		r.missing[i] += n
	}
	for i := range b.found {
		f := &b.found[i]
		key := b.keys[f.start : f.start+f.length]
		id, fresh := r.clients.number(f.hash, key)
		if fresh {
			r.ignored = append(r.ignored, slices.Contains(r.options.IgnoreKeys, r.question.name(key)))
		}
		if r.ignored[id] {
			r.excluded++
			continue
		}
		l.order.add(event{f.at, f.cost, id})
	}
}

// give tells the sinks.
func (r *reading) give(events []event) {
	if r.requests == 0 {
		r.first = events[0].at
	}
	r.requests += int64(len(events))
	r.last = events[len(events)-1].at
	r.tell(events)
}

// telling starts a goroutine that tells the sinks, beside the one that puts
// requests in order. Sinks that look at the keys of clients want to be told
// where these are given: inline.
func (r *reading) telling() (stop func()) {
	if r.inline {
		r.tell = r.direct
		return func() {}
	}
	const depth = 4
	free, full := make(chan []event, depth), make(chan []event, depth)
	for range depth {
		free <- nil
	}
	r.tell = func(events []event) { full <- append((<-free)[:0], events...) }
	var teller sync.WaitGroup
	teller.Go(func() {
		for events := range full {
			r.direct(events)
			free <- events
		}
	})
	return func() { close(full); teller.Wait() }
}

func (r *reading) direct(events []event) {
	for _, s := range r.sinks {
		s.add(events)
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
		if in.size == 0 && in.name == "-" {
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

// interrupted reports whether a pass ended because it was told to.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
