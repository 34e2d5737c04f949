package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/stint-dev/stint/cmd/internal/accesslog"
)

// A lane reads one log: blocks of lines, which workers parse, in the order of
// the file.
type lane struct {
	input   *input
	file    *accesslog.File
	blocks  chan *block
	free    chan *block
	order   *order
	ready   []event // in order, to be given out
	over    bool
	stopped bool // before its end
}

// An input is a log before it is read.
type input struct {
	name   string
	format accesslog.Format
	first  int64 // the time of the first line that can be read
	file   *accesslog.File
	about  FileReport
	size   int64
}

// A block is some lines of a log, and what they ask for.
type block struct {
	text     []byte
	err      error
	question *question
	format   *accesslog.Format
	done     chan struct{}

	found   []found
	keys    []byte
	tally   tallied
	missing []int64 // by part of the key: lines without
}

// A found request has its key in the block's keys.
type found struct {
	at, cost int64
	hash     uint64
	start    uint32
	length   uint32
}

// tallied is how many lines were what.
type tallied struct {
	lines, bad, outside, unmatched, costless int64
	subsecond                                int64 // lines with a time finer than a second
	examples                                 []string
}

// mostExamples is how many bad lines are shown.
const mostExamples = 3

func (t *tallied) add(more *tallied) {
	t.lines += more.lines
	t.bad += more.bad
	t.outside += more.outside
	t.unmatched += more.unmatched
	t.costless += more.costless
	t.subsecond += more.subsecond
	for _, e := range more.examples {
		if len(t.examples) < mostExamples {
			t.examples = append(t.examples, e)
		}
	}
}

// A worker parses blocks. It keeps a parser for each format that it meets.
type worker struct {
	parsers map[*accesslog.Format]accesslog.Parser
	asker   *asker
	record  accesslog.Record
}

// apart is room behind a worker's values, which it writes for each line: those
// of another in the same line of the cache would slow both down by a third.
const apart = 3

func work(ctx context.Context, q *question, jobs <-chan *block) {
	w := worker{
		parsers: make(map[*accesslog.Format]accesslog.Parser), asker: q.asker(),
		record: accesslog.Record{Values: make([][]byte, len(q.attributes), len(q.attributes)+apart)},
	}
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-jobs:
			w.parse(b)
			b.done <- struct{}{}
		}
	}
}

// parse finds the requests of a block.
func (w *worker) parse(b *block) {
	p := w.parsers[b.format]
	if p == nil {
		p = b.format.Parser()
		w.parsers[b.format] = p
		clear(w.record.Values) // what another parser put there
	}
	b.found, b.keys, b.tally = b.found[:0], b.keys[:0], tallied{}
	b.missing = append(b.missing[:0], make([]int64, len(w.asker.key))...)
	r := &w.record
	for text := b.text; len(text) > 0; {
		var line []byte
		line, text = accesslog.Line(text)
		if err := p.Parse(line, r); err != nil {
			b.tally.skip(line, err)
			continue
		}
		b.tally.lines++
		if r.At < w.asker.from || r.At >= w.asker.to {
			b.tally.outside++
			continue
		}
		if !w.asker.counts(r.Values) {
			b.tally.unmatched++
			continue
		}
		w.find(b)
	}
}

// find adds the request of the record at hand.
func (w *worker) find(b *block) {
	r, a := &w.record, w.asker
	cost, known := a.units(r.Values)
	if !known {
		b.tally.costless++
	}
	if r.At%1e9 != 0 {
		b.tally.subsecond++
	}
	for i, k := range a.key {
		if r.Values[k] == nil {
			b.missing[i]++
		}
	}
	start := len(b.keys)
	b.keys = a.appendKey(b.keys, r.Values)
	key := b.keys[start:]
	b.found = append(b.found, found{r.At, cost, hashKey(key), uint32(start), uint32(len(key))})
}

// skip notes a line that is no request.
func (t *tallied) skip(line []byte, err error) {
	if errors.Is(err, accesslog.ErrSkip) {
		return
	}
	t.lines++
	t.bad++
	if len(t.examples) < mostExamples {
		t.examples = append(t.examples, fmt.Sprintf("%v: %s", err, accesslog.Excerpt(line)))
	}
}

// inspect opens a log, recognises its format and finds its first time. A log
// that can be opened again is closed.
func inspect(name string, stdin io.Reader, q *question, o *Options) (*input, error) {
	var file *accesslog.File
	var err error
	if name == "-" {
		file, err = accesslog.From("standard input", stdin, time.Time{})
	} else {
		file, err = accesslog.Open(name)
	}
	if err != nil {
		return nil, err
	}
	in := &input{name: name, size: file.Size}
	in.format, err = file.Detect(accesslog.Options{Attributes: q.attributes, Fields: o.Fields, Zone: o.Zone, Latest: o.Latest})
	if err != nil {
		file.Close()
		return nil, err
	}
	in.about = FileReport{Name: file.Name, Format: in.format.Name}
	in.first = file.First(in.format.Parser(), len(q.attributes))
	if name == "-" {
		in.file = file
	} else {
		file.Close()
	}
	return in, nil
}

// start begins to read the log.
func (in *input) start(ctx context.Context, r *reading) (*lane, error) {
	l := &lane{input: in, file: in.file, order: newOrder(int64(r.options.reorder()))}
	if l.file == nil {
		var err error
		if l.file, err = accesslog.Open(in.name); err != nil {
			return nil, err
		}
	}
	depth := 2 * r.workers
	l.blocks, l.free = make(chan *block, depth), make(chan *block, depth+2)
	for range depth + 2 {
		l.free <- &block{question: r.question, format: &in.format, done: make(chan struct{}, 1)}
	}
	r.files.Go(func() { l.read(ctx, r.jobs) })
	r.open.Store(in.name, l.file)
	return l, nil
}

// read hands blocks to the workers until the log ends.
func (l *lane) read(ctx context.Context, jobs chan<- *block) {
	defer l.file.Close()
	defer close(l.blocks)
	for {
		var b *block
		select {
		case <-ctx.Done():
			return
		case b = <-l.free:
		}
		if b.text, b.err = l.file.Next(b.text); b.err != nil {
			b.text = nil
			b.done <- struct{}{}
		}
		failed := b.err != nil
		select {
		case <-ctx.Done():
			return
		case l.blocks <- b:
		}
		if failed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case jobs <- b:
		}
	}
}

// fill makes sure that some event is ready, unless the log is over or the
// context has ended: then what has been read is all.
func (l *lane) fill(ctx context.Context, r *reading) {
	for len(l.ready) == 0 && !l.over {
		b := l.next(ctx)
		switch {
		case b == nil:
			l.stopped = true
			l.finish()
		case errors.Is(b.err, io.EOF) && !errors.Is(b.err, io.ErrUnexpectedEOF):
			l.finish()
		case b.err != nil:
			l.input.about.Error = b.err.Error()
			l.finish()
		default:
			r.take(l, b)
			l.free <- b
			l.ready = l.order.take()
		}
	}
}

// next returns the next block once it is parsed, nil when the context ends.
func (l *lane) next(ctx context.Context) *block {
	if ctx.Err() != nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case b, ok := <-l.blocks:
		if !ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.done:
			return b
		}
	}
}

func (l *lane) finish() {
	l.ready, l.over = l.order.rest(), true
}

// head is the time of the next event, the end of time if there is none.
func (l *lane) head() int64 {
	if len(l.ready) == 0 {
		return math.MaxInt64
	}
	return l.ready[0].at
}
