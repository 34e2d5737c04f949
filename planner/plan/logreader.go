package plan

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// An input is a log that has been looked at but not read.
type input struct {
	*source
	format    accesslog.Format
	first     int64 // time of the first line
	head      []byte
	latest    int64     // time of the last request that was read
	forwarded bool      // most lines name the clients of proxies
	written   time.Time // when the file was last written; zero if unknown
	about     FileReport
	size      int64
	cut       int64   // requests that the last line may hold, which is cut off and cannot be read
	least     measure // of the lines at the beginning that can be read
}

// A block is some lines of a log, and the requests in them.
type block struct {
	text []byte
	err  error
	done chan struct{}
	harvest
}

// A harvest is the requests in a block's lines.
type harvest struct {
	found   []found
	costs   []int64 // by found request, where requests have costs
	keys    []byte
	tally   tallied
	missing []int64 // by value of the key: lines without it
	carried carried
}

// A found is one request. Its key follows the keys of the requests before it, in the block's keys.
// It is small, because moving data between cores is what costs the most time.
type found struct {
	at     int64
	length uint32
}

// tallied counts lines by their kind.
type tallied struct {
	lines, bad, aside, outside, unmatched, costless int64
	lost                                            int64 // requests that bad lines may hold
	subsecond                                       int64 // lines with a time finer than a second
	cut                                             int64 // those of the last line, if that is cut off
	examples                                        []string
}

// mostExamples is how many unreadable lines are shown.
const mostExamples = 3

func (t *tallied) add(more *tallied) {
	t.lines += more.lines
	t.bad += more.bad
	t.lost += more.lost
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

// A worker parses blocks of a log.
type worker struct {
	parser    accesslog.Parser
	extractor *extractor
	record    accesslog.Record
	least     measure

	detail accesslog.Parser // reads the attributes of carried
	whole  accesslog.Record
}

// apart is the space behind a worker's values, and cacheLine behind its other buffers. If two
// workers wrote to one cache line, both would be a third slower.
const (
	apart     = 3
	cacheLine = 64
)

func newWorker(q *extraction, in *input) *worker {
	return &worker{
		parser: in.format.Parser(), extractor: q.extractor(), least: in.least,
		record: accesslog.Record{Values: make([][]byte, len(q.attributes), len(q.attributes)+apart)},
		detail: in.format.With(carrying).Parser(),
		whole:  accesslog.Record{Values: make([][]byte, len(carrying), len(carrying)+apart)},
	}
}

// parse finds the requests in a block's text.
func (w *worker) parse(b *block) {
	text := b.text
	own := harvest{found: b.found[:0], costs: b.costs[:0], keys: b.keys[:0], missing: append(b.missing[:0], make([]int64, len(w.extractor.key))...), carried: b.carried}
	own.carried.clear()
	defer func() { b.harvest = own }() // the block may share a cache line with another, so it is written once
	r := &w.record
	for len(text) > 0 {
		if nuls := len(text) - len(bytes.TrimLeft(text, "\x00")); nuls > 0 {
			own.tally.skip(text[:nuls], errNULs, &w.least)
		}
		var line []byte
		line, text = accesslog.Line(text)
		if err := w.parser.Parse(line, r); err != nil {
			if lost := own.tally.skip(line, err, &w.least); text == nil {
				own.tally.cut = lost
				if held(line, new(measure)) > 1 { // it is more than the beginning of one request
					own.tally.cut = min(lost, 1)
				}
			}
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
		if w.extractor.chooses && len(own.found)%carriedEvery == 0 && w.detail.Parse(line, &w.whole) == nil {
			own.carried.add(&w.whole)
		}
		w.find(&own)
	}
}

// find adds the request of the present record.
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

var errNULs = errors.New("NUL bytes, where a log was cut in place: what stood there is lost")

// skip counts a line that is no request, and returns how many requests it may hold.
func (t *tallied) skip(line []byte, err error, least *measure) (lost int64) {
	if errors.Is(err, accesslog.ErrAside) {
		t.lines++
		t.aside++
	}
	if errors.Is(err, accesslog.ErrSkip) {
		return 0
	}
	lost = held(line, least)
	t.lines++
	t.bad++
	t.lost += lost
	if len(t.examples) < mostExamples {
		t.examples = append(t.examples, fmt.Sprintf("%v: %s", err, accesslog.Excerpt(line)))
	}
	return lost
}

// inspect opens a log, recognises its format and finds its first time.
func inspect(from *source, q *extraction, o *Options) (*input, error) {
	file, err := from.open()
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
	in.first, _ = file.Times(in.format.Parser(), len(q.attributes))
	in.least = leastOf(in.head, in.format.Parser(), len(q.attributes))
	return in, nil
}
