package plan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"os"
	"slices"
)

// A spool keeps the events of a pass in order, so that the logs are read but
// once, standard input included: in memory up to spoolMemory bytes, the rest in
// a file that has no name. An event takes about six bytes.
type spool struct {
	memory [][]byte
	chunk  []byte
	file   *os.File
	writer *bufio.Writer
	last   int64
	size   int64
	err    error
}

const spoolChunk = 1 << 20

// spoolMemory is not a constant, so that a test need not fill it.
var spoolMemory int64 = 256 << 20

func (s *spool) add(events []event) {
	for i := range events {
		e := &events[i]
		s.chunk = appendEvent(s.chunk, e, s.last)
		s.last = e.at
		if len(s.chunk) >= spoolChunk {
			s.put()
		}
	}
}

// mostEvent is how many bytes an event takes at most: one that says how long the
// others are, what has passed since the event before, the client, and the cost.
const mostEvent = 1 + 8 + 4 + binary.MaxVarintLen64

// costly marks an event that has a cost of its own: most cost 1.
const costly = 1 << 7

// appendEvent writes an event behind one of the moment last. Whole words are
// written, and what is not needed of them is written over.
func appendEvent(to []byte, e *event, last int64) []byte {
	n := len(to)
	to = slices.Grow(to, mostEvent)
	text := to[n : n+mostEvent]
	step := uint64(e.at - last)
	a, b := (bits.Len64(step)+7)/8, (bits.Len32(e.id)+7)/8
	text[0] = byte(a | b<<4)
	binary.LittleEndian.PutUint64(text[1:], step)
	binary.LittleEndian.PutUint32(text[1+a:], e.id)
	to = to[:n+1+a+b]
	if e.cost != 1 {
		text[0] |= costly
		to = binary.AppendVarint(to, e.cost)
	}
	return to
}

// eventAt reads the first event of a text, behind one of the moment last, and
// returns how long that is, 0 if it is not whole.
func eventAt(text []byte, last int64) (e event, n int) {
	if len(text) < mostEvent {
		if len(text) == 0 {
			return e, 0
		}
		var padded [mostEvent]byte
		copy(padded[:], text)
		if e, n = eventAt(padded[:], last); n > len(text) {
			n = 0
		}
		return e, n
	}
	a, b := int(text[0]&15), int(text[0]>>4&7)
	if a > 8 || b > 4 {
		return e, 0
	}
	e.at = last + int64(binary.LittleEndian.Uint64(text[1:])&^(^uint64(0)<<(8*a)))
	e.id = binary.LittleEndian.Uint32(text[1+a:]) &^ (^uint32(0) << (8 * b))
	e.cost, n = 1, 1+a+b
	if text[0]&costly != 0 {
		cost, c := binary.Varint(text[n:])
		if c <= 0 {
			return e, 0
		}
		e.cost, n = cost, n+c
	}
	return e, n
}

// An encoder writes events one after another.
type encoder struct {
	last int64
	text [mostEvent]byte
}

// encode returns the text of an event, until the next call.
func (c *encoder) encode(e *event) []byte {
	text := appendEvent(c.text[:0], e, c.last)
	c.last = e.at
	return text
}

// put moves the chunk at hand away.
func (s *spool) put() {
	if s.size += int64(len(s.chunk)); s.size <= spoolMemory {
		s.memory = append(s.memory, bytes.Clone(s.chunk))
	} else if s.err == nil {
		s.err = s.spill()
	}
	s.chunk = s.chunk[:0]
}

func (s *spool) spill() error {
	if s.file == nil {
		f, err := unnamed()
		if err != nil {
			return err
		}
		s.file, s.writer = f, bufio.NewWriterSize(f, spoolChunk)
	}
	_, err := s.writer.Write(s.chunk)
	return err
}

func (s *spool) close() {
	if f := s.file; f != nil {
		f.Close()
	}
}

// batch is how many events are given out at once.
const batch = 4096

// replay gives the events to the sinks again, but for those of clients that
// skip names. It may be called again and again.
func (s *spool) replay(ctx context.Context, skip []bool, sinks ...sink) error {
	if s.err != nil {
		return s.err
	}
	p := &player{skip: skip, sinks: sinks, events: make([]event, 0, batch)}
	for _, m := range s.memory {
		if err := p.play(ctx, m); err != nil {
			return err
		}
	}
	if s.file != nil {
		if s.err = s.writer.Flush(); s.err != nil {
			return s.err
		}
		if err := p.playFile(ctx, s.file); err != nil {
			return err
		}
	}
	if err := p.play(ctx, s.chunk); err != nil {
		return err
	}
	p.give()
	return nil
}

// A player gives out what a spool keeps.
type player struct {
	skip   []bool
	sinks  []sink
	events []event
	last   int64
}

// play gives out a text of whole events.
func (p *player) play(ctx context.Context, text []byte) error {
	for len(text) > 0 {
		n := p.one(text)
		if n <= 0 {
			return errSpool
		}
		if text = text[n:]; len(p.events) == batch {
			p.give()
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

var errSpool = errors.New("the temporary file does not hold what was written to it")

// one reads the first event of a text and returns how long that is, 0 if it is
// not whole.
func (p *player) one(text []byte) int {
	e, n := eventAt(text, p.last)
	if n == 0 {
		return 0
	}
	p.last = e.at
	if int(e.id) >= len(p.skip) || !p.skip[e.id] {
		p.events = append(p.events, e)
	}
	return n
}

func (p *player) give() {
	for _, k := range p.sinks {
		k.add(p.events)
	}
	p.events = p.events[:0]
}

// playFile gives out what a file holds, from its beginning.
func (p *player) playFile(ctx context.Context, file *os.File) error {
	text := make([]byte, 0, spoolChunk)
	for at := int64(0); ; {
		n, err := file.ReadAt(text[len(text):cap(text)], at)
		at += int64(n)
		text = text[:len(text)+n]
		whole := len(text)
		if !errors.Is(err, io.EOF) {
			whole -= mostEvent // the last may be cut
		}
		read := 0
		for read < whole {
			size := p.one(text[read:])
			if size <= 0 {
				return errors.Join(errSpool, err)
			}
			if read += size; len(p.events) == batch {
				p.give()
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text = text[:copy(text, text[read:])]
	}
}

// next reads the event behind one of the moment last.
func next(in *bufio.Reader, last int64) (event, error) {
	text, err := in.Peek(mostEvent)
	if len(text) == 0 {
		return event{}, err
	}
	e, n := eventAt(text, last)
	if n == 0 {
		return e, errors.Join(errSpool, err)
	}
	_, err = in.Discard(n)
	return e, err
}
