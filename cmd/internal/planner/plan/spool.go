package plan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
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

// appendEvent writes an event behind one of the moment last.
func appendEvent(to []byte, e *event, last int64) []byte {
	to = binary.AppendVarint(to, e.at-last)
	to = binary.AppendUvarint(to, uint64(e.id))
	return binary.AppendVarint(to, e.cost)
}

// An encoder writes events one after another.
type encoder struct {
	last int64
	text [3 * binary.MaxVarintLen64]byte
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
	step, a := binary.Varint(text)
	if a <= 0 {
		return 0
	}
	id, b := binary.Uvarint(text[a:])
	if b <= 0 {
		return 0
	}
	cost, c := binary.Varint(text[a+b:])
	if c <= 0 {
		return 0
	}
	p.last += step
	if int(id) >= len(p.skip) || !p.skip[id] {
		p.events = append(p.events, event{at: p.last, cost: cost, id: uint32(id)})
	}
	return a + b + c
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
			whole -= 3 * binary.MaxVarintLen64 // the last may be cut
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

func next(in *bufio.Reader, last int64) (e event, err error) {
	step, err := binary.ReadVarint(in)
	if err != nil {
		return e, err
	}
	id, err := binary.ReadUvarint(in)
	if err != nil {
		return e, err
	}
	e.cost, err = binary.ReadVarint(in)
	e.at, e.id = last+step, uint32(id)
	return e, err
}
