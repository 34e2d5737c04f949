package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// A logReader reads one log: blocks of lines, in the order of the file. A worker reads
// a block and parses it at once, while the text is in the cache of its core.
type logReader struct {
	input  *input
	ctx    context.Context
	blocks chan *block // in the order of the file; it has room for all of them
	order  *order

	mu    sync.Mutex // held by readers
	file  *accesslog.File
	ended bool

	raw    []event // as they came, for a sorter
	ready  []event // in order, to be given out
	over   bool
	newest int64 // that was read, where there are folds
}

// An input is a log before it is read.
type input struct {
	*source
	format      accesslog.Format
	first, last int64 // the times of the first and last line of the beginning
	head        []byte
	latest      int64     // the time of the last request that was read
	folds       []fold    // times without a zone that clocks showed twice
	places      []place   // where its requests stand, if it can be read from anywhere
	forwarded   bool      // most lines say for whom proxies asked
	written     time.Time // zero if that is not known
	about       FileReport
	size        int64
	cut         bool // its last line has no end and cannot be read
}

// A block is some lines of a log, and what they ask for.
type block struct {
	logReader *logReader
	err       error
	done      chan struct{}
	end       int64 // of its text in the file, or 0
	harvest
}

// A harvest is what a block's lines ask for.
type harvest struct {
	found   []found
	costs   []int64 // of each found, where requests have one
	keys    []byte
	tally   tallied
	missing []int64 // by part of the key: lines without
}

// A found request has its key in the block's keys, where those before it end. It
// is short: what goes from core to core is what two cores lose their time with.
type found struct {
	at     int64
	length uint32
}

// tallied is how many lines were what.
type tallied struct {
	lines, bad, aside, outside, unmatched, costless int64
	subsecond                                       int64 // lines with a time finer than a second
	cut                                             bool  // the last line, which has no end, is bad
	examples                                        []string
}

// mostExamples is how many bad lines are shown.
const mostExamples = 3

func (t *tallied) add(more *tallied) {
	t.lines += more.lines
	t.bad += more.bad
	t.aside += more.aside
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
	parsers   map[*accesslog.Format]accesslog.Parser
	extractor *extractor
	record    accesslog.Record
	text      []byte
}

// apart is room behind a worker's values, and cacheLine behind whatever else it
// writes for each line of the log: what is another's in the same line of the cache
// would slow both down by a third.
const (
	apart     = 3
	cacheLine = 64
)

func newWorker(q *extraction) *worker {
	return &worker{
		parsers: make(map[*accesslog.Format]accesslog.Parser), extractor: q.extractor(),
		record: accesslog.Record{Values: make([][]byte, len(q.attributes), len(q.attributes)+apart)},
	}
}

// read reads the next lines of a log into a block, unless the log or the context
// has ended before.
func (w *worker) read(b *block) {
	l := b.logReader
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	if b.err = nil; l.input.pipe == nil {
		b.err = l.ctx.Err() // a pipe says so itself, behind what it gave
	}
	var text []byte
	if b.err == nil {
		text, b.err = l.file.Next(w.text)
		b.end = 0
		if end, ok := l.file.End(); ok {
			b.end = end
		}
	}
	if b.err != nil {
		l.close()
	}
	l.blocks <- b
	l.mu.Unlock()
	if b.err == nil {
		w.text = text
		w.parse(b, text)
	}
	b.done <- struct{}{}
}

// close ends the reading of a logReader that is locked.
func (l *logReader) close() {
	if !l.ended {
		l.ended = true
		l.file.Close()
	}
}

// parse finds the requests of a block's text.
func (w *worker) parse(b *block, text []byte) {
	format := &b.logReader.input.format
	p := w.parsers[format]
	if p == nil {
		p = format.Parser()
		w.parsers[format] = p
		clear(w.record.Values) // what another parser put there
	}
	own := harvest{found: b.found[:0], costs: b.costs[:0], keys: b.keys[:0], missing: append(b.missing[:0], make([]int64, len(w.extractor.key))...)}
	defer func() { b.harvest = own }() // not in the block, which may lie beside that of another
	r := &w.record
	for len(text) > 0 {
		var line []byte
		line, text = accesslog.Line(text)
		if err := p.Parse(line, r); err != nil {
			own.tally.skip(line, err)
			own.tally.cut = text == nil && own.tally.bad > 0
			continue
		}
		own.tally.lines++
		if r.At < w.extractor.from || r.At >= w.extractor.to {
			own.tally.outside++
			continue
		}
		w.extractor.client(r.Values)
		if !w.extractor.counts(r.Values) {
			own.tally.unmatched++
			continue
		}
		w.find(&own)
	}
}

// find adds the request of the record at hand.
func (w *worker) find(to *harvest) {
	r, a := &w.record, w.extractor
	cost, known := a.units(r.Values)
	if !known {
		to.tally.costless++
	}
	if r.At%1e9 != 0 {
		to.tally.subsecond++
	}
	for i, k := range a.key {
		if r.Values[k] == nil && !a.identified(r.Values) {
			to.missing[i]++
		}
	}
	key := a.keyOf(r.Values)
	to.found = append(to.found, found{r.At, uint32(len(key))})
	to.keys = append(to.keys, key...)
	if a.cost >= 0 {
		to.costs = append(to.costs, cost)
	}
}

// skip notes a line that is no request.
func (t *tallied) skip(line []byte, err error) {
	if errors.Is(err, accesslog.ErrAside) {
		t.lines++
		t.aside++
	}
	if errors.Is(err, accesslog.ErrSkip) {
		return
	}
	t.lines++
	t.bad++
	if len(t.examples) < mostExamples {
		t.examples = append(t.examples, fmt.Sprintf("%v: %s", err, accesslog.Excerpt(line)))
	}
}

// inspect opens a log, recognises its format and finds its first time.
func inspect(ctx context.Context, from *source, q *extraction, o *Options) (*input, error) {
	file, err := from.open(ctx)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := &input{source: from, size: file.Size, head: file.Head(), written: file.Written()}
	in.format, err = file.Detect(accesslog.Options{Attributes: q.attributes, Fields: o.Fields, Format: o.Format, Zone: o.Zone, Latest: o.Latest})
	if err != nil {
		return nil, err
	}
	in.about = FileReport{Name: file.Name, Format: in.format.Name, NULs: file.NULs}
	in.forwarded = file.Has(in.format, "header.x-forwarded-for")
	in.first, in.last = file.Times(in.format.Parser(), len(q.attributes))
	if o.Zone != nil && o.Zone != time.UTC && in.first <= in.last && zoneless(file, in, q, o) {
		in.folds = foldsOf(o.Zone, in.first, in.written)
	}
	return in, nil
}

// zoneless reports whether the times of a log have no zone of their own: then
// they are others in another.
func zoneless(file *accesslog.File, in *input, q *extraction, o *Options) bool {
	_, east := time.Unix(0, in.first).In(o.Zone).Zone()
	format, err := file.Detect(accesslog.Options{
		Attributes: q.attributes, Fields: o.Fields, Format: o.Format, Zone: time.FixedZone("", east+3600), Latest: o.Latest,
	})
	if err != nil {
		return false
	}
	first, _ := file.Times(format.Parser(), len(q.attributes))
	return first != in.first
}

// start begins to read the log.
func (in *input) start(r *reading) (*logReader, error) {
	ctx := r.files
	if in.pipe != nil {
		ctx = r.ctx
	}
	l := &logReader{input: in, ctx: ctx, order: newOrder(int64(r.options.reorder()))}
	var err error
	if l.file, err = in.open(ctx); err != nil {
		return nil, err
	}
	r.open.Store(in.name, l.file)
	r.opened = append(r.opened, l)
	l.blocks = make(chan *block, r.depth())
	for range r.depth() {
		r.jobs <- &block{logReader: l, done: make(chan struct{}, 1)}
	}
	return l, nil
}

// depth is how many blocks of a log are read ahead.
func (r *reading) depth() int { return 2*r.workers + 2 }

// fill makes sure that some event is ready, unless the log is over.
func (l *logReader) fill(r *reading) error {
	for len(l.ready) == 0 && !l.over {
		b := r.next(l)
		switch {
		case interrupted(b.err):
			l.finish()
		case errors.Is(b.err, io.EOF) && !errors.Is(b.err, io.ErrUnexpectedEOF):
			l.finish()
		case b.err != nil:
			l.input.about.Error = b.err.Error()
			l.finish()
		default:
			r.take(l, b)
			r.jobs <- b
			if l.order.astray {
				return errAstray
			}
			l.ready = l.order.take()
		}
	}
	return nil
}

// errAstray ends a reading whose lines are later than --reorder puts right: it
// begins anew, and sorts.
var errAstray = errors.New("lines are out of order")

func (l *logReader) finish() {
	l.ready, l.over = l.order.rest(), true
}

// head is the time of the next event, the end of time if there is none.
func (l *logReader) head() int64 {
	if len(l.ready) == 0 {
		return math.MaxInt64
	}
	return l.ready[0].at
}
