package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/planner/accesslog"
)

// An event is a request as sinks receive it.
type event struct {
	at   int64 // nanoseconds since the epoch
	cost int64
	id   uint32 // number of the client
	seq  uint32 // number of the request, in the order of the logs
}

// mostEvents bounds the events in memory, 24 bytes each. It is a variable, so that a test can lower
// it.
var mostEvents = 200_000_000

// A sink receives every request that counts, in order of time. The events are valid
// during the call.
type sink interface {
	add(events []event)
}

// A reading is the requests of the logs in order of time, those of one moment in the order of their
// lines, and a number for each client.
type reading struct {
	options    *Options
	extraction *extraction
	workers    int
	open       sync.Map // open files by name, for the progress

	inputs  []*input // by their first time
	clients *clients
	leaves  leaves
	ignored []bool   // by client: has no say
	exempt  []bool   // by client: has no say, and the rule lets it through
	sent    []uint32 // by client, also the ignored
	events  []event  // of all clients

	tally              tallied
	carried            carried
	requests, excluded int64
	missing            []int64
	reordered          int64
	first, last        int64
}

// newReading looks at the logs without reading them.
func newReading(o *Options, q *extraction, from []*source) (*reading, error) {
	r := &reading{
		options: o, extraction: q, workers: runtime.GOMAXPROCS(0), clients: newClients(),
		missing: make([]int64, len(q.key)), leaves: newLeaves(o), carried: newCarried(),
	}
	for _, s := range from {
		in, err := inspect(s, q, o)
		if err != nil {
			return nil, err
		}
		r.inputs = append(r.inputs, in)
	}
	slices.SortStableFunc(r.inputs, func(a, b *input) int { return cmp.Compare(a.first, b.first) })
	return r, nil
}

// run reads everything. When the context ends, it keeps what was read until then and returns the
// context's error.
func (r *reading) run(ctx context.Context) error {
	stop := r.options.watch("reading", r.position)
	defer stop()
	for _, in := range r.inputs {
		if err := r.load(ctx, in); err != nil {
			return err
		}
	}
	order := func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(r.events, order) {
		slices.SortFunc(r.events, order)
	}
	if n := len(r.events); n > 0 {
		r.first, r.last = r.events[0].at, r.events[n-1].at
	}
	return ctx.Err()
}

// load reads one log: one goroutine reads, several parse, and the caller takes the requests in the
// order of the log.
func (r *reading) load(ctx context.Context, in *input) error {
	file, err := in.open()
	if err != nil {
		return err
	}
	defer file.Close()
	r.open.Store(in.name, file)
	free, jobs, order := make(chan *block, 2*r.workers), make(chan *block), make(chan *block, 2*r.workers)
	for range cap(free) {
		free <- &block{done: make(chan struct{}, 1), harvest: harvest{carried: newCarried()}}
	}
	var all sync.WaitGroup
	all.Go(func() {
		defer close(order)
		defer close(jobs)
		for b := range free {
			if ctx.Err() != nil {
				return
			}
			if b.text, b.err = file.Next(b.text); b.err != nil {
				order <- b
				return
			}
			order <- b
			jobs <- b
		}
	})
	for range r.workers {
		all.Go(func() {
			w := newWorker(r.extraction, in)
			for b := range jobs {
				w.parse(b)
				b.done <- struct{}{}
			}
		})
	}
	err = nil
	for b := range order {
		if b.err != nil {
			if !errors.Is(b.err, io.EOF) || errors.Is(b.err, io.ErrUnexpectedEOF) {
				in.about.Error = b.err.Error()
			}
			continue
		}
		if <-b.done; err == nil {
			if err = r.take(in, &b.harvest); err != nil {
				close(free)
			}
		}
		if err == nil {
			free <- b
		}
	}
	all.Wait()
	return err
}

// take gives the requests of a block the numbers of their clients.
func (r *reading) take(in *input, b *harvest) error {
	most := cmp.Or(r.options.Most, mostEvents)
	if len(r.events)+len(b.found) > most {
		return fmt.Errorf("%s: over %s requests, more than are kept in memory: take a part, such as with --from and --to of stint plan", in.about.Name, wording.Grouped(int64(most)))
	}
	if need := len(r.events) + len(b.found); need > cap(r.events) {
		if read, of := r.position(); of > read { // reserve for the rest of the files
			need = min(int(float64(need)*1.05*float64(of)/float64(max(read, 1))), most)
		}
		r.events = slices.Grow(r.events, need-len(r.events))
	}
	r.tally.add(&b.tally)
	r.carried.join(&b.carried)
	in.about.Lines += b.tally.lines
	in.about.Bad += b.tally.bad
	in.cut = b.tally.cut
	for i, n := range b.missing {
		r.missing[i] += n
	}
	keys := b.keys
	for i := range b.found {
		f := &b.found[i]
		if f.at < in.latest {
			r.reordered++
		}
		in.latest = max(in.latest, f.at)
		key := keys[:f.length]
		keys = keys[f.length:]
		id, fresh := r.clients.number(key)
		if fresh {
			one := r.leaves.find(r.extraction, r.clients.key(id))
			r.ignored = append(r.ignored, one != nil)
			r.exempt = append(r.exempt, one != nil && one.exempt)
			r.sent = append(r.sent, 0)
		}
		r.sent[id]++
		if r.ignored[id] {
			r.excluded++
		} else {
			r.requests++
		}
		e := event{f.at, 1, id, uint32(len(r.events))}
		if len(b.costs) > 0 {
			e.cost = b.costs[i]
		}
		r.events = append(r.events, e)
	}
	return nil
}

// batch is how many events are passed on at once.
const batch = 4096

// replay passes the events to the sinks, each in its own goroutine, without those of clients in
// skip. It may be called repeatedly.
func (r *reading) replay(ctx context.Context, skip []bool, sinks ...sink) error {
	skips := slices.Contains(skip, true)
	var all sync.WaitGroup
	for _, s := range sinks {
		all.Go(func() {
			var some []event
			for events := range slices.Chunk(r.events, batch) {
				if ctx.Err() != nil {
					return
				}
				if skips {
					some = some[:0]
					for _, e := range events {
						if !skip[e.id] {
							some = append(some, e)
						}
					}
					events = some
				}
				if len(events) > 0 {
					s.add(events)
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// judge returns an error if most lines could not be read.
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

// position returns how many bytes have been read, and how many there are.
func (r *reading) position() (read, of int64) {
	for _, in := range r.inputs {
		of += in.size
	}
	r.open.Range(func(_, f any) bool {
		read += f.(*accesslog.File).Position()
		return true
	})
	return read, of
}

// watch reports the progress to the observer now and then, until stop is called.
func (o *Options) watch(what string, position func() (read, of int64)) (stop func()) {
	if o.Progress == nil {
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
				read, of := position()
				o.Progress(what, read, of)
			}
		}
	})
	return func() { close(done); watcher.Wait() }
}

// interrupted reports whether a pass ended because the context did.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
